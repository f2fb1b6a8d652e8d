"""Explain images with trained runs side by side."""

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torchvision.transforms import v2

from .._checks import check_int, first_of, suggestion
from .._specs import spec_name
from ..config import DataConfig, load_config
from ..data import load_splits
from ..data.images import read_image
from ..data.splits import info_in_use
from ..data.transforms import create_transforms
from ..explanations import ExplainedImage, Explanation
from ..train import Trained, load_trained
from .graph import channel_graphs
from .maps import class_maps, mean_maps

_TEST = "test:"


def explain_runs(
    folders: Sequence[str | Path],
    images: Sequence[str | Path],
    *,
    target: str | None = None,
    which: str = "best",
    method: str = "centered",
    n_pairs: int = 6,
) -> list[ExplainedImage]:
    """Compute heat maps, class maps and channel graphs of images.

    :func:`isice.report.explain_page.write_explanations` draws them.

    Args:
        folders: Run folders; their networks are shown side by side.
        images: Image files, or ``"test:7"`` for a test image of the first run's dataset.
        target: Name of the class to explain; by default the predicted class of each network.
        which: The checkpoint, ``"best"`` or ``"last"``.
        method: Method of the class maps, see :func:`isice.explain.class_maps`.
        n_pairs: Channel pairs per graph.
    """
    if not folders or not images:
        raise ValueError(
            f"explain: expected at least one run folder and one image, got {len(folders)} and {len(images)}; "
            f"an image is a file, or {_TEST}0 for the first test image."
        )
    for source in images:
        if not str(source).startswith(_TEST) and not Path(source).is_file():
            raise FileNotFoundError(
                f"explain: expected a run folder, an image file or {_TEST}NUMBER, got {str(source)!r}, "
                "which does not exist."
            )
    runs = _labelled([(Path(folder), load_trained(folder, which)) for folder in folders])
    infos = {label: info_in_use(trained.config.data) for label, trained in runs.items()}
    views = {label: (info.transform, info.image_size) for label, info in infos.items()}
    if len(set(views.values())) > 1:
        raise ValueError(
            f"explain: expected runs with the same data.transform and data.image_size, got {views}; "
            "explain them separately."
        )
    explained = []
    for source in images:
        picture, title = _read(next(iter(runs.values())).config.data, source)
        seen = {
            label: explain_image(trained, picture, target=target, method=method, n_pairs=n_pairs)
            for label, trained in runs.items()
        }
        explained.append(ExplainedImage(str(source), title, _displayed(runs, picture), seen))
    return explained


def explain_samples(folders: Sequence[str | Path], count: int = 2) -> list[ExplainedImage]:
    """Explain ``count`` test images, evenly spaced over the split, as :func:`explain_runs` does.

    Only runs with the dataset of the first one are used.
    """
    check_int("explain", "count", count, minimum=1)
    configs = {Path(folder): load_config(Path(folder) / "config.toml").data for folder in folders}
    data = {folder: replace(config, download=False) for folder, config in configs.items()}
    if not data:
        raise ValueError("explain: expected finished training runs with their checkpoints, got none.")
    first = next(iter(data.values()))
    key = attrgetter("name", "partition", "transform", "image_size")
    alike = [folder for folder, config in data.items() if key(config) == key(first)]
    size = len(load_splits(first).test)
    images = [f"{_TEST}{size * number // min(count, size)}" for number in range(min(count, size))]
    return explain_runs(alike, images)


def explain_image(
    trained: Trained, picture: Tensor, *, target: str | None = None, method: str = "centered", n_pairs: int = 6
) -> Explanation:
    """Explain one image (C, H, W), bytes or values in [0, 1], with one trained network."""
    model = trained.model
    image = _network_input(trained, picture)[1].unsqueeze(0)
    number = None if target is None else [_class_number(trained.classes, target)]
    maps, classes = class_maps(model, image, number, method=method)
    with torch.no_grad():
        scores = model(image)[0].softmax(dim=0)
    return Explanation(
        target=trained.classes[int(classes[0])],
        probability=float(scores[int(classes[0])]),
        predicted=trained.classes[int(scores.argmax())],
        heat=mean_maps(model, image)[0],
        class_map=maps[0],
        graph=channel_graphs(model, image, n_pairs=n_pairs)[0],
    )


def _labelled(runs: list[tuple[Path, Trained]]) -> dict[str, Trained]:
    """Label runs by the name of their pooling, with the folder where that is not unique."""
    names = [spec_name(trained.config.model.pooling) for _, trained in runs]
    labels = [
        name if names.count(name) == 1 else f"{name} ({path.name})" for name, (path, _) in zip(names, runs, strict=True)
    ]
    if len(set(labels)) < len(labels):
        raise ValueError(f"explain: expected distinct runs, got {', '.join(str(path) for path, _ in runs)}.")
    return {label: trained for label, (_, trained) in zip(labels, runs, strict=True)}


def _read(config: DataConfig, source: str | Path) -> tuple[Tensor, str]:
    """Read an image file or a test image, without transforms; return it with its title."""
    if not str(source).startswith(_TEST):
        return read_image(source), Path(source).name
    number = str(source).removeprefix(_TEST)
    splits = load_splits(config)
    split = splits.test
    if not number.isdecimal() or int(number) >= len(split):
        raise ValueError(f"explain: expected {_TEST}0 … {_TEST}{len(split) - 1} for a test image, got {str(source)!r}.")
    true = splits.info.classes[int(split.targets[int(number)])]
    return split.source[int(split.indices[int(number)])], f"test image {number}, true class {true}"


def _network_input(trained: Trained, picture: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cropped and resized image, and the network's input made from it."""
    info = info_in_use(trained.config.data)
    if info.channels == 1 and len(picture) == 3:
        picture = v2.functional.rgb_to_grayscale(picture)
    if len(picture) != info.channels:
        raise ValueError(
            f"explain: expected an image of {info.channels} channels, got {len(picture)}; "
            f"choose a test image, such as {_TEST}0."
        )
    transform = create_transforms(info.transform, info.image_size, mean=info.mean, std=info.std)[1]
    prepared = picture if transform.prepare is None else transform.prepare(picture)
    return prepared, transform.augmented(prepared)


def _displayed(runs: dict[str, Trained], picture: Tensor) -> np.ndarray:
    """Return the input of the first network before normalisation: (H, W, 3), values in [0, 1]."""
    prepared = _network_input(next(iter(runs.values())), picture)[0]
    pixels = v2.functional.to_dtype(prepared, torch.float32, scale=True)
    if len(pixels) not in (1, 3):
        pixels = pixels.mean(dim=0, keepdim=True)
    if pixels.min() < 0 or pixels.max() > 1:
        pixels = (pixels - pixels.min()) / (pixels.max() - pixels.min())
    return np.asarray(pixels.expand(3, -1, -1).movedim(0, -1))


def _class_number(classes: tuple[str, ...], name: str) -> int:
    if name not in classes:
        known, hint = first_of(classes, 10), suggestion(name, classes)
        raise ValueError(f"explain: expected one of the classes {known}, got {name!r}.{hint}")
    return classes.index(name)
