"""What a cell of an experiment can be: a training run, one on frozen features, a measurement, a structure, facts."""

from dataclasses import dataclass, field
from typing import Any

from .._checks import check_choice, check_int
from ..config import RunConfig

_WHERE = {"hashed": False}


@dataclass(frozen=True)
class BenchConfig:
    """A measurement of time and memory on random numbers.

    ``what = "step"`` is a training step of a network (forward, backward, optimizer) on images of ``image_size``;
    ``"layer"`` is forward and backward of the pooling layer alone on ``channels`` maps of ``side`` × ``side``.
    ``epoch_images`` converts a batch into an epoch. Nothing is loaded: weights are random.
    """

    what: str = "step"
    backbone: str = "resnet50"
    pooling: str = "isice"
    reduce: int = 256
    num_classes: int = 100
    image_size: int = 224
    channels: int = 256
    side: int = 14
    batch_size: int = 64
    epoch_images: int = 126689
    precision: str = "fp32"
    repeats: int = 5
    seed: int = 0
    device: str = field(default="auto", metadata=_WHERE)

    def __post_init__(self) -> None:
        check_choice("bench", "what", self.what, ("step", "layer"))
        check_choice("bench", "precision", self.precision, ("fp32", "tf32", "bf16"))
        for name in (
            "reduce",
            "num_classes",
            "image_size",
            "channels",
            "side",
            "batch_size",
            "epoch_images",
            "repeats",
        ):
            check_int("bench", name, getattr(self, name), minimum=1)


@dataclass(frozen=True)
class StructureConfig:
    """An estimate of a precision matrix of known structure from samples, and its error.

    The paper says neither how it drew the matrix nor how it chose λ: see :mod:`isice.jobs.structure` for what is done
    here. ``selection`` is how SICE gets its λ: ``"rate"``, √(log size / samples), or ``"cv"``, by cross-validation.
    """

    structure: str = "sparse"
    estimator: str = "sice"
    selection: str = "rate"
    size: int = 100
    samples: int = 200
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("structure", "structure", self.structure, ("sparse", "dense", "dense_mild"))
        check_choice("structure", "estimator", self.estimator, ("sice", "mle"))
        check_choice("structure", "selection", self.selection, ("rate", "cv"))
        check_int("structure", "size", self.size, minimum=2)
        check_int("structure", "samples", self.samples, minimum=4)


@dataclass(frozen=True)
class DatasetConfig:
    """What the table of datasets says about one of them; no image is read."""

    name: str = "digits"
    seed: int = 0


KINDS: dict[str, Any] = {
    "train": RunConfig,
    "frozen": RunConfig,
    "bench": BenchConfig,
    "structure": StructureConfig,
    "dataset": DatasetConfig,
}
