"""Tables of linear classifiers on frozen features, from records of linear_probe.py."""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.pages import MISSING, ROOT, filled, read_results, table

from isice._specs import parse_spec

PAGE = ROOT / "docs" / "internals" / "linear_probe.md"
DATA = {"cub200": "CUB-200", "cars": "Stanford Cars", "pets": "Oxford-IIIT Pet", "flowers": "Oxford Flowers"}
NETWORKS = {"vgg16": "VGG-16", "tf_efficientnet_lite0": "EfficientNet-Lite0"}
DEFAULT = "partial_correlation(ridge=10)"
SQUARE_ROOT = "square roots of features"
# Groups that change the input or the start of a pooling.
VARIANTS = ("unit positions", SQUARE_ROOT, "random start")
COUNTS = ("images", "wins", "losses")  # against isqrt_cov, on the held-out images
Row = dict[str, Any]


def pages() -> dict[Path, str]:
    """Return the internals page with its tables."""
    tables = {"probe": probe(), "probe-data": by_setting(), "probe-roots": square_roots()}
    return {PAGE: filled(PAGE.read_text(encoding="utf-8"), tables)}


def probe() -> str:
    """Return the accuracy of all poolings on CUB-200 with VGG-16."""
    measures = ("accuracy", "leave_one_out")
    rows = [
        (_variant(row), *(f"{100 * row[name]:.1f}" for name in measures), _rounded(row.get("ridge")))
        for row in read_results("linear_probe")["rows"]
        if row["channels"] == 256 and row["seed"] == 0
    ]
    return table(["pooling", "held out, %", "leave-one-out, %", "ridge estimated"], rows)


def summary() -> str:
    """Return both poolings as shipped, their difference and the best ridge, by data and network."""
    rows = []
    for (data, network), found in _settings().items():
        ours, others = ([row for row in found if row["pooling"] == name] for name in (DEFAULT, "isqrt_cov"))
        ridges = {parse_spec(row["pooling"])[1]["ridge"]: row for row in found if _is_ridge(row)}
        best = (max(ridges, key=lambda r, name=name: ridges[r][name]) for name in ("leave_one_out", "accuracy"))
        means = (f"{100 * statistics.fmean(row['accuracy'] for row in rows):.1f}" for rows in (others, ours))
        images = f"{ours[0]['images']:,}"
        rows.append((f"{data}, {network}", images, *means, difference(ours), " / ".join(map(str, best))))
    for network in NETWORKS.values():
        pooled = _together(network)
        rows.append((f"all, {network}", f"{pooled[0]['images']:,}", "", "", difference(pooled), ""))
    header = ["features", "held out", "`isqrt_cov`, %", "`partial_correlation`, %", "difference", "best ridge"]
    return table(header, rows)


def by_setting() -> str:
    """Return accuracies and the difference to iSQRT-COV of every pooling, data and network."""
    rows = [
        (f"{data}, {network}", f"`{row['pooling']}`", f"{100 * row['accuracy']:.1f}",
         f"{100 * row['leave_one_out']:.1f}", difference([row]), _rounded(row.get("ridge")))
        for (data, network), found in _settings().items()
        for row in sorted(found, key=lambda row: row["pooling"] != "isqrt_cov")
        if row["seed"] == 0
    ]  # fmt: skip
    header = ["features", "pooling", "held out, %", "leave-one-out, %", "against `isqrt_cov`", "ridge estimated"]
    return table(header, rows)


def square_roots() -> str:
    """Return the mean accuracy over the reductions, with features and with their square roots."""
    rows = []
    for (data, network), found in _settings(variants=True).items():
        for pooling in ("isqrt_cov", DEFAULT):
            mine = [row for row in found if row["pooling"] == pooling]
            parts = [[row for row in mine if (row["group"] == SQUARE_ROOT) is rooted] for rooted in (False, True)]
            if parts[1]:
                before, after = (100 * statistics.fmean(row["accuracy"] for row in part) for part in parts)
                gain = f"{after - before:+.1f}".replace("-", "−")
                rows.append((f"{data}, {network}", f"`{pooling}`", f"{before:.1f}", f"{after:.1f}", gain))
    return table(["features", "pooling", "features, %", "square roots, %", "gain"], rows)


def _settings(*, variants: bool = False) -> dict[tuple[str, str], list[Row]]:
    """Return the rows of each data and network, in the order of the record."""
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in read_results("linear_probe_datasets")["rows"]:
        if variants or row["group"] not in VARIANTS:
            found[DATA[row["data"]], NETWORKS[row["network"]]].append(row)
    return found


def _together(network: str) -> list[Row]:
    """Return the counts of the default on all data of a network, for each common reduction."""
    parts = [
        {row["seed"]: row for row in rows if row["pooling"] == DEFAULT}
        for (_, name), rows in _settings().items()
        if name == network
    ]
    seeds = set.intersection(*(set(part) for part in parts))
    return [{key: sum(part[seed][key] for part in parts) for key in COUNTS} for seed in sorted(seeds)]


def _is_ridge(row: Row) -> bool:
    return row["group"] == "ridge" and row["seed"] == 0


def difference(rows: Iterable[Row]) -> str:
    """Return the mean difference over the reductions in points, with a paired 95 % interval.

    The reductions share the held-out images. Their standard errors are averaged, as if all their
    errors were common.
    """
    differences, errors = [], []
    for row in rows:
        images, wins, losses = (row[name] for name in COUNTS)
        differences.append((wins - losses) / images)
        errors.append(math.sqrt((wins + losses) / images - differences[-1] ** 2) / math.sqrt(images))
    mean, margin = 100 * statistics.fmean(differences), 196 * statistics.fmean(errors)
    text = f"{mean:+.1f} ({mean - margin:+.1f} to {mean + margin:+.1f})" if margin else MISSING
    return text.replace("-", "−")


def _variant(row: Row) -> str:
    """Return the pooling, and how its input or start differs."""
    return f"`{row['pooling']}`" + (f", {row['group']}" if row["group"] in VARIANTS else "")


def _rounded(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
