"""Train the runs of test_resume in child processes that kill themselves at a chosen moment.

Run as ``python -m tests.train._killed FOLDER``; each moment gets a folder of its name. Children are
forked before anything is computed, so that the (slow) imports are made once.
"""

import os
import signal
import sys
from pathlib import Path

import sklearn.datasets  # noqa: F401

from isice import _atomic
from isice.config import RunConfig, override
from isice.train import train_run
from isice.train.launch import create_fabric
from isice.train.trainer import Trainer

from .._half_digits import halve_digits
from ._tiny import TINY

# Everything that a resumed run must take up: augmentation, dropout, averaging, two stages,
# choice of the best epoch.
CONFIG = override(
    TINY,
    [
        "model.pooling=dropcov",
        "data.val_fraction=0.6",
        "data.transform=paper",
        "optim.head_epochs=1",
        "optim.epochs=2",
        "optim.ema_decay=0.9",
        "optim.classifier_lr_factor=2",
        "optim.warmup_epochs=1",
        "select_on=val",
        "checkpoint_every_steps=3",
    ],
)
WORKERS = override(CONFIG, ["data.workers=2", "optim.epochs=1"])

# Moment → (what is called, at which call it dies, config). Eight steps make an epoch; the
# first one trains the head.
MOMENTS: dict[str, tuple[object, str, int, RunConfig]] = {
    "before_the_first_checkpoint": (Trainer, "_step", 2, CONFIG),
    "mid_epoch_of_the_head": (Trainer, "_step", 5, CONFIG),
    "mid_epoch": (Trainer, "_step", 8 + 8, CONFIG),
    "before_the_last_save": (Trainer, "_update_best", 2, CONFIG),
    "writing_a_file": (_atomic, "write_synced", 2 + 14, CONFIG),  # after config.toml and metrics.jsonl
    "between_the_renames": (Path, "rename", 10, CONFIG),
    "with_workers": (Trainer, "_step", 8 + 5, WORKERS),
}


def die_at(owner: object, name: str, call: int) -> None:
    original, left = getattr(owner, name), [call]

    def dying(*args, **kwargs):
        left[0] -= 1
        if left[0] == 0:
            if owner is Trainer:
                # Which checkpoint the writing thread has finished must not depend on speed.
                args[0].wait_for_checkpoints()
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)

    setattr(owner, name, dying)


def main(folder: Path) -> None:
    halve_digits()
    create_fabric(CONFIG)
    for moment, (owner, name, call, config) in MOMENTS.items():
        child = os.fork()
        if child == 0:
            die_at(owner, name, call)
            train_run(config, folder / moment)
            os._exit(0)
        if os.waitpid(child, 0)[1] != signal.SIGKILL:
            sys.exit(f"{moment}: was not killed")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
