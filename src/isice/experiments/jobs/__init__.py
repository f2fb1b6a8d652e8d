"""Jobs, which compute the cells of experiments: one file per kind, with config and ``JOB``."""

import time
from pathlib import Path
from typing import Any

from ...records import failure, new_record, write_record
from ..job_configs import find_job, kind_of


def run_job(config: Any, folder: Path, label: str, *, force: bool = False) -> None:
    """Compute one config, whose class tells the kind of job, and write its record, even on failure.

    ``label`` is the name in the progress display; ``force`` starts a training run over.
    """
    kind = kind_of(config)
    job = find_job(kind)
    if job.run is not None:
        job.run(config, folder, label, force)
        return
    if job.compute is None:
        raise TypeError(f"jobs: expected {kind}.JOB to have compute or run, got neither.")
    from ...train.hardware import hardware

    record = new_record(config, hardware()) | {"kind": kind}
    start = time.perf_counter()
    try:
        record |= {"status": "finished", **job.compute(config)}
    except Exception as error:
        write_record(folder, record | failure(error))
        raise
    write_record(folder, record | {"seconds": time.perf_counter() - start})
