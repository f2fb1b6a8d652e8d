"""Exporting a trained network to ONNX or to a torch.export program, and checking the file against the network.

Both take images (B, C, H, W) of the size the network was trained with, normalised as in training, for any B, and give
logits. Classes and input are stored in the file: in ONNX as the metadata ``isice``, in a program as ``isice.json``.
"""

import contextlib
import copy
import importlib
import io
import json
import logging
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .._checks import check_choice
from .predict import input_facts, load_run

FORMATS = {"onnx": ".onnx", "torch": ".pt2"}
FACTS_FILE = "isice.json"
# Allowed difference of logits, relative to the largest logit. Float32 sums in another order give 1e-5 at most in the
# heads of this package, and 6e-4 where a signed square root follows, which magnifies errors near zero.
TOLERANCE = 2e-3
_BATCHES = (1, 3)

Call = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Exported:
    """A file that was written, and how far its logits are from the network's.

    Attributes:
        path: The file.
        difference: Largest difference of two logits on random images and a blank one, relative to the largest logit.
        images: Number of these images.
    """

    path: Path
    difference: float
    images: int


def export_run(
    folder: str | Path, format: str = "onnx", out: str | Path | None = None, *, which: str = "best"
) -> Exported:
    """Exports the network of a run.

    Args:
        folder: The run folder.
        format: ``"onnx"`` or ``"torch"``.
        out: The file; ``model.onnx`` or ``model.pt2`` in the run folder unless given.
        which: The checkpoint, ``"best"`` or ``"last"``.
    """
    check_choice("export", "format", format, FORMATS)
    if format == "onnx":
        _need("onnx", "onnxscript", "onnxruntime")
    path = Path(out) if out is not None else Path(folder) / f"model{FORMATS[format]}"
    if path.suffix != FORMATS[format]:
        raise ValueError(f"export: expected a file ending in {FORMATS[format]} for {format}, got {str(path)!r}.")
    trained = load_run(folder, which)
    facts = {"classes": list(trained.classes), "input": input_facts(trained.config.data)}
    return export_model(trained.model, facts, format, path)


def export_model(model: nn.Module, facts: dict[str, Any], format: str, path: Path) -> Exported:
    """Exports a network, checks the file, and only then puts it in its place.

    Args:
        model: The network.
        facts: ``classes`` and ``input``, stored in the file; the input's channels and size are those of the export.
        format: ``"onnx"`` or ``"torch"``.
        path: The file.
    """
    images = facts["input"]
    shape = (images["channels"], images["image_size"], images["image_size"])
    model = copy.deepcopy(model).cpu().float().eval().requires_grad_(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".export-") as folder, torch.no_grad(), _quiet():
        partial = Path(folder) / path.name
        write, load = (_write_onnx, _load_onnx) if format == "onnx" else (_write_program, _load_program)
        write(_export(model, shape), facts, partial)
        difference = _difference(model, load(partial), shape)
        if not difference <= TOLERANCE:
            raise ValueError(
                f"export: expected {path.name} to give the network's logits, got a relative difference of "
                f"{difference:.2g} on random images (allowed: {TOLERANCE:g}); it was not written."
            )
        for file in Path(folder).iterdir():  # large ONNX models keep their weights in a second file
            file.replace(path.parent / file.name)
    return Exported(path, difference, sum(_BATCHES))


def _export(model: nn.Module, shape: tuple[int, int, int]) -> torch.export.ExportedProgram:
    example = torch.rand(2, *shape)
    try:
        return torch.export.export(model, (example,), dynamic_shapes=({0: torch.export.Dim("batch", min=1)},))
    except Exception as error:  # the tracer has errors of many kinds, and none says which network it was
        raise ValueError(
            f"export: expected a network that torch.export can trace, got one that it cannot: {_first_line(error)}"
        ) from error


def _write_program(program: torch.export.ExportedProgram, facts: dict[str, Any], path: Path) -> None:
    torch.export.save(program, path, extra_files={FACTS_FILE: json.dumps(facts, ensure_ascii=False)})


def _load_program(path: Path) -> Call:
    return torch.export.load(path).module()


def _write_onnx(program: torch.export.ExportedProgram, facts: dict[str, Any], path: Path) -> None:
    try:
        onnx: Any = torch.onnx.export(
            program,
            dynamo=True,
            verbose=False,
            optimize=False,  # it takes an ε of 1e-12 for zero and drops it: NaN where a vector is zero
            input_names=["images"],
            output_names=["logits"],
            dynamic_shapes=({0: "batch"},),
        )
    except torch.onnx.errors.OnnxExporterError as error:
        raise _no_onnx(error) from error
    onnx.model.metadata_props["isice"] = json.dumps(facts, ensure_ascii=False)
    onnx.save(str(path))


def _load_onnx(path: Path) -> Call:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda images: torch.from_numpy(session.run(None, {"images": images.numpy()})[0])


def _difference(model: nn.Module, call: Call, shape: tuple[int, int, int]) -> float:
    generator = torch.Generator().manual_seed(0)
    found = []
    for size in _BATCHES:
        images = torch.rand(size, *shape, generator=generator)
        images[1:2] = 0  # where a graph without its safeguards divides by zero
        expected = model(images)
        found.append((call(images) - expected).abs().max() / expected.abs().max().clamp(min=1e-12))
    return float(torch.stack(found).max())  # unlike Python's, this maximum keeps a NaN


def _no_onnx(error: Exception) -> ValueError:
    """Says which operation ONNX lacks; the exporter's own message is a page of advice to its developers."""
    chain, cause = "", error
    while cause is not None:
        chain, cause = chain + str(cause), cause.__cause__  # type: ignore[assignment]
    lacking = re.search(r"No ONNX function found for <OpOverload\(op='([^']+)'", chain)
    reason = f"the operation {lacking[1]}, which ONNX lacks" if lacking else _first_line(error)
    return ValueError(
        f"export: expected a network of operations that ONNX has, got {reason}; "
        "use --format torch, or train a head that exports (docs/training.md lists them)."
    )


def _need(*packages: str) -> None:
    for package in packages:
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise ImportError(
                f"export: expected the package {package}, which is not installed; pip install 'isice[export]'."
            ) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The exporters' notes to their own developers are not for users; errors come through as exceptions."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
