"""The display: a line per epoch without a terminal, a bar with one."""

import io

from rich.console import Console

from isice.train.progress import TrainingProgress

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


def test_plain_lines():
    assert shown(terminal=False) == "gap  epoch 1/3  loss 0.500  train acc 80.0%  val acc 75.0%  99 img/s  4 s left\n"


def test_bar():
    text = shown(terminal=True)
    for part in ("gap  epoch 1/3", "1/6", "loss 0.500", "train acc  80.0%", "img/s"):
        assert part in text


def test_the_bar_leaves_a_line_for_every_epoch():
    assert "gap  epoch 1/3  loss 0.500  train acc 80.0%  val acc 75.0%  99 img/s  4 s left" in shown(terminal=True)
