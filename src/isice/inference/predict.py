"""Predict the classes of image files with a run or a model of the Hugging Face Hub."""

import glob
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torchvision.transforms.v2.functional import rgb_to_grayscale

from .._checks import check_int
from ..config import DataConfig
from ..data.images import IMAGE_SUFFIXES, BadImageError, read_image
from ..data.splits import info_in_use
from ..data.transforms import Transform, create_transforms
from ..models import Network, create_model
from ..models.hub import HUB, LOCAL
from ..train import load_trained
from ..train.launch import resolve_device
from ..train.scoring import probabilities


@dataclass(frozen=True)
class Prediction:
    """Predicted classes of one image.

    Attributes:
        image: The file.
        classes: Pairs (class, probability), most probable first; empty if the image is unreadable.
        error: Why the image could not be read, or None.
    """

    image: str
    classes: tuple[tuple[str, float], ...] = ()
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        if self.error is not None:
            return {"image": self.image, "error": self.error}
        return {"image": self.image, "predictions": [{"class": c, "probability": p} for c, p in self.classes]}


@dataclass(frozen=True)
class Predictor:
    """A network in eval mode on its device, with its class names and image transform."""

    model: Network
    classes: tuple[str, ...]
    channels: int
    transform: Transform
    device: torch.device

    def prepare(self, path: str | Path) -> Tensor:
        """Read an image file and transform it to the network's input (C, H, W)."""
        image = read_image(path)
        return self.transform(rgb_to_grayscale(image) if self.channels == 1 else image)

    def predict(
        self, images: Iterable[str | Path], *, topk: int = 5, flip: bool = False, batch_size: int = 32
    ) -> Iterator[Prediction]:
        """Predict image files in order; an unreadable image yields a prediction with an error.

        Args:
            images: The files.
            topk: Classes per image, at most all.
            flip: Average the probabilities of each image and its mirror image.
            batch_size: Images per batch.
        """
        check_int("predict", "topk", topk, minimum=1)
        check_int("predict", "batch_size", batch_size, minimum=1)
        paths = [str(image) for image in images]
        for begin in range(0, len(paths), batch_size):
            yield from self._predict_batch(paths[begin : begin + batch_size], min(topk, len(self.classes)), flip)

    @torch.no_grad()
    def features(self, images: Iterable[str | Path], *, batch_size: int = 32) -> Tensor:
        """Return the pooled vectors (N, F) of image files; raise on an unreadable one."""
        check_int("features", "batch_size", batch_size, minimum=1)
        paths, vectors = list(images), []
        for begin in range(0, len(paths), batch_size):
            batch = torch.stack([self.prepare(path) for path in paths[begin : begin + batch_size]]).to(self.device)
            vectors.append(self.model.forward_head(self.model.forward_features(batch), pre_logits=True).cpu())
        return torch.cat(vectors)

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
                if all(map(math.isfinite, numbers)):
                    found[path] = tuple((self.classes[i], p) for i, p in zip(labels, numbers, strict=True))
        for path in paths:
            missing = "there is no such file" if not Path(path).exists() else "it cannot be read as an image"
            problem = "the network's output is not finite" if path in inputs else missing
            yield Prediction(path, found[path]) if path in found else Prediction(path, error=problem)


def find_images(arguments: Iterable[str | Path]) -> list[str]:
    """Expand files, glob patterns (``"birds/*.jpg"``) and folders, recursively, to image files.

    A missing file stays in the list, to be reported as unreadable. A folder without images or a
    pattern without matches is an error.
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
    """Load a predictor from a run folder or from a model on the Hugging Face Hub.

    Args:
        source: A run folder, ``"hf-hub:owner/name"`` or ``"local-dir:folder"``.
        which: The checkpoint of a run, ``"best"`` or ``"last"``.
        device: ``"auto"``, ``"cpu"``, ``"cuda:0"`` …
    """
    if str(source).startswith((HUB, LOCAL)):
        model = create_model(str(source))
        if not {"classes", "input"} <= model.about.keys():
            raise ValueError(
                f"predict: expected {str(source)!r} to state its classes and input, got neither; use isice push."
            )
        return _predictor(model, model.about["classes"], model.about["input"], device)
    trained = load_trained(source, which)
    return _predictor(trained.model, trained.classes, input_facts(trained.config.data), device)


def input_facts(config: DataConfig) -> dict[str, Any]:
    """Return channels, size, transform and normalisation of a network's input, for JSON."""
    info = info_in_use(config)
    return {
        "channels": info.channels,
        "image_size": info.image_size,
        "transform": info.transform,
        "mean": None if info.mean is None else list(info.mean),
        "std": None if info.std is None else list(info.std),
    }


def _predictor(model: Network, classes: Sequence[str], facts: Mapping[str, Any], device: str) -> Predictor:
    if facts["channels"] not in (1, 3):
        raise ValueError(
            f"predict: expected a network for grey or RGB images, got one for {facts['channels']} channels; "
            "call the network with tensors instead."
        )
    mean, std = (None if facts[name] is None else tuple(facts[name]) for name in ("mean", "std"))
    _, transform = create_transforms(facts["transform"], facts["image_size"], mean=mean, std=std)
    where = resolve_device(device)
    return Predictor(model.to(where).eval(), tuple(classes), facts["channels"], transform, where)
