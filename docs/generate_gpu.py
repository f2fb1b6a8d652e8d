"""Tables of the GPU pages, from records of {gpu_speed,training_step,sustained,cpu_products}.py."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.pages import MISSING, ROOT, filled, provenance, read_results, table

from isice._specs import parse_spec

GUIDE = ROOT / "docs" / "gpu.md"
INTERNALS = ROOT / "docs" / "internals" / "gpu_measurements.md"
NAMES = {
    **{"isice": "iSICE", "isqrt_cov": "iSQRT-COV", "precision": "Precision Ω", "isice_mlp": "iSICE+MLP", "gap": "GAP"},
    "partial_correlation": "partial correlation",
}
DEFAULT = "partial_correlation"  # measured by later records
MAIN = (128, 256)  # batch and channels of the main shape
MODES = ("highest", "high", "medium")
Row = dict[str, Any]


def pages() -> dict[Path, str]:
    """Return the user's page and the internals page with their tables."""
    names = ("gpu_speed_h200", "training_step_h200", "sustained_h200", "cpu_products")
    speed, step, sustained, cpu = (read_results(name) for name in names)
    again, sice = read_results("gpu_speed_h200_rerun"), read_results("sice_layer_h200")
    later, heads = read_results("training_step_partial_correlation_h200"), read_results("heads_h200_batch128")
    layers = [row for row in speed["rows"] if row["part"] == "layer"]
    used = {
        "step": _and_default(_with_facts(_step([*step["rows"], *_default(later, "head")]), step), later),
        "summary": _and_default(_with_facts(_summary(layers, _default(heads, "name")), speed), heads),
    }
    measured = {
        "layers": _with_facts(_layers(layers), speed),
        "sustained": _with_facts(_sustained(sustained["rows"]), sustained),
        "memory": _memory(layers),
        "bf16": _bf16(layers),
        "accuracy": _accuracy(layers),
        "limits": _limits(speed["rows"]),
        "again": _with_facts(_again(layers, again["rows"]), again),
        "sice": _with_facts(_sice(sice["rows"]), sice),
        "cpu": _with_facts(_cpu(cpu["rows"]), cpu),
    }
    return {
        GUIDE: filled(GUIDE.read_text(encoding="utf-8"), used),
        INTERNALS: filled(INTERNALS.read_text(encoding="utf-8"), measured),
    }


def _with_facts(table: str, record: dict[str, Any]) -> str:
    """Return the table followed by machine, version, commit and command."""
    return f"{table}\n\n{provenance(record)}"


def _default(record: dict[str, Any], key: str) -> list[Row]:
    return [row for row in record["rows"] if row[key] == DEFAULT]


def _and_default(text: str, record: dict[str, Any]) -> str:
    """Return the text followed by the origin of the row of the default pooling."""
    return f"{text}\n\nPartial correlation: {provenance(record)}"


def _find(rows: Iterable[Row], **wanted: Any) -> Row | None:
    return next((row for row in rows if all(row.get(key) == value for key, value in wanted.items())), None)


def _cell(row: Row | None, key: str, form: str = ".1f") -> str:
    value = None if row is None else row.get(key)
    return MISSING if value is None else f"{value:{form}}"


def _pair(row: Row | None, first: str, second: str, form: str) -> str:
    cells = _cell(row, first, form), _cell(row, second, form)
    return MISSING if cells == (MISSING, MISSING) else " / ".join(cells)


def _shapes(rows: list[Row]) -> list[tuple[int, int, int]]:
    return list(dict.fromkeys((row["batch"], row["channels"], row["side"]) for row in rows))


def _heads(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(row["head"] for row in rows))


def _step(rows: list[Row]) -> str:
    body = []
    for head in _heads(rows):
        high, medium = (_find(rows, head=head, mode=mode) for mode in ("high", "medium"))
        times = [_cell(high, "step_ms"), _cell(high, "ratio_to_gap", ".3f")]
        times += [_cell(medium, "step_ms"), _cell(medium, "ratio_to_gap", ".3f"), _cell(high, "peak_mib", ",.0f")]
        body.append((NAMES.get(head, head), *times))
    return table(("pooling", "high (ms)", "× GAP", "medium (ms)", "× GAP", "peak MiB"), body)


def _summary(rows: list[Row], later: list[Row]) -> str:
    """Return times of PyTorch and the kernels, and peak memory, for the main shape.

    ``later`` are rows of benchmarks/heads.py, which measures the accurate kernels only.
    """
    body = []
    plain = [row for row in rows if (row["batch"], row["channels"], row["dtype"]) == (*MAIN, "float32")]
    for head in _heads(plain):
        wanted = (("torch", "high"), ("auto", "high"), ("auto", "medium"))
        found = [_find(plain, head=head, backend=backend, mode=mode) for backend, mode in wanted]
        times = [_pair(row, "forward_ms", "forward_backward_ms", ".2f") for row in found]
        error = _pair(found[1], "error", "median_gradient_error", ".0e")
        body.append((NAMES[head], *times, _cell(found[1], "peak_mib", ",.0f"), error))
    for row in later:
        time, memory = _pair(row, "forward_ms", "forward_backward_ms", ".2f"), _cell(row, "peak_mib", ",.0f")
        body.append((NAMES[row["name"]], MISSING, time, MISSING, memory, MISSING))
    columns = ("PyTorch, TF32 (ms)", "kernels, high (ms)", "kernels, medium (ms)", "peak, high (MiB)", "error, high")
    return table(("layer", *columns), body)


def _layers(rows: list[Row]) -> str:
    body = []
    plain = [row for row in rows if row["dtype"] == "float32"]
    for batch, channels, side in _shapes(plain):
        for head in _heads(plain):
            cells = {
                (row["backend"], row["mode"]): row
                for row in plain
                if (row["batch"], row["channels"], row["side"], row["head"]) == (batch, channels, side, head)
            }
            wanted = [("published", "highest"), ("published", "high"), ("torch", "highest"), ("torch", "high")]
            wanted += [("auto", mode) for mode in MODES]
            times = [_pair(cells.get(key), "forward_ms", "forward_backward_ms", ".2f") for key in wanted]
            theirs = [_cell(cells.get(("authors", mode)), "forward_backward_ms") for mode in ("highest", "high")]
            authors = MISSING if MISSING in theirs else " / ".join(theirs)
            body.append((NAMES[head], f"{batch}", f"{channels}", f"{side}²", authors, *times))
    columns = (
        "authors' code, fp32 / TF32",
        "as published, fp32",
        "as published, TF32",
        "PyTorch, fp32",
        "PyTorch, TF32",
    )
    return table(("layer", "B", "D", "n", *columns, *(f"kernels, {mode}" for mode in MODES)), body)


def _again(before: list[Row], rows: list[Row]) -> str:
    """Return times of the kernels beside those of the record, and their ratio."""
    keys = ("head", "batch", "channels", "side", "dtype", "backend", "mode")
    body = []
    for row in rows:
        if row["part"] == "layer":
            old = _find(before, **{key: row[key] for key in keys})
            times = [_pair(found, "forward_ms", "forward_backward_ms", ".2f") for found in (old, row)]
            ratio = MISSING if old is None else f"{row['forward_backward_ms'] / old['forward_backward_ms']:.3f}"
            body.append((NAMES[row["head"]], f"{row['batch']}", f"{row['channels']}", row["mode"], *times, ratio))
    return table(("layer", "B", "D", "mode", "record above", "again", "ratio"), body)


def _sice(rows: list[Row]) -> str:
    """Return times and accuracy of the exact graphical lasso as a layer."""
    body = []
    for row in rows:
        name, options = parse_spec(row["spec"])
        if name == "sice":
            times = [_cell(row, key, ".0f") for key in ("forward_ms", "forward_backward_ms")]
            counts = [f"{row['median_iterations']} / {row['largest_iterations']}", f"{row['cg_steps']}"]
            gap = _cell(row, "largest_gap_per_variable", ".0e")
            body.append((f"{options['ridge']:g}", f"{options['tol']:.0e}", *times, *counts, gap))
    header = (
        "ridge",
        "tol",
        "forward (ms)",
        "with gradient (ms)",
        "iterations, median / most",
        "CG steps",
        "largest gap / D",
    )
    return table(header, body)


def _sustained(rows: list[Row]) -> str:
    body = []
    for row in rows:
        who = {"auto": "kernels", "authors": "authors' code"}[row["backend"]]
        times = [_cell(row, key, ".2f") for key in ("rested_ms", "sustained_ms")]
        load = [_cell(row, key, ",.0f") for key in ("sm_mhz", "most_sm_mhz", "power_w", "power_limit_w")]
        body.append((who, row["mode"], *times, *load))
    header = ("code", "mode", "rested (ms)", "under load (ms)", "MHz", "of at most", "W", "of at most")
    return table(header, body)


def _memory(rows: list[Row]) -> str:
    body = []
    plain = [row for row in rows if row["dtype"] == "float32" and row["mode"] == "high"]
    for batch, channels, _ in _shapes(plain):
        for head in _heads(plain):
            of_case = [row for row in plain if (row["head"], row["batch"], row["channels"]) == (head, batch, channels)]
            found = [_find(of_case, backend=backend) for backend in ("published", "torch", "auto")]
            body.append((NAMES[head], f"{batch}", f"{channels}", *(_cell(row, "peak_mib", ",.0f") for row in found)))
    return table(("layer", "B", "D", "as published (MiB)", "PyTorch (MiB)", "kernels (MiB)"), body)


def _bf16(rows: list[Row]) -> str:
    body = []
    half = [row for row in rows if row["dtype"] == "bfloat16" and row["backend"] == "auto"]
    for batch, channels, _ in _shapes(half):
        for head in _heads(half):
            of_case = [row for row in half if (row["head"], row["batch"], row["channels"]) == (head, batch, channels)]
            found = [_find(of_case, mode=mode) for mode in MODES]
            times = [_pair(row, "forward_ms", "forward_backward_ms", ".2f") for row in found]
            body.append((NAMES[head], f"{batch}", f"{channels}", *times))
    return table(("layer", "B", "D", *(f"kernels, {mode}" for mode in MODES)), body)


def _accuracy(rows: list[Row]) -> str:
    body = []
    for row in rows:
        if (row["batch"], row["channels"], row["dtype"]) == (*MAIN, "float32"):
            backend = {"auto": "kernels", "torch": "PyTorch", "published": "as published"}.get(row["backend"])
            if backend:
                body.append((NAMES[row["head"]], backend, row["mode"], _errors(row), _errors(row, "real_")))
    return table(("layer", "computed by", "mode", "synthetic features", "features of a network"), body)


def _errors(row: Row, kind: str = "") -> str:
    """Return the errors of vectors and gradients, and of the median image's gradient."""
    of_all = _pair(row, f"{kind}error", f"{kind}gradient_error", ".0e")
    return of_all if of_all == MISSING else f"{of_all} ({_cell(row, f'{kind}median_gradient_error', '.0e')})"


def _limits(rows: list[Row]) -> str:
    machine = _find(rows, part="limits") or {}
    kinds = (("bf16_tflops", "bfloat16"), ("fp16_tflops", "float16"), ("tf32_tflops", "TF32"))
    limits = [(f"product 8192³, {name}", _cell(machine, key, ".0f"), "TFLOP/s") for key, name in kinds]
    limits.append(("copy in memory, read and written", _cell(machine, "copy_gb_per_s", ",.0f"), "GB/s"))
    body = []
    for row in rows:
        if row["part"] == "layer" and row["backend"] == "auto" and row["dtype"] == "float32":
            counts = f"{row['products_forward']} + {row['products_backward']}"
            shares = [_cell(row, f"of_{name}", ".0%") for name in ("bf16", "tf32", "bandwidth")]
            case = (NAMES[row["head"]], f"{row['batch']}", f"{row['channels']}", row["mode"])
            cache = _bytes_from_cache(row) / row["forward_backward_ms"] / 1e9
            body.append((*case, counts, f"{row['tflops']:.0f}", *shares, f"{cache:.1f}"))
    header = ("layer", "B", "D", "mode", "products", "TFLOP/s", "of bfloat16", "of TF32", "of bandwidth", "cache, TB/s")
    return f"{table(('limit', 'measured', 'unit'), limits)}\n\n{table(header, body)}"


def _bytes_from_cache(row: Row) -> float:
    """Return the bytes that the matrix products read.

    Each 64×64 tile reads 64 rows of each factor, in one or two planes. A stage has two factors, and
    four with its derivative.
    """
    n_blocks = -(-row["channels"] // 64)
    rows_of_a_factor = 64 * 64 * n_blocks * 2 * (1 if row["mode"] == "medium" else 2)
    factors = row["products_forward"] * (2 + 4)
    return row["batch"] * n_blocks * (n_blocks + 1) / 2 * rows_of_a_factor * factors


def _cpu(rows: list[Row]) -> str:
    body = []
    for row in rows:
        cells = [f"{row['size']}", f"{row['batch']}", f"{row['threads']}"]
        for name in ("forward", "forward_backward"):
            cells += [f"{row[f'{name}_products_ms']:.1f}", f"{row[f'{name}_ms']:.1f}", f"{row[f'{name}_ratio']:.2f}"]
            cells += [_cell(row, f"compiled_{name}_ms"), _cell(row, f"compiled_{name}_ratio", ".2f")]
        body.append(tuple(cells))
    header = ("D", "B", "threads", "forward: products alone (ms)", "layer (ms)", "ratio", "compiled (ms)", "ratio")
    return table(
        (*header, "forward and backward: products alone (ms)", "layer (ms)", "ratio", "compiled (ms)", "ratio"), body
    )
