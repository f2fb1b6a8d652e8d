"""Attach a pooling to one small network of every family in timm, and make a training step.

Usage: nice python benchmarks/timm_architectures.py [--out FILE] [NAME ...]

A network counts as trained if the loss is finite, every parameter of the backbone has a finite
gradient, and one step of gradient descent changes the loss. Weights are random.
"""

import argparse
import gc
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import timm
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import isice
from benchmarks.measure import RESULTS, write_results

SIZE = 96  # pixels, where a network takes any size
CANDIDATES = 4  # of a family, whose parameters are counted
MOST_PARAMETERS = 60_000_000  # a family without a smaller network is left out
SMALL = (
    "atto",
    "femto",
    "pico",
    "nano",
    "xxs",
    "xxtiny",
    "mini",
    "tiny",
    "xs",
    "lite",
    "_s",
    "b0",
    "18",
    "_0",
    "small",
)
LARGE = ("giant", "huge", "large", "xl", "xxl", "base", "so400m", "gigantic", "enormous")


def smallest_of(family: str) -> str | None:
    """Return the smallest network of a timm module, among the names that sound small.

    None if it is too large to try.
    """
    names = timm.list_models(module=family, exclude_filters=["test_*"])
    by_name = sorted(names, key=lambda n: (any(w in n for w in LARGE), not any(w in n for w in SMALL), len(n), n))
    counts = {}
    for name in by_name[:CANDIDATES]:
        with torch.device("meta"):
            try:
                counts[name] = sum(p.numel() for p in timm.create_model(name).parameters())
            except Exception:
                counts[name] = None  # built from values, which the meta device has not
    known = {name: count for name, count in counts.items() if count}
    if not known:
        return next(iter(counts), None)
    smallest = min(known, key=known.__getitem__)
    return smallest if known[smallest] <= MOST_PARAMETERS else None


def try_one(name: str) -> dict[str, Any]:
    """Attach, train one step, and return what happened."""
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=3)
    row: dict[str, Any] = {"name": name, "parameters": sum(p.numel() for p in model.parameters())}
    try:
        network = isice.attach(model, "isqrt_cov", reduce=8).train()
    except (TypeError, ValueError) as error:
        return row | {"status": "refused", "message": str(error)}
    height, width = network.backbone.fixed_size or (SIZE, SIZE)
    x, target = torch.rand(2, 3, height, width), torch.tensor([0, 1])
    try:
        network(x)
    except ValueError:  # too small for its strides or windows
        height, width = network.backbone.built_for
        x = torch.rand(2, 3, height, width)
    row["size"] = [height, width]
    losses = []
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
    for _ in range(2):
        torch.manual_seed(1)  # the same dropout in both steps
        loss = nn.functional.cross_entropy(network(x), target)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        bad = [key for key, p in network.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
        if bad:
            return row | {"status": "failed", "message": f"no finite gradient of {', '.join(bad[:3])}"}
        optimizer.step()
    trains = all(torch.isfinite(torch.tensor(losses))) and losses[0] != losses[1]
    return row | {"status": "trained" if trains else "failed", "loss": losses}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS / "timm_architectures.json")
    parser.add_argument("names", nargs="*", help="networks; by default one of every family")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of few positions, which does not matter here
    rows = []
    for name in options.names or map(smallest_of, timm.list_modules()):
        if name is None:
            continue
        begin = time.perf_counter()
        try:
            row = try_one(name)
        except Exception as error:
            row = {"name": name, "status": "failed", "message": f"{type(error).__name__}: {error}"}
        rows.append(row)
        print(
            f"{name:40} {row['status']:8} {time.perf_counter() - begin:5.1f} s {row.get('message', '')[:120]}",
            flush=True,
        )
        gc.collect()
    title, command = "one network of every family in timm", "python benchmarks/timm_architectures.py"
    write_results(options.out, title, command, 0, torch.device("cpu"), rows)
    trained = sum(row["status"] == "trained" for row in rows)
    print(f"{trained} of {len(rows)} attach and train")


if __name__ == "__main__":
    main()
