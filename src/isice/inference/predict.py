"""Predicting with a trained network: from a run folder or a shared model, and image files, to classes."""

import glob
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torchvision.transforms.v2.functional import rgb_to_grayscale

from .._checks import check_int
from ..config import DataConfig
from ..data.images import IMAGE_SUFFIXES, BadImageError, read_image
from ..data.splits import info_in_use
from ..data.transforms import Transform, create_transforms
from ..models import create_model
from ..models.hub import HUB, LOCAL
from ..records import read_record
from ..train.checkpoint import Trained, load_trained
from ..train.launch import resolve_device

_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Prediction:
    """What a network says about one image.

    Attributes:
        image: The file.
        classes: Class and probability, the most probable first; empty if the image could not be read.
        error: Why it could not be read; None if it could.
    """

    image: str
    classes: tuple[tuple[str, float], ...] = ()
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The prediction as plain values, ready for JSON."""
        if self.error is not None:
            return {"image": self.image, "error": self.error}
        return {"image": self.image, "predictions": [{"class": c, "probability": p} for c, p in self.classes]}


@dataclass(frozen=True)
class Predictor:
    """A network in eval mode on its device, with the names of its classes and the way from picture to input."""

    model: nn.Module
    classes: tuple[str, ...]
    channels: int
    transform: Transform
    device: torch.device

    def prepare(self, path: str | Path) -> Tensor:
        """Reads an image file to the network's input (C, H, W)."""
        image = read_image(path)
        return self.transform(rgb_to_grayscale(image) if self.channels == 1 else image)

    def predict(
        self, images: Iterable[str | Path], *, topk: int = 5, flip: bool = False, batch_size: int = 32
    ) -> Iterator[Prediction]:
        """Predicts image files in their order, ``batch_size`` at a time; one that cannot be read does not stop others.

        Args:
            images: The files.
            topk: How many classes to name; all, if there are fewer.
            flip: Average the probabilities of each image and its mirror image.
            batch_size: Images held in memory at once.
        """
        check_int("predict", "topk", topk, minimum=1)
        check_int("predict", "batch_size", batch_size, minimum=1)
        paths = [str(image) for image in images]
        for begin in range(0, len(paths), batch_size):
            yield from self._predict_batch(paths[begin : begin + batch_size], min(topk, len(self.classes)), flip)

    def _predict_batch(self, paths: Sequence[str], topk: int, flip: bool) -> Iterator[Prediction]:
        inputs: dict[str, Tensor] = {}
        for path in paths:
            try:
                inputs[path] = self.prepare(path)
            except BadImageError:
                continue
        found = {}
        if inputs:
            batch = torch.stack(list(inputs.values())).to(self.device)
            values, indices = probabilities(self.model, batch, flip=flip).topk(topk, dim=1)
            for path, numbers, labels in zip(inputs, values.tolist(), indices.tolist(), strict=True):
                found[path] = tuple((self.classes[i], p) for i, p in zip(labels, numbers, strict=True))
        for path in paths:
            missing = "there is no such file" if not Path(path).exists() else "it cannot be read as an image"
            yield Prediction(path, found[path]) if path in found else Prediction(path, error=missing)


@torch.no_grad()
def probabilities(model: nn.Module, images: Tensor, *, flip: bool = False, precision: str = "fp32") -> Tensor:
    """Class probabilities (B, K) in float32 of images (B, C, H, W); with ``flip`` averaged over their mirror images.

    Example:
        >>> probabilities(nn.Flatten(), torch.zeros(1, 1, 1, 2), flip=True)
        tensor([[0.5000, 0.5000]])
    """
    views = [images, images.flip(-1)] if flip else [images]
    with torch.autocast(images.device.type, _AUTOCAST.get(precision), enabled=precision in _AUTOCAST):
        logits = [model(view) for view in views]
    return torch.stack([one.float().softmax(dim=1) for one in logits]).mean(dim=0)


def find_images(arguments: Iterable[str | Path]) -> list[str]:
    """The image files that files, patterns (``"birds/*.jpg"``, ``"**/*.png"``) and folders (all below) stand for.

    A file that does not exist stays in the list: it is an unreadable image. A folder without images, or a pattern that
    nothing fits, is an error.
    """
    found: list[str] = []
    for argument in map(str, arguments):
        path = Path(argument)
        if path.is_dir():
            files = sorted(str(file) for file in path.rglob("*") if file.suffix.lower() in IMAGE_SUFFIXES)
        elif path.exists() or not glob.has_magic(argument):
            files = [argument]
        else:
            files = sorted(file for file in glob.glob(argument, recursive=True) if Path(file).is_file())
        if not files:
            raise FileNotFoundError(f"predict: expected images in {argument!r}, got none; check the path.")
        found += files
    if not found:
        raise ValueError("predict: expected at least one image, got none; name files, patterns or folders.")
    return list(dict.fromkeys(found))


def load_predictor(source: str | Path, which: str = "best", device: str = "auto") -> Predictor:
    """A predictor from a run folder, or from a shared model (``"hf-hub:owner/name"``, ``"local-dir:folder"``).

    Args:
        source: The run folder or the name of the shared model.
        which: The checkpoint of a run, ``"best"`` or ``"last"``.
        device: ``"auto"``, ``"cpu"``, ``"cuda:0"`` …
    """
    if str(source).startswith((HUB, LOCAL)):
        model = create_model(str(source))
        if not {"classes", "input"} <= model.about.keys():
            raise ValueError(f"predict: expected {str(source)!r} to know its classes and input, got a bare network.")
        return _predictor(model, model.about["classes"], model.about["input"], device)
    trained = load_run(source, which)
    return _predictor(trained.model, trained.classes, input_facts(trained.config.data), device)


def load_run(folder: str | Path, which: str = "best") -> Trained:
    """:func:`load_trained`, with an error that helps when the folder is none of a run."""
    folder = Path(folder)
    if not folder.is_dir():
        what = "which is a file; name its folder" if folder.exists() else "which does not exist; train first"
        raise FileNotFoundError(f"run: expected a run folder, got {str(folder)!r}, {what}.")
    if not (folder / "checkpoints").is_dir():
        raise FileNotFoundError(_no_run(folder))
    return load_trained(folder, which)


def _no_run(folder: Path) -> str:
    """What to say of a folder without checkpoints: it holds several runs, a run without its weights, or none."""
    inside = sorted(path.parent.name for path in folder.glob("*/checkpoints"))
    if inside:
        some = f"a folder of {len(inside)}; name one of them, such as {str(folder / inside[0])!r}"
        return f"run: expected one run, got {str(folder)!r}, {some}."
    record = read_record(folder) or {}
    if "status" in record:
        some = f"a run without weights (its record says {record['status']!r}); train it, or restore its checkpoints"
    else:
        some = "which holds no run (no checkpoints/); train first (isice train --out FOLDER), or name another folder"
    return f"run: expected a run folder, got {str(folder)!r}, {some}."


def input_facts(config: DataConfig) -> dict[str, Any]:
    """What a network trained with this config takes: channels, size and normalisation, as plain values.

    Example:
        >>> input_facts(DataConfig("cub200", image_size=224))["image_size"]
        224
    """
    info = info_in_use(config)
    return {
        "channels": info.channels,
        "image_size": info.image_size,
        "transform": info.transform,
        "mean": None if info.mean is None else list(info.mean),
        "std": None if info.std is None else list(info.std),
    }


def _predictor(model: nn.Module, classes: Sequence[str], facts: Mapping[str, Any], device: str) -> Predictor:
    if facts["channels"] not in (1, 3):
        raise ValueError(
            f"predict: expected a network for grey or RGB pictures, got one for {facts['channels']} channels; "
            "image files cannot be read for it, call the network with tensors."
        )
    mean, std = (None if facts[name] is None else tuple(facts[name]) for name in ("mean", "std"))
    _, transform = create_transforms(facts["transform"], facts["image_size"], mean=mean, std=std)
    where = resolve_device(device)
    return Predictor(model.to(where).eval(), tuple(classes), facts["channels"], transform, where)
