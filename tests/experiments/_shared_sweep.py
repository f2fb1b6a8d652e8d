"""A sweep to start several times: ``python -m tests.experiments._shared_sweep FOLDER NAME``.

Each cell appends the name of the process to ``computed`` in its folder. Process ``slow`` waits in
its first cell until it is killed.
"""

import sys
import time
from pathlib import Path

from isice.config import config_hash
from isice.experiments import runner
from isice.experiments.loader import load_experiment
from isice.records import write_record


def main(folder, name):
    def compute(config, run, label):
        with (run / "computed").open("a") as file:
            file.write(f"{name}\n")
        while name == "slow":
            time.sleep(0.05)
        write_record(run, {"status": "finished", "hash": config_hash(config), "started": "2026"})

    runner.WAIT_SECONDS = 0.1
    outcome = runner.run_experiment(
        load_experiment("digits"), folder, compute, tell=lambda line: print(line, flush=True)
    )
    print(f"done {len(outcome.done)}, skipped {len(outcome.skipped)}, failed {len(outcome.failed)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
