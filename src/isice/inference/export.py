"""Export a trained network to ONNX or to a torch.export program, and verify the file.

Both map normalised images (B, C, H, W) of the training size, for any B, to logits. The file stores
classes and input: ONNX in the metadata ``isice``, a torch.export program in ``isice.json``.
"""

import contextlib
import copy
import importlib
import io
import json
import logging
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .._atomic import replace_files
from .._checks import check_choice
from ..train import load_trained
from .predict import input_facts

FORMATS = {"onnx": ".onnx", "torch": ".pt2"}
FACTS_FILE = "isice.json"
# Allowed difference of logits, relative to the largest logit. Float32 rounding gives at most
# 1e-5 with the poolings of this package, and 6e-4 after a signed square root, which
# amplifies errors near zero.
TOLERANCE = 2e-3
_BATCHES = (1, 3)

Call = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Exported:
    """An exported file and its numerical difference from the network.

    Attributes:
        path: The file.
        difference: Largest difference of logits on the test images, relative to the largest logit.
        images: Number of test images: random ones and a blank one.
    """

    path: Path
    difference: float
    images: int


def export_run(
    folder: str | Path, format: str = "onnx", out: str | Path | None = None, *, which: str = "best"
) -> Exported:
    """Export the network of a run.

    Args:
        folder: The run folder.
        format: ``"onnx"`` or ``"torch"``.
        out: The file; by default ``model.onnx`` or ``model.pt2`` in the run folder.
        which: The checkpoint, ``"best"`` or ``"last"``.
    """
    check_choice("export", "format", format, FORMATS)
    if format == "onnx":
        _need("onnx", "onnxscript", "onnxruntime")
    path = Path(out) if out is not None else Path(folder) / f"model{FORMATS[format]}"
    if path.suffix != FORMATS[format]:
        raise ValueError(f"export: expected a file ending in {FORMATS[format]} for {format}, got {str(path)!r}.")
    trained = load_trained(folder, which)
    facts = {"classes": list(trained.classes), "input": input_facts(trained.config.data)}
    return export_model(trained.model, facts, format, path)


def export_model(model: nn.Module, facts: dict[str, Any], format: str, path: Path) -> Exported:
    """Export a network to a temporary file, verify it, and move it to ``path``.

    Args:
        model: The network.
        facts: ``classes`` and ``input`` (channels, image size), stored in the file.
        format: ``"onnx"`` or ``"torch"``.
        path: The file.
    """
    images = facts["input"]
    shape = (images["channels"], images["image_size"], images["image_size"])
    model = copy.deepcopy(model).cpu().float().eval().requires_grad_(False)
    # Large ONNX models keep their weights in a second file: both are replaced, or neither.
    with replace_files(path.parent) as folder, torch.no_grad(), _quiet():
        partial = folder / path.name
        write, load = (_write_onnx, _load_onnx) if format == "onnx" else (_write_program, _load_program)
        write(_export(model, shape), facts, partial)
        difference = _difference(model, load(partial), shape)
        if not difference <= TOLERANCE:
            raise ValueError(
                f"export: expected {path.name} to give the network's logits, got a relative difference of "
                f"{difference:.2g} on random images (allowed: {TOLERANCE:g}); nothing was written."
            )
    return Exported(path, difference, sum(_BATCHES))


def _export(model: nn.Module, shape: tuple[int, int, int]) -> torch.export.ExportedProgram:
    example = torch.rand(2, *shape)
    try:
        return torch.export.export(model, (example,), dynamic_shapes=({0: torch.export.Dim("batch", min=1)},))
    except Exception as error:  # the tracer raises many types of errors
        raise ValueError(f"export: expected a network that torch.export can trace, got {_first_line(error)}") from error


def _write_program(program: torch.export.ExportedProgram, facts: dict[str, Any], path: Path) -> None:
    # To memory first: torch's file writer aborts the process if the disk is full.
    buffer = io.BytesIO()
    torch.export.save(program, buffer, extra_files={FACTS_FILE: json.dumps(facts, ensure_ascii=False)})
    path.write_bytes(buffer.getvalue())


def _load_program(path: Path) -> Call:
    return torch.export.load(path).module()


def _write_onnx(program: torch.export.ExportedProgram, facts: dict[str, Any], path: Path) -> None:
    try:
        onnx: Any = torch.onnx.export(
            program,
            dynamo=True,
            verbose=False,
            optimize=False,  # the optimizer removes an added ε of 1e-12: NaN for a zero vector
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
        images[1:2] = 0  # a blank image: division by zero if an ε was lost
        expected = model(images)
        found.append((call(images) - expected).abs().max() / expected.abs().max().clamp(min=1e-12))
    return float(torch.stack(found).max())  # torch's max propagates NaN, Python's does not


def _no_onnx(error: Exception) -> ValueError:
    """Return an error that names the operation without an ONNX equivalent."""
    chain, cause = "", error
    while cause is not None:
        chain, cause = chain + str(cause), cause.__cause__  # type: ignore[assignment]
    lacking = re.search(r"No ONNX function found for <OpOverload\(op='([^']+)'", chain)
    reason = f"{lacking[1]}, which ONNX lacks" if lacking else _first_line(error)
    return ValueError(
        f"export: expected a network of ONNX operations, got {reason}; "
        "use --format torch, or train a pooling that exports to ONNX (docs/training.md lists them)."
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
    """Suppress warnings and output of the exporters; errors still raise."""
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
