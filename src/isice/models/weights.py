"""Load weights from a local file, without executing code in it, and report what matched."""

import logging
import pickle
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from .._checks import first_of

logger = logging.getLogger("isice")

_NESTED = ("state_dict", "model", "model_state", "model_state_dict", "net", "network", "params", "weights")
_WRAPPERS = ("module.", "_orig_mod.")
_TIMM = "backbone.model."


@dataclass(frozen=True)
class LoadReport:
    """Which tensors of a weight file were loaded.

    Attributes:
        path: The file.
        matched: Tensors of the model that were loaded.
        missing: Tensors of the model that are not in the file; unchanged.
        unexpected: Tensors of the file that are not in the model.
        wrong_shape: Tensors of both with different shapes, as texts with both shapes; unchanged.
    """

    path: str
    matched: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    wrong_shape: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether every tensor of the model and of the file matched."""
        return not (self.missing or self.unexpected or self.wrong_shape)

    @property
    def message(self) -> str:
        """The report in one line."""
        parts = [f"load_weights: {Path(self.path).name}: {self._matched_parts()}"]
        for title, keys in (
            ("missing in the file", self.missing),
            ("unexpected in the file", self.unexpected),
            ("wrong shape", self.wrong_shape),
        ):
            if keys:
                parts.append(f"{title}: {len(keys)} ({first_of(keys)})")
        return "; ".join(parts) + "."

    def __str__(self) -> str:
        return self.message

    def _matched_parts(self) -> str:
        """Count the loaded tensors of the model and, unless all matched, of each submodule."""
        names = (*self.matched, *self.missing, *self.wrong_shape)
        text = f"{len(self.matched)} of {len(names)} tensors of the model matched"
        if len(self.matched) == len(names):
            return text
        found = Counter(name.split(".")[0] for name in self.matched)
        total = Counter(name.split(".")[0] for name in names)
        return f"{text} ({', '.join(f'{module} {found[module]} of {total[module]}' for module in total)})"


def load_weights(model: nn.Module, path: str | Path, *, strict: bool = True) -> LoadReport:
    """Load the tensors of a safetensors or ``.pth`` file that agree with a model in name and shape.

    The file may hold a whole :class:`Network` or only its backbone (timm's or torchvision's names),
    directly or under a key such as ``"state_dict"`` or ``"model"``, with or without the prefix
    ``"module."`` of data-parallel training. Values are cast to the dtype of the model. timm
    resamples position embeddings of another grid, where supported.

    Args:
        model: The model; a :class:`Network` also keeps the report as ``load_report``.
        path: The file. Pickled code in it is refused, not executed.
        strict: Raise ValueError if less than half of the backbone matches (of the model, if it has
            no backbone). A file without any match is always an error.

    Returns:
        The report, which is also logged.

    Example:
        >>> import tempfile
        >>> layer = nn.Linear(2, 3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     torch.save({"model": layer.state_dict()}, f"{folder}/layer.pth")
        ...     load_weights(layer, f"{folder}/layer.pth").message
        'load_weights: layer.pth: 2 of 2 tensors of the model matched.'
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"load_weights: expected a torch module, got {type(model).__name__}; pass the model first.")
    state = read_state_dict(path)
    target = model.state_dict()
    candidates = _candidates(model, state)
    prefix, best = max(candidates, key=lambda candidate: len(_matching(candidate[1], target)))
    matched = _matching(best, target)
    if not matched:
        raise ValueError(
            f"load_weights: expected weights for {type(model).__name__} in {path}, but no tensor agrees in name and "
            f"shape: the file has {first_of(state)}, the model {first_of(target)}; use one of this model."
        )
    report = _report(path, prefix, best, target)
    if strict:
        _check_backbone(report, target)
    model.load_state_dict({key: best[key] for key in matched}, strict=False)
    logger.log(logging.INFO if report.complete else logging.WARNING, report.message)
    if hasattr(model, "load_report"):
        model.load_report = report  # type: ignore[assignment]
    return report


def _check_backbone(report: LoadReport, target: Mapping[str, Tensor]) -> None:
    """Raise ValueError if less than half of the backbone's tensors matched."""
    counted = [name for name in target if not name.endswith("num_batches_tracked")]
    backbone = [name for name in counted if name.startswith("backbone.")] or counted
    found = len(set(report.matched).intersection(backbone))
    if 2 * found < len(backbone):
        raise ValueError(
            f"load_weights: expected weights for most of the backbone, got {found} of {len(backbone)} tensors; "
            f"{report.message.removeprefix('load_weights: ')} Use a file of this backbone, or strict=False to load it "
            "anyway (model.strict=false in a config)."
        )


def read_state_dict(path: str | Path) -> dict[str, Tensor]:
    """Read the tensors of a weight file by name, without executing code in it."""
    file = check_file(path)
    try:
        content = (
            safetensors.torch.load_file(file)
            if file.suffix == ".safetensors"
            else torch.load(file, map_location="cpu", weights_only=True)
        )
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"load_weights: expected only tensors in {file}, got a pickle with code, or no weight file; it was not "
            f"executed ({_first_line(error)}); if you trust it, convert it to safetensors."
        ) from error
    except Exception as error:  # a damaged pickle raises nearly anything: KeyError, IndexError, AttributeError
        raise ValueError(
            f"load_weights: expected a safetensors or .pth file, but {file} cannot be read ({type(error).__name__}: "
            f"{_first_line(error)}); get it again."
        ) from error
    return _unwrap(file, content)


def _first_line(error: Exception) -> str:
    """Return the first line of an error's message, "" without one."""
    return str(error).partition("\n")[0]


def plain_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return a copy of the state dict for safetensors: on the CPU, contiguous, unshared."""
    return {name: value.detach().to("cpu", copy=True).contiguous() for name, value in model.state_dict().items()}


def check_file(path: str | Path) -> Path:
    """Return ``path`` as a Path to an existing file."""
    file = Path(path).expanduser()
    if not file.is_file():
        problem = "that is a folder" if file.is_dir() else "there is no such file"
        raise FileNotFoundError(f"load_weights: expected a weight file at {file}, but {problem}; check the path.")
    return file


def _unwrap(file: Path, content: Any) -> dict[str, Tensor]:
    """Return the innermost mapping of names to tensors."""
    while isinstance(content, Mapping):
        tensors = {str(key): value for key, value in content.items() if isinstance(value, Tensor)}
        inner = next((content[key] for key in _NESTED if isinstance(content.get(key), Mapping)), None)
        if inner is None and tensors:
            return {_strip(key): value for key, value in tensors.items()}
        if inner is None:
            break
        content = inner
    got = f"the keys {first_of(map(str, content))}" if isinstance(content, Mapping) else type(content).__name__
    raise ValueError(
        f"load_weights: expected tensors by name in {file}, directly or under one of {', '.join(_NESTED)}, got {got}; "
        "save model.state_dict()."
    )


def _strip(key: str) -> str:
    while key.startswith(_WRAPPERS):
        key = key.split(".", 1)[1]
    return key


def _candidates(model: nn.Module, state: dict[str, Tensor]) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield interpretations of a file: whole model, backbone, or a format that timm converts.

    Each is the prefix added to the names in the file, and the tensors by their names in the model.
    """
    for prefix in ("", "backbone.", _TIMM):
        yield prefix, {prefix + key: value for key, value in state.items()}
    network = getattr(getattr(model, "backbone", None), "model", None)
    convert = getattr(sys.modules.get(type(network).__module__), "checkpoint_filter_fn", None)
    if convert is None:
        return
    try:
        converted = convert(dict(state), network)
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        logger.debug("load_weights: timm cannot convert this file: %s", error)
    else:
        yield _TIMM, {_TIMM + key: value for key, value in converted.items()}


def _matching(state: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> list[str]:
    return [key for key, value in target.items() if key in state and state[key].shape == value.shape]


def _report(path: str | Path, prefix: str, state: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> LoadReport:
    both = [key for key in target if key in state and state[key].shape != target[key].shape]
    return LoadReport(
        path=str(path),
        matched=tuple(_matching(state, target)),
        missing=tuple(key for key in target if key not in state),
        unexpected=tuple(key.removeprefix(prefix) for key in state if key not in target),
        wrong_shape=tuple(f"{key}: file {tuple(state[key].shape)}, model {tuple(target[key].shape)}" for key in both),
    )
