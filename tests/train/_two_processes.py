"""Started by torchrun in test_distributed: one run with a model without BatchNorm, one resumed run."""

import sys
from pathlib import Path

import pytest

from isice.train import train_run
from isice.train.trainer import Trainer

from ._tiny import TINY, build_linear


def main(folder: Path) -> None:
    train_run(TINY, folder / "whole", build=build_linear)
    original, left = Trainer._step, [20]

    def interrupting(*args):
        if left[0] == 0:
            raise InterruptedError
        left[0] -= 1
        return original(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "_step", interrupting)
        with pytest.raises(InterruptedError):
            train_run(TINY, folder / "resumed", build=build_linear)
    train_run(TINY, folder / "resumed", build=build_linear, resume="must")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
