"""Compare poolings on held-out training images, with the first three blocks of VGG-16 frozen.

The frozen blocks are computed once per image and mirror image, so a run of 16 epochs takes seconds.
Half of the training images of every class are trained on, the other half measures accuracy; the
test images are not read.

Usage: python benchmarks/frozen_blocks.py --data FOLDER --weights FILE [--seeds 0 1 2] [--out FILE]
       FOLDER holds train/<class>/*.jpg, FILE the features of VGG-16 in torchvision's names.
"""

import argparse
import math
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torchvision
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, interpolate

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.measure import RESULTS, write_results
from isice.models.reduce import Reduce
from isice.pooling import create_pooling

FROZEN, BLOCKS = 17, 30  # layers of torchvision's features: up to pool 3, and up to conv 5-3
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
PC = "partial_correlation"
DEFAULTS = {
    "channels": 256,
    "lr": 1.2e-4,
    "classifier_factor": 5.0,
    "reduce_factor": 1.0,
    "decay": 0.01,
    "smoothing": 0.1,
}
# Label → pooling and what differs from DEFAULTS.
SETTINGS: dict[str, tuple[str, dict[str, float]]] = {
    "iSQRT-COV": ("isqrt_cov", {}),
    "partial correlation": (PC, {}),
    "… centred": (f"{PC}(center=True)", {}),
    "… ridge 3, × 3": (f"{PC}(ridge=3, scale=3)", {}),
    "… ridge 30, × 10": (f"{PC}(ridge=30, scale=10)", {}),
    "… × 2.5": (f"{PC}(scale=2.5)", {}),
    "… and centred, concatenated": (f"{PC} + {PC}(center=True)", {}),
}
RECIPES: dict[str, dict[str, float]] = {
    "no label smoothing": {"smoothing": 0.0},
    "backbone rate 4e-5": {"lr": 4e-5, "classifier_factor": 15.0, "reduce_factor": 3.0},
    "backbone rate 3e-4": {"lr": 3e-4, "classifier_factor": 2.0},
    "weight decay 0.3": {"decay": 0.3},
    "512 channels": {"channels": 512},
}
for label, changes in RECIPES.items():
    wide = {"512 channels": f"{PC}(scale=7)"}.get(label, PC)
    SETTINGS |= {f"iSQRT-COV, {label}": ("isqrt_cov", changes), f"partial correlation, {label}": (wide, changes)}


class Features(NamedTuple):
    """Outputs of the frozen blocks, and labels."""

    train: Tensor
    mirrored: Tensor
    labels: Tensor
    val: Tensor
    val_labels: Tensor
    classes: int


class Images(NamedTuple):
    """Bytes (B, 3, H, W), labels, and which half of every class is held out."""

    pixels: Tensor
    labels: Tensor
    held_out: Tensor
    classes: int


def read_images(data: Path, size: int, classes: int | None = None) -> Images:
    """Decode the training images of the first classes, by default of all, and split them."""
    folders = sorted((data / "train").iterdir())[:classes]
    files = [(file, k) for k, folder in enumerate(folders) for file in sorted(folder.iterdir())]
    with ThreadPoolExecutor() as pool:
        pixels = torch.stack(list(pool.map(lambda item: decode(item[0], size), files)))
    labels = torch.tensor([k for _, k in files])
    generator, held_out = torch.Generator().manual_seed(123), torch.zeros(len(labels), dtype=torch.bool)
    for k in range(len(folders)):
        members = (labels == k).nonzero().flatten()
        held_out[members[torch.randperm(len(members), generator=generator)][: len(members) // 2]] = True
    return Images(pixels, labels, held_out, len(folders))


def load_features(args: argparse.Namespace, device: torch.device) -> Features:
    """Decode the training images and compute the frozen blocks."""
    pixels, labels, held_out, classes = read_images(args.data, args.size)
    frozen = blocks(args.weights)[:FROZEN].to(device, memory_format=torch.channels_last)
    train, val = pixels[~held_out], pixels[held_out]
    parts = [apply(frozen, part, device) for part in (train, train.flip(-1), val)]
    return Features(parts[0], parts[1], labels[~held_out].to(device), parts[2], labels[held_out].to(device), classes)


def decode(file: Path, size: int) -> Tensor:
    """Read an image and resize it to a square of ``size`` pixels."""
    image = torchvision.io.decode_jpeg(torchvision.io.read_file(str(file)), mode=torchvision.io.ImageReadMode.RGB)
    resized = interpolate(image[None].float(), (size, size), mode="bilinear", antialias=True)
    return resized.round().clamp(0, 255).to(torch.uint8)[0]


def blocks(weights: Path) -> nn.Sequential:
    """Return the convolutions of VGG-16 with the weights of a file."""
    features = torchvision.models.vgg16().features
    features.load_state_dict(
        {key.removeprefix("features."): value.float() for key, value in load_file(weights).items()}
    )
    return features


@torch.no_grad()
def apply(
    frozen: nn.Module, images: Tensor, device: torch.device, mean: Sequence[float] = MEAN, std: Sequence[float] = STD
) -> Tensor:
    """Compute the frozen blocks of bytes (B, 3, H, W) in bfloat16."""
    shift, factor = (255 * torch.tensor(values, device=device).view(1, 3, 1, 1) for values in (mean, std))
    found = []
    for part in images.split(100):
        x = ((part.to(device).float() - shift) / factor).contiguous(memory_format=torch.channels_last)
        with torch.autocast(device.type, torch.bfloat16):
            found.append(frozen(x).to(torch.bfloat16))
    return torch.cat(found)


def train(pooling: str, options: dict[str, float], data: Features, args: argparse.Namespace, seed: int) -> float:
    """Train the last two blocks and the head; return the accuracy on the held-out images."""
    torch.manual_seed(seed)
    device, channels = data.train.device, int(options["channels"])
    layer = create_pooling(pooling, channels)
    tail, reduce = blocks(args.weights)[FROZEN:BLOCKS].to(memory_format=torch.channels_last), Reduce(512, channels)
    classifier = nn.Linear(layer.out_features, data.classes)
    model = nn.ModuleList([tail, reduce, layer, classifier]).to(device)
    factors = ((tail, 1.0), (reduce, options["reduce_factor"]), (classifier, options["classifier_factor"]))
    groups = [{"params": list(module.parameters()), "lr": options["lr"] * factor} for module, factor in factors]
    optimizer = torch.optim.AdamW(groups, weight_decay=options["decay"])
    steps = len(data.train) // args.batch
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step / steps, args.epochs, 1 / steps))

    def logits(x: Tensor) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16):
            features = reduce(tail(x))
        vectors: Tensor = classifier(layer(features.float()))
        return vectors

    generator = torch.Generator(device=device).manual_seed(seed)
    for _ in range(args.epochs):
        model.train()
        for rows in torch.randperm(len(data.train), generator=generator, device=device).split(args.batch)[:steps]:
            flip = torch.rand(len(rows), 1, 1, 1, generator=generator, device=device) < 0.5
            output = logits(torch.where(flip, data.mirrored[rows], data.train[rows]))
            loss = cross_entropy(output, data.labels[rows], label_smoothing=options["smoothing"])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
    model.eval()
    with torch.no_grad():
        right = [logits(x).argmax(1) == y for x, y in zip(data.val.split(250), data.val_labels.split(250), strict=True)]
    return torch.cat(right).float().mean().item()


def rate(epoch: float, epochs: int, first: float) -> float:
    """Return the factor of the learning rate: one epoch of warm-up, then a cosine."""
    return epoch + first if epoch < 1 else 0.5 * (1 + math.cos(math.pi * (epoch - 1) / max(epochs - 1, 1)))


def main() -> int:
    """Write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=RESULTS / "frozen_blocks.json")
    args = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    data = load_features(args, torch.device(args.device))
    rows: list[dict[str, Any]] = []
    for label in args.only:
        pooling, changes = SETTINGS[label]
        for seed in args.seeds:
            start = time.perf_counter()
            accuracy = train(pooling, DEFAULTS | changes, data, args, seed)
            seconds = time.perf_counter() - start
            rows.append({"label": label, "pooling": pooling, **changes, "seed": seed, "accuracy": accuracy})
            print(
                f"{label}, seed {seed}: {100 * accuracy:.2f} % of {len(data.val)} images, {seconds:.0f} s", flush=True
            )
    title = f"poolings on held-out training images, blocks 1-3 of VGG-16 frozen, {args.size} px, {args.epochs} epochs"
    command = (
        f"python benchmarks/frozen_blocks.py --data FOLDER --weights FILE --seeds {' '.join(map(str, args.seeds))}"
    )
    write_results(args.out, title, command, args.seeds[0], torch.device(args.device), rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
