"""Test images of a dataset in one row, for the figure of sample images."""

import io
from dataclasses import dataclass
from pathlib import Path

from ..._atomic import write_atomically
from ...records import SAMPLES_FILE, new_record, write_record
from ..job_configs import Job
from .dataset import DatasetConfig


@dataclass(frozen=True)
class SamplesConfig(DatasetConfig):
    """Dataset, its folder, and how many images of which height to show; ``seed`` draws them."""

    images: int = 8
    height: int = 128


def draw_samples(config: SamplesConfig, folder: Path, label: str, force: bool) -> None:
    """Write a row of test images of different classes to ``samples.png``, and a record."""
    import numpy as np
    from PIL import Image

    from ...data import dataset_info

    loaded = dataset_info(config.name).load(config.data)
    rng, labels = np.random.default_rng(config.seed), loaded.test.targets.numpy()
    classes = rng.permutation(np.unique(labels))[: config.images]
    chosen = [int(rng.choice(np.flatnonzero(labels == one))) for one in classes]
    row = []
    for index in chosen:
        pixels = loaded.test[index].movedim(0, -1).numpy()
        pixels = pixels if pixels.dtype == np.uint8 else (255 * pixels.clip(0, 1)).astype(np.uint8)
        image = Image.fromarray(pixels.squeeze()).convert("RGB")
        row.append(image.resize((max(round(image.width * config.height / image.height), 1), config.height)))
    strip = Image.new("RGB", (sum(image.width + 4 for image in row) - 4, config.height), "white")
    left = 0
    for image in row:
        strip.paste(image, (left, 0))
        left += image.width + 4
    folder.mkdir(parents=True, exist_ok=True)
    encoded = io.BytesIO()
    strip.save(encoded, "png")
    write_atomically(folder / SAMPLES_FILE, encoded.getvalue())
    shown = [{"index": index, "class": loaded.classes[labels[index]]} for index in chosen]
    write_record(folder, new_record(config, {}) | {"kind": "samples", "status": "finished", "shown": shown})


JOB = Job(SamplesConfig, run=draw_samples)
