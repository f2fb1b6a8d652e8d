"""Tables of the graphical lasso pages, from the records of benchmarks/graphical_lasso.py."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.pages import MISSING, ROOT, filled, read_results

GUIDE = ROOT / "docs" / "graphical_lasso.md"
INTERNALS = ROOT / "docs" / "internals" / "graphical_lasso.md"
SIZES = (32, 64, 128, 256)
_PASSES = ("forward", "forward_backward")


def pages() -> dict[Path, str]:
    """Return the user's page and the internals page with their tables."""
    cpu, gpu = _record("cpu"), _record("gpu")
    measured = {
        "environment": _environment(_record("peers")),
        "peers": _peers(_record("peers")),
        "paths": _paths(_record("path")),
        "memory": _memory(_record("memory"), read_results("estimator_import")),
        "layer": _layer(_record("layer")),
        "gpu": _gpu(gpu),
    }
    return {
        GUIDE: filled(GUIDE.read_text(encoding="utf-8"), {"times": _times(cpu, gpu)}),
        INTERNALS: filled(INTERNALS.read_text(encoding="utf-8"), measured),
    }


def _record(name: str) -> dict[str, Any]:
    return read_results(f"graphical_lasso_{name}")


def _markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _environment(record: dict[str, Any]) -> str:
    versions = record.get("versions", {})
    packages = [name for name in ("torch", "scikit-learn", "gglasso", "skglm") if name in versions]
    named = ", ".join(f"{name} {versions[name]}" for name in packages)
    return f"{record.get('hardware', MISSING)}; {named}; commit {record.get('commit') or MISSING}."


def _times(cpu: dict[str, Any], gpu: dict[str, Any]) -> str:
    """Milliseconds by D on rectified features at λ = 0.1, solved to 1e-4·D."""
    cpu_rows = {row["size"]: row for row in cpu["rows"] if _is_typical(row) and row["target"] == 1e-4}
    typical = [row for row in gpu["rows"] if _is_typical(row) and row["matmul"] == "highest"]
    gpu_rows = {row["size"]: row for row in typical if row["batch"] == 128}
    rows = []
    for size in SIZES:
        single = f"{cpu_rows[size]['ours']['ms']:.1f}" if size in cpu_rows else MISSING
        batch = [f"{gpu_rows[size][f'{name}_ms']:.0f}" if size in gpu_rows else MISSING for name in _PASSES]
        rows.append((str(size), single, *batch))
    gpu_name = gpu.get("hardware", "GPU")
    header = ["D", "CPU, one thread: ms per matrix", f"{gpu_name}: ms for 128 matrices", "with gradient"]
    return _markdown(header, rows)


def _is_typical(row: dict[str, Any]) -> bool:
    return row["kind"] == "relu" and row["sparsity"] == 0.1


def _peers(record: dict[str, Any]) -> str:
    """Return milliseconds per matrix of every solver, and ours in a batch, by cell and target."""
    names = list(record["rows"][0]["solvers"])
    rows = []
    for row in record["rows"]:
        fastest = min(found["ms"] for found in row["solvers"].values() if found["reached"])
        cells = [_solver(row["solvers"].get(name), fastest, row["limit_s"]) for name in names]
        cell = (row["kind"], str(row["size"]), str(row["sparsity"]), f"{row['target']:.0e}")
        rows.append((*cell, *cells, MISSING if row["batch_ms"] is None else _milliseconds(row["batch_ms"], 0.0)))
    return _markdown(["matrices", "D", "λ", "target / D", *names, "isice, per matrix of a batch"], rows)


def _solver(found: dict[str, Any] | None, fastest: float, limit: float) -> str:
    if found is None:
        return MISSING
    if not found["reached"]:
        return f"> {limit:.0f} s" if found["ms"] is None else "missed"
    return _milliseconds(found["ms"], fastest)


def _milliseconds(value: float, fastest: float) -> str:
    text = f"{value:.1f}" if value < 10 else f"{value:.0f}"
    return f"**{text}**" if value == fastest else text


def _paths(record: dict[str, Any]) -> str:
    """Return milliseconds of twenty λ by cold starts, in one batch, along the path, and of QUIC."""
    rows = []
    for row in record["rows"]:
        times = {name: row.get(f"{name}_ms") for name in ("cold", "batch", "path", "quic")}
        fastest = min(value for value in times.values() if value is not None)
        cells = [MISSING if value is None else _milliseconds(value, fastest) for value in times.values()]
        iterations = f"{row['cold_iterations']} / {row['path_iterations']}"
        rows.append((row["kind"], str(row["size"]), f"{row['tol']:.0e}", *cells, f"{row['ratio']:.1f}", iterations))
    header = ["matrices", "D", "tol", "cold", "batch", "path", "QUIC's path", "cold / path", "iterations, cold / path"]
    return f"Commit {record.get('commit') or MISSING}:\n\n{_markdown(header, rows)}"


def _memory(memory: dict[str, Any], imports: dict[str, Any]) -> str:
    """Return the memory of imports and selections, and the CPU time of imports."""
    rows = [
        (f"`import {row['import']}`", f"{row['peak_bytes'] / 1e9:.2f}", f"{row['cpu_seconds']:.1f}")
        for row in imports["rows"]
    ]
    for row in memory["rows"]:
        name = f"`selection={row['selection']!r}`, D = {row['size']}"
        rows.append((name, f"{row['peak_bytes'] / 1e9:.2f}", f"{row['cpu_seconds']:.0f}"))
    commits = f"Commits {imports.get('commit') or MISSING} (imports) and {memory.get('commit') or MISSING}"
    return f"{commits}:\n\n{_markdown(['process', 'peak GB', 'CPU s'], rows)}"


def _layer(record: dict[str, Any]) -> str:
    rows = []
    for row in record["rows"]:
        times = [
            f"{row[name]['forward_ms']:.1f} + {row[name]['backward_ms']:.1f} ms" for name in ("cvxpylayers", "ours")
        ]
        rows.append((str(row["size"]), *times, f"{row['difference']:.0e}"))
    return _markdown(["D", "cvxpylayers", "isice", "difference of the gradients"], rows)


def _gpu(record: dict[str, Any]) -> str:
    rows = []
    for row in record["rows"]:
        times = [f"{row[f'{name}_ms']:.0f} ms" for name in _PASSES]
        floats = " / ".join(f"{row[f'{name}_floats']:.1f}" for name in _PASSES)
        ratio = f"{row['throughput_ratio']:.0f}" if "throughput_ratio" in row else MISSING
        cell = (row["matmul"], row["kind"], str(row["size"]), str(row["batch"]), str(row["sparsity"]))
        rows.append((*cell, *times, floats, str(row["n_iter"]), ratio))
    header = ["matmul precision", "matrices", "D", "batch", "λ", "forward", "with gradient", "D² floats", "iterations"]
    table = _markdown([*header, "throughput, × scikit-learn"], rows)
    return f"{record.get('hardware', MISSING)}, commit {record.get('commit') or MISSING}:\n\n{table}"
