"""Compare poolings by a linear classifier on frozen features, on held-out training images.

The features are the feature map of a timm network, reduced by a 1×1 convolution with BatchNorm and
ReLU at its random start. The classifier is ridge regression onto one-hot labels; leave-one-out on
the training half chooses its penalty. No learning rate, schedule or scale of the output enters, so
the accuracy tells how well a function of the features separates the classes before anything is
trained. Half of the training images of every class are held out; the test images are not read.

Usage: python benchmarks/linear_probe.py --data FOLDER --weights FILE [--network vgg16]
       [--name cub200] [--seeds 0 1 2] [--only GROUP ...] [--poolings SPEC ...]
       FOLDER holds train/<class>/*.jpg, FILE the weights of the network in timm's names, the
       classifier may be missing. A name is that of the data in the record, a seed that of the
       reduction. --append keeps the rows of other data, networks, poolings, channels and seeds.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import timm
import torch
from safetensors.torch import load_file
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.frozen_blocks import apply, read_images
from benchmarks.measure import RESULTS, write_results
from isice.models.backbone import Backbone
from isice.models.reduce import Reduce
from isice.ops.signed_sqrt import l2_normalize
from isice.pooling import create_pooling
from isice.records import commit

REFERENCE = "isqrt_cov"  # the other poolings are compared with it, image by image
PC, CENTRED = "partial_correlation", "partial_correlation(center=True, {})"
KP = "kernel_pooling"
UNIT, SQUARE_ROOT, RANDOM = "unit positions", "square roots of features", "random start"
RIDGES = (0.1, 0.3, 1, 3, 10, 30, 100)
RULES = ("ledoit_wolf", "oas", "schaefer_strimmer")
# Group → poolings. A spectral map of the centred covariance is the inverse without the division.
# UNIT normalises the features of every position to unit length; SQUARE_ROOT takes the root of every
# feature; RANDOM does not start from data.
GROUPS: dict[str, tuple[str, ...]] = {
    "baselines": ("gap", "covariance", "isqrt_cov", "precision", "isice", "isice(ridge=1)"),
    "ridge": tuple(f"{PC}(ridge={r})" for r in RIDGES),
    "centred": tuple(CENTRED.format(f"ridge={r}") for r in RIDGES),
    "rule": tuple(CENTRED.format(f"ridge='{rule}'") for rule in RULES),
    "map": (
        *(f"spectral_map(ridge={r})" for r in (1, 10, 30)),
        "spectral_map(ridge=10, kind='log')",
        "spectral_map(ridge=10, power=0.5)",
        "spectral_map(ridge=10, normalize='correlation')",
    ),
    "other methods of Table 1": (
        *("bilinear", "compact_bilinear", "netvlad", "netfv", "kernel_pooling", "hihca", "smso(batch_norm=True)"),
        *("mpn_cov", "improved_bilinear", "tkpf", "run", "deep_cov", "deep_kspd", "fcbn"),
    ),
    "kernel pooling": (f"{KP}(order=2)", f"{KP}(order=2, normalize_input=False)", f"{KP}(normalize_input=False)"),
    UNIT: ("gap", "covariance", "bilinear", "compact_bilinear"),
    SQUARE_ROOT: ("gap", "covariance", "isqrt_cov", f"{PC}(ridge=10)"),
    RANDOM: ("netvlad", "netfv"),
    "sums": (
        "isqrt_cov(standardize=True) + partial_correlation(standardize=True)",
        "partial_correlation(standardize=True) + partial_correlation(standardize=True, center=True)",
        "gap + partial_correlation",
    ),
}
PENALTIES = torch.logspace(-4, 1, 11, dtype=torch.float64)  # of the mean eigenvalue of the Gram matrix
CHUNK = 50  # images pooled at a time


class Data(NamedTuple):
    """Features (B, C, H, W) in bfloat16, labels, and the half held out."""

    features: Tensor
    labels: Tensor
    held_out: Tensor


def load(args: argparse.Namespace) -> Data:
    """Decode the training images and compute the convolutions, or read them from the cache."""
    if args.cache is not None and args.cache.exists():
        return Data(**torch.load(args.cache))
    images = read_images(args.data, args.size, args.classes)
    network = backbone(args.network, args.weights)
    mean, std = (network.model.pretrained_cfg[name] for name in ("mean", "std"))
    features = apply(network, images.pixels, torch.device("cpu"), mean, std)
    data = Data(features.contiguous(), images.labels, images.held_out)
    if args.cache is not None:
        torch.save(data._asdict(), args.cache)
    return data


def backbone(name: str, weights: Path) -> Backbone:
    """Return a network of timm without pooling and classifier, with the weights of a file."""
    model = timm.create_model(name)
    missing = model.load_state_dict(load_file(weights), strict=False).missing_keys
    network = Backbone(model)
    if absent := sorted({*missing} & {*network.model.state_dict()}):
        raise ValueError(f"linear_probe: expected the weights of {name}, got a file without {absent[0]}.")
    return network.eval().to(memory_format=torch.channels_last)


@torch.no_grad()
def reduced(data: Data, channels: int, seed: int) -> Tensor:
    """Return features (B, channels, H, W) after the reduction at its start."""
    torch.manual_seed(seed)
    reduce = Reduce(data.features.shape[1], channels)
    reduce[1].momentum = None  # statistics of the whole training half
    for part in data.features[~data.held_out].split(CHUNK):
        reduce(part.float())
    reduce.eval()
    return torch.cat([reduce(part.float()).bfloat16() for part in data.features.split(CHUNK)])


@torch.no_grad()
def pooled(group: str, pooling: str, features: Tensor, held_out: Tensor) -> tuple[Tensor, dict[str, float]]:
    """Return the vectors (B, F) of a pooling, and the mean of the ridges that a rule estimates."""
    layer = create_pooling(pooling, features.shape[1]).eval()
    if group != RANDOM:
        layer.init_from(features[~held_out][:256].float())
    vectors, ridges = [], []
    for part in features.split(CHUNK):
        x = part.float()
        x = l2_normalize(x, dim=1) if group == UNIT else x.sqrt() if group == SQUARE_ROOT else x
        vectors.append(layer(x))
        if isinstance(getattr(layer, "ridge", None), str):
            ridges.append(layer.ridge_of(x).flatten())
    return torch.cat(vectors), {"ridge": float(torch.cat(ridges).mean())} if ridges else {}


def probe(vectors: Tensor, labels: Tensor, held_out: Tensor) -> tuple[dict[str, float], Tensor]:
    """Return accuracies and penalty, and which images of the held-out half are classified right.

    Leave-one-out on the other half chooses the penalty.
    """
    train, val = vectors[~held_out], vectors[held_out]
    mean = train.mean(0)
    train, val = train - mean, val - mean
    gram, cross = (train @ train.T).double(), (val @ train.T).double()
    gram -= gram.mean(0)  # rounding errors of float32 would count at a small penalty
    gram -= gram.mean(1, keepdim=True)
    target = torch.nn.functional.one_hot(labels[~held_out]).double()
    average = target.mean(0)
    values, basis = torch.linalg.eigh(gram)
    values, projected = values.clamp(min=0), basis.T @ (target - average)
    best, right = {"leave_one_out": -1.0}, torch.zeros(0)
    for penalty in PENALTIES * values.mean():
        weights = (values + penalty).reciprocal()
        coefficients = basis @ (weights[:, None] * projected)
        # Of I minus the hat matrix, over the penalty; the intercept takes 1/n off its diagonal.
        kept = basis.square() @ weights - 1 / (len(target) * penalty)
        left_out = target - coefficients / kept[:, None]
        score = share(left_out.argmax(1) == labels[~held_out])
        if score > best["leave_one_out"]:
            right = (cross @ coefficients + average).argmax(1) == labels[held_out]
            best = {"leave_one_out": score, "penalty": float(penalty / values.mean()), "accuracy": share(right)}
    return best, right


def share(right: Tensor) -> float:
    return float(right.double().mean())


def compared(right: Tensor, reference: Tensor) -> dict[str, int]:
    """Return how many images only this pooling classifies right, and how many only the other."""
    wins, losses = (right & ~reference).sum(), (reference & ~right).sum()
    return {"images": len(right), "wins": int(wins), "losses": int(losses)}


def chosen(groups: list[str], poolings: list[str] | None) -> list[tuple[str, str]]:
    """Return groups and poolings to run, first the one that the others are compared with."""
    first = ("baselines", REFERENCE)
    pairs = [(group, pooling) for group in groups for pooling in GROUPS[group]]
    return [first, *(pair for pair in pairs if pair != first and pair[1] in (poolings or pair))]


def main() -> int:
    """Write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--network", default="vgg16")
    parser.add_argument("--name", default="cub200")
    parser.add_argument("--only", nargs="+", choices=list(GROUPS), default=list(GROUPS))
    parser.add_argument("--poolings", nargs="+", help="of these groups; all by default")
    parser.add_argument("--channels", nargs="+", type=int, default=[256])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--classes", type=int, help="use the first of them; all by default")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--cache", type=Path, help="file to keep the features in")
    parser.add_argument("--append", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS / "linear_probe.json")
    args = parser.parse_args()
    data = load(args)
    rows: list[dict[str, Any]] = json.loads(args.out.read_text(encoding="utf-8"))["rows"] if args.append else []
    for channels in args.channels:
        for seed in args.seeds:
            features = reduced(data, channels, seed)
            for group, pooling in chosen(args.only, args.poolings):
                start = time.perf_counter()
                key = {"data": args.name, "network": args.network, "group": group, "pooling": pooling}
                key |= {"channels": channels, "seed": seed}
                rows = [row for row in rows if not key.items() <= row.items()]
                vectors, found = pooled(group, pooling, features, data.held_out)
                found |= {"std": float(vectors.var(dim=0).mean().sqrt()), "commit": commit()}
                found["classes"] = int(data.labels.max()) + 1
                best, right = probe(vectors, data.labels, data.held_out)
                if (group, pooling) == ("baselines", REFERENCE):
                    reference = right
                rows.append(key | found | best | compared(right, reference))
                del vectors  # release its memory
                print(rows[-1], f"{time.perf_counter() - start:.0f} s", flush=True)
                title = f"linear classifier on frozen features, held-out training images, {args.size} px"
                command = "python benchmarks/linear_probe.py --data FOLDER --weights FILE"
                command += f" --network {args.network} --name {args.name}"
                write_results(args.out, title, command, seed, torch.device("cpu"), rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
