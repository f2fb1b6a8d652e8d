"""Display of a run: what it trains, then a bar in a terminal or one line per epoch elsewhere."""

import time
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import nn

from .._markup import escape_control
from ..config import RunConfig
from ..data import Splits
from ..models.model_card import format_numbers

# Of the epochs of one run of an experiment.
SECONDS_BETWEEN_LINES = 10.0


class TrainingProgress:
    """Display loss, accuracy, images per second and remaining time, by default on standard error.

    An epoch has ``steps`` optimizer steps; earlier sessions have taken ``done`` of the run. Epochs
    but the last are not printed within ``every`` seconds of the previous line.
    """

    def __init__(
        self,
        label: str,
        epochs: int,
        steps: int,
        console: Console | None = None,
        *,
        done: int = 0,
        every: float = 0.0,
    ) -> None:
        self.console = console or Console(stderr=True)
        self.label = escape_control(label)
        self.epochs, self.steps, self.done, self.every = epochs, steps, done, every
        self._bar: Progress | None = None
        self._images, self._since = 0, time.perf_counter()
        self._printed = self._since
        self._waiting: dict[str, Any] | None = None

    def __enter__(self) -> "TrainingProgress":
        if self.console.is_terminal:
            columns: list[Any] = [TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn()]
            columns += [TextColumn("{task.fields[numbers]}", markup=False), TimeRemainingColumn(compact=True)]
            self._bar = Progress(*columns, console=self.console, transient=True)
            self._bar.start()
            self._task = self._bar.add_task(self.label, total=self.epochs * self.steps, completed=self.done, numbers="")
        self._since = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._waiting is not None:  # the last epoch of a run that stops early
            self._print(self._waiting)
        if self._bar is not None:
            self._bar.stop()

    def step(self, epoch: int, images: int, loss: float, accuracy: float) -> None:
        """Advance by one optimizer step on ``images``; loss and accuracy are means of the epoch."""
        self._images += images
        if self._bar is None:
            return
        speed = self._images / max(time.perf_counter() - self._since, 1e-9)
        numbers = f"loss {loss:.3f}  train acc {accuracy:6.1%}  {speed:,.0f} img/s"
        description = f"{self.label}  epoch {epoch}/{self.epochs}"
        self._bar.update(self._task, advance=1, description=description, numbers=numbers)

    def epoch(self, row: dict[str, Any]) -> None:
        """Print the metrics of an epoch, above the progress bar if there is one."""
        now = time.perf_counter()
        if row["epoch"] < self.epochs and now - self._printed < self.every:
            self._waiting = row
            return
        self._printed, self._waiting = now, None
        self._print(row)

    def _print(self, row: dict[str, Any]) -> None:
        val = f"  val acc {row['val_accuracy']:.1%}" if "val_accuracy" in row else ""
        left = (self.epochs - row["epoch"]) * row["seconds"]
        self.console.print(
            f"{self.label}  epoch {row['epoch']}/{self.epochs}  loss {row['train_loss']:.3f}  "
            f"train acc {row['train_accuracy']:.1%}{val}  {row['images_per_second']:,.0f} img/s  {left:.0f} s left",
            markup=False,
            emoji=False,
            highlight=False,
            soft_wrap=True,
        )


def heading(config: RunConfig, model: nn.Module, splits: Splits, label: str | None = None) -> list[str]:
    """Return the overview of a run, or one line for a run of an experiment, which has a label."""
    facts = dict(overview(config, model, splits))
    if label is not None:
        return [f"{escape_control(label)}  {facts['weights']}; {facts['data']}"]
    return [f"{name:<8}  {fact}" for name, fact in facts.items()]


def overview(config: RunConfig, model: nn.Module, splits: Splits) -> list[tuple[str, str]]:
    """Return the facts that decide a run: weights, input, pooling, rate, images and classes."""
    info, optim = splits.info, config.optim
    normalisation = "none" if info.mean is None else f"mean {format_numbers(info.mean)}, std {format_numbers(info.std)}"
    images = ", ".join(f"{split} {count:,}" for split, count in splits.sizes.items())
    return [
        ("weights", _weights(config, model)),
        (
            "input",
            f"{info.image_size}×{info.image_size} px, transform {info.transform}, normalisation: {normalisation}",
        ),
        ("pooling", f"{config.model.pooling}, {config.model.reduce or 'all'} channels"),
        ("training", f"{optim.optimizer}, rate {optim.lr:g}, {optim.epochs} epochs, batch {config.data.batch_size}"),
        ("data", f"{config.data.name}: {images} images, {len(info.classes)} classes"),
    ]


def _weights(config: RunConfig, model: nn.Module) -> str:
    report, backbone = getattr(model, "load_report", None), config.model.backbone
    if report is not None:
        return f"{backbone}, {report.message.removeprefix('load_weights: ').rstrip('.')}"
    return f"{backbone}, pretrained (ImageNet)" if config.model.pretrained else f"{backbone}, random"
