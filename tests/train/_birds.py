"""A folder of small images whose classes differ in colour, and a run of about a second on it."""

from pathlib import Path

import numpy as np
from PIL import Image

from isice import create_model
from isice.config import RunConfig, override
from isice.train import train_run
from isice.train.checkpoint import save_checkpoint

CLASSES = ("crow", "finch", "heron", "robin", "wren")
COLOURS = ((20, 20, 20), (220, 200, 40), (60, 90, 200), (210, 60, 40), (110, 180, 90))


def make_pictures(root: Path, *, train: int = 6, test: int = 4, classes: int = 5) -> Path:
    """Write ``root/{train,val,test}/<class>/<n>.png``: 12×12 pixels around the class's colour."""
    rng = np.random.default_rng(0)
    for part, count in (("train", train), ("val", 2), ("test", test)):
        for name, colour in zip(CLASSES[:classes], COLOURS, strict=False):
            folder = root / part / name
            folder.mkdir(parents=True)
            for number in range(count):
                pixels = np.clip(rng.normal(colour, 30, (12, 12, 3)), 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{number}.png")
    return root


def config(root: Path, *settings: str) -> RunConfig:
    """Return the config of a run on the images."""
    return override(
        RunConfig(),
        [
            "data.name=folder",
            f"data.root={root}",
            "data.image_size=8",
            "data.batch_size=10",
            "model.pooling=gap",
            "model.reduce=8",
            "optim.epochs=6",
            "optim.lr=0.02",
            "optim.schedule=constant",
            "device=cpu",
            "threads=1",
            "tensorboard=false",
            *settings,
        ],
    )


def make_run(folder: Path, *settings: str) -> Path:
    """Train ``folder/run`` on the images in ``folder/pictures``."""
    pictures = folder / "pictures"
    if not pictures.is_dir():
        make_pictures(pictures)
    train_run(config(pictures, *settings), folder / "run")
    return folder / "run"


def make_untrained(folder: Path, data: str, *, in_chans: int, num_classes: int) -> Path:
    """Write a run folder with nothing but the checkpoint of an untrained network."""
    run = override(RunConfig(), [f"data.name={data}", "model.pooling=gap", "model.reduce=4", "threads=1"])
    model = create_model("small_cnn", pooling="gap", num_classes=num_classes, reduce=4, in_chans=in_chans)
    classes = tuple(str(number) for number in range(num_classes))
    save_checkpoint(folder, "best", config=run, classes=classes, model=model, epoch=1, step=0)
    return folder
