"""Started by torchrun in test_distributed: no BatchNorm, a resumed run, a data-driven start."""

import sys
from pathlib import Path

import pytest
import torch

from isice.config import override
from isice.models import initialize
from isice.train import train_run, trainer
from isice.train.trainer import Trainer

from .._half_digits import halve_digits
from ._tiny import TINY, build_linear


def main(folder: Path) -> None:
    halve_digits()
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
    start_from_data(folder)


def start_from_data(folder: Path) -> None:
    """Train netvlad; every process saves its pooling before DistributedDataParallel sees it.

    SyncBatchNorm needs GPUs: instead of a conversion, whether the pooling had started is saved.
    """
    start, started, calls = Trainer._initialize, [], []

    def start_and_save(self):
        torch.manual_seed(self.fabric.global_rank)
        torch.nn.init.normal_(self.model.pooling.centres)  # different in every process before the start
        start(self)
        found = {"images": self.state.start_images, "calls": len(calls), "pooling": self.model.pooling.state_dict()}
        torch.save(found, folder / f"start{self.fabric.global_rank}.pt")
        started.append(True)
        self.config = override(self.config, ["sync_bn=true"])  # a CPU refuses it at first

    def convert(model):
        (folder / "converted.txt").write_text(f"after the start: {bool(started)}")
        return model

    config = override(TINY, ["model.pooling=netvlad(n_clusters=4)", "optim.epochs=1"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "initialize", lambda *args: calls.append(args) or initialize(*args))
        patch.setattr(Trainer, "_initialize", start_and_save)
        patch.setattr(trainer, "convert_sync_batchnorm", convert)
        train_run(config, folder / "netvlad")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
