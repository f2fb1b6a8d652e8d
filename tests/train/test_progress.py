"""The display: a line per epoch without a terminal, a bar with one."""

import io
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console

from isice.config import RunConfig
from isice.data import DATASETS
from isice.train.progress import TrainingProgress, heading

ROW = {
    "epoch": 1,
    "train_loss": 0.5,
    "train_accuracy": 0.8,
    "val_accuracy": 0.75,
    "seconds": 2.0,
    "images_per_second": 99,
}


def shown(terminal: bool) -> str:
    stream = io.StringIO()
    with TrainingProgress("gap", 3, 2, Console(file=stream, force_terminal=terminal, width=120)) as progress:
        progress.step(1, 64, 0.5, 0.8)
        progress.epoch(ROW)
        if terminal:
            progress._bar.refresh()
    return stream.getvalue()


def test_a_run_of_an_experiment_has_a_heading_of_one_line():
    splits = SimpleNamespace(info=DATASETS["digits"], sizes={"train": 1200, "test": 450})
    config, model = RunConfig(), torch.nn.Linear(1, 1)
    assert len(heading(config, model, splits)) == 5
    (line,) = heading(config, model, splits, "seed 0")
    assert line.startswith("seed 0  small_cnn, random; digits: train 1,200, test 450 images")
    model.load_report = SimpleNamespace(message="load_weights: 2 of 2 tensors matched.")
    assert "small_cnn, 2 of 2 tensors matched; digits" in heading(config, model, splits, "seed 0")[0]


def test_plain_lines():
    assert shown(terminal=False) == "gap  epoch 1/3  loss 0.500  train acc 80.0%  val acc 75.0%  99 img/s  4 s left\n"


@pytest.mark.parametrize("epochs", [3, 10])  # to the end, or stopped early
def test_epochs_that_follow_closely_are_left_out_except_the_last(epochs):
    stream = io.StringIO()
    with TrainingProgress("gap", epochs, 2, Console(file=stream), every=60.0) as progress:
        for epoch in (1, 2, 3):
            progress.epoch(ROW | {"epoch": epoch})
    assert stream.getvalue().startswith(f"gap  epoch 3/{epochs}")
    assert len(stream.getvalue().splitlines()) == 1


def test_bar():
    text = shown(terminal=True)
    for part in ("gap  epoch 1/3", "1/6", "loss 0.500", "train acc  80.0%", "img/s"):
        assert part in text
    assert shown(terminal=False).strip() in text  # the line of the epoch
