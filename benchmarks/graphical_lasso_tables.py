"""The tables of docs/graphical_lasso.md, from the records that benchmarks/graphical_lasso.py leaves.

Usage:
    python -m benchmarks.graphical_lasso_tables

A missing figure is "—".
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import RESULTS
from benchmarks.pages import fill

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "graphical_lasso.md"
MISSING = "—"
TARGETS = (1e-4, 1e-7, None)


def tables() -> dict[str, str]:
    """Every generated part by the name of its marker."""
    cpu = _record("cpu")
    return {
        "environment": _environment(cpu),
        "sklearn": _ratios(cpu, TARGETS),
        "gglasso": _ratios(_record("gglasso"), TARGETS[:2]),
        "layer": _layer(_record("layer")),
        "gpu": _gpu(_record("gpu")),
    }


def _record(name: str) -> dict[str, Any]:
    path = RESULTS / f"graphical_lasso_{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"rows": []}


def _environment(record: dict[str, Any]) -> str:
    versions = record.get("versions", {})
    named = ", ".join(f"{name} {versions[name]}" for name in ("torch", "scikit-learn") if name in versions)
    return f"{record.get('hardware', MISSING)}; {named}; commit {record.get('commit') or MISSING}."


def _markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _ratios(record: dict[str, Any], targets: Sequence[float | None]) -> str:
    """How many times as fast as the peer: a row per kind and D, a column per λ, a number per target."""
    found = {(row["kind"], row["size"], row["sparsity"], row["target"]): _ratio(row) for row in record["rows"]}
    sparsities = sorted({key[2] for key in found}, reverse=True)
    rows = []
    for kind, size in dict.fromkeys(key[:2] for key in found):
        cells = [" · ".join(found.get((kind, size, lam, target), MISSING) for target in targets) for lam in sparsities]
        rows.append((kind, str(size), *cells))
    return _markdown(["matrices", "D", *(f"λ = {lam}" for lam in sparsities)], rows)


def _ratio(row: dict[str, Any]) -> str:
    number = f"{row['ratio']:.1f}" if row["ratio"] < 10 else f"{row['ratio']:.0f}"
    return number if row["theirs"]["reached"] else f"{number}*"


def _layer(record: dict[str, Any]) -> str:
    rows = []
    for row in record["rows"]:
        times = [
            f"{row[name]['forward_ms']:.1f} + {row[name]['backward_ms']:.1f} ms" for name in ("cvxpylayers", "ours")
        ]
        rows.append((str(row["size"]), *times, f"{row['difference']:.0e}"))
    return _markdown(["D", "cvxpylayers", "here", "difference of the gradients"], rows)


def _gpu(record: dict[str, Any]) -> str:
    rows = []
    for row in record["rows"]:
        times = [f"{row[f'{name}_ms']:.0f} ms" for name in ("forward", "forward_backward")]
        floats = " / ".join(f"{row[f'{name}_floats']:.1f}" for name in ("forward", "forward_backward"))
        ratio = f"{row['throughput_ratio']:.0f}" if "throughput_ratio" in row else MISSING
        cell = (row["matmul"], row["kind"], str(row["size"]), str(row["batch"]), str(row["sparsity"]))
        rows.append((*cell, *times, floats, str(row["n_iter"]), ratio))
    header = ["products", "matrices", "D", "batch", "λ", "forward", "with gradient", "D² floats", "iterations"]
    table = _markdown([*header, "throughput, × scikit-learn"], rows)
    return f"{record.get('hardware', MISSING)}, commit {record.get('commit') or MISSING}:\n\n{table}"


if __name__ == "__main__":
    fill(DOCUMENT, tables())
