"""Wall-clock time of a run outside its training steps, by phase."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PHASES = ("process", "start", "data", "checkpoints", "evaluate", "finish")
_first = True


class PhaseTimer:
    """Sum the seconds of the phases of a run, from its start to its record.

    ``process`` is the time from the start of the process to its first run, mostly imports, and 0
    for later runs. ``start`` is the time of a run before its first step, without ``data``.
    """

    def __init__(self) -> None:
        global _first
        self.seconds = dict.fromkeys(PHASES, 0.0) | {"process": seconds_of_process() if _first else 0.0}
        self.began, _first = time.perf_counter(), False

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Add the time within the context to a phase, without that of phases inside it."""
        start, others = time.perf_counter(), sum(self.seconds.values())
        try:
            yield
        finally:
            inside = sum(self.seconds.values()) - others
            self.seconds[phase] += time.perf_counter() - start - inside

    def start_training(self) -> None:
        """Close the phase ``start``."""
        self.seconds["start"] += self.total() - self.seconds["data"]

    def total(self) -> float:
        """Return the seconds since the timer was created."""
        return time.perf_counter() - self.began


def seconds_of_process() -> float:
    """Return the age of this process; 0 where the system does not tell it."""
    if sys.platform != "linux":
        return 0.0
    ticks = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(ticks) / os.sysconf("SC_CLK_TCK")
