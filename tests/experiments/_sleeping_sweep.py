"""Two endless runs: ``python -m tests.experiments._sleeping_sweep FOLDER [no-prctl]``."""

import os
import sys
import time
from pathlib import Path

from isice.experiments.loader import load_experiment
from isice.experiments.runner import run_experiment

if "no-prctl" in sys.argv or os.environ.get("NO_PRCTL"):
    os.environ["NO_PRCTL"] = "1"  # for the children
    from isice import _parent

    class _Other:
        platform = "another system"

    _parent.sys = _Other


def sleep(config, folder, label):
    (folder / "pid").write_text(str(os.getpid()))
    time.sleep(600)


if __name__ == "__main__":
    run_experiment(load_experiment("digits"), Path(sys.argv[1]), sleep, devices=["cpu", "cpu"])
