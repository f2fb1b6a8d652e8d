"""Train runs in child processes that are killed at random moments, until all have finished.

Run as ``python -m tests.train._random_kills FOLDER KILLS SEED``: it prints the number of kills of
each run. A run is killed at most four times, and runs are added until there were KILLS kills.
FOLDER/whole is never killed.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import sklearn.datasets  # noqa: F401

from isice.config import override
from isice.train import train_run
from isice.train.launch import create_fabric

from .._half_digits import halve_digits
from ._killed import CONFIG as KILLED

CONFIG = override(KILLED, ["checkpoint_every_steps=1"])
MOST_KILLS = 4


def start(folder: Path) -> int:
    child = os.fork()
    if child == 0:
        try:
            train_run(CONFIG, folder)
            os._exit(0)
        except BaseException as error:
            print(f"{folder.name}: {error!r}", file=sys.stderr, flush=True)
            os._exit(1)
    return child


def wait(child: int, folder: Path) -> bool:
    """Return whether the child was killed; a child that failed ends the program."""
    status = os.waitpid(child, 0)[1]
    if os.waitstatus_to_exitcode(status) not in (0, -signal.SIGKILL):
        sys.exit(f"{folder.name} failed")
    return os.WIFSIGNALED(status)


def main(folder: Path, kills: int, seed: int) -> None:
    halve_digits()
    create_fabric(CONFIG)
    rng = random.Random(seed)
    began = time.monotonic()
    wait(start(folder / "whole"), folder)
    seconds, total, runs = time.monotonic() - began, 0, 0
    while total < kills:
        own, left = folder / f"run{runs}", min(MOST_KILLS, kills - total)
        while True:
            child = start(own)
            if left:
                time.sleep(rng.uniform(0, seconds))
                os.kill(child, signal.SIGKILL)
            if not wait(child, own):
                break
            left, total = left - 1, total + 1
        runs += 1
    print(total, runs)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
