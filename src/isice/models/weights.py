"""Weights from a local file: code in it is never executed, and a report says what matched and what did not."""

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

logger = logging.getLogger("isice")

_NESTED = ("state_dict", "model", "model_state", "model_state_dict", "net", "network", "params", "weights")
_WRAPPERS = ("module.", "_orig_mod.")
_TIMM = "backbone.model."


@dataclass(frozen=True)
class LoadReport:
    """What a weight file gave to a model.

    Attributes:
        path: The file.
        matched: Tensors of the model that were loaded.
        missing: Tensors of the model that the file does not have; they keep their values.
        unexpected: Tensors of the file that the model does not have.
        wrong_shape: Tensors that both have, in different shapes; they keep their values.
    """

    path: str
    matched: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    wrong_shape: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """True when every tensor of the model was loaded and nothing was left over."""
        return not (self.missing or self.unexpected or self.wrong_shape)

    @property
    def message(self) -> str:
        """One line to read."""
        parts = [f"load_weights: {Path(self.path).name}: {self._matched_parts()}"]
        for title, keys in (
            ("missing in the file", self.missing),
            ("unexpected in the file", self.unexpected),
            ("wrong shape", self.wrong_shape),
        ):
            if keys:
                parts.append(f"{title}: {len(keys)} ({_some(keys)})")
        return "; ".join(parts) + "."

    def __str__(self) -> str:
        return self.message

    def _matched_parts(self) -> str:
        """How much of the model, and of each of its parts, was loaded: a backbone left at random must be seen."""
        names = (*self.matched, *self.missing, *self.wrong_shape)
        text = f"{len(self.matched)} of {len(names)} tensors of the model matched"
        if len(self.matched) == len(names):
            return text
        found = Counter(name.split(".")[0] for name in self.matched)
        total = Counter(name.split(".")[0] for name in names)
        return f"{text} ({', '.join(f'{part} {found[part]} of {total[part]}' for part in total)})"


def load_weights(model: nn.Module, path: str | Path) -> LoadReport:
    """Loads a safetensors or ``.pth`` file into a model, as far as names and shapes agree.

    The file may hold a whole :class:`Network` or only its backbone (timm's or torchvision's names), directly or under
    a key such as ``"state_dict"`` or ``"model"``, with or without the ``"module."`` of data-parallel training. Values
    are cast to the dtype of the model. Position embeddings of another grid are resampled where timm knows how.

    Args:
        model: The model to fill; a :class:`Network` also keeps the report as ``load_report``.
        path: The file. Pickled code in it is refused, never executed.

    Returns:
        What matched and what did not; it is logged as well.

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
    candidates = _candidates(model, state, target)
    prefix, best = max(candidates, key=lambda candidate: len(_matching(candidate[1], target)))
    matched = _matching(best, target)
    if not matched:
        raise ValueError(
            f"load_weights: expected weights for {type(model).__name__} in {path}, but no tensor agrees in name and "
            f"shape: the file has {_some(tuple(state))}, the model {_some(tuple(target))}; use the file's own model."
        )
    model.load_state_dict({key: best[key] for key in matched}, strict=False)
    report = _report(path, prefix, best, target)
    logger.log(logging.INFO if report.complete else logging.WARNING, report.message)
    if hasattr(model, "load_report"):
        model.load_report = report  # type: ignore[assignment]
    return report


def read_state_dict(path: str | Path) -> dict[str, Tensor]:
    """Reads the tensors of a weight file by name, unwrapped, without executing anything in it."""
    file = check_file(path)
    try:
        if file.suffix == ".safetensors":
            return _unwrap(file, safetensors.torch.load_file(file))
        return _unwrap(file, torch.load(file, map_location="cpu", weights_only=True))
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"load_weights: expected tensors only in {file}, got a pickle that needs code, or no weight file at all, "
            f"and refused to run it ({str(error).splitlines()[0]}); convert it to safetensors where you trust it."
        ) from error
    except (safetensors.SafetensorError, RuntimeError, EOFError) as error:
        raise ValueError(
            f"load_weights: expected a safetensors or .pth file, but {file} cannot be read ({error}); fetch it again."
        ) from error


def check_file(path: str | Path) -> Path:
    """Returns ``path`` as a Path; a missing file is an error that names it."""
    file = Path(path).expanduser()
    if not file.is_file():
        problem = "that is a folder" if file.is_dir() else "there is no such file"
        raise FileNotFoundError(f"load_weights: expected a weight file at {file}, but {problem}; check the path.")
    return file


def _unwrap(file: Path, content: Any) -> dict[str, Tensor]:
    """The innermost mapping of names to tensors."""
    while isinstance(content, Mapping):
        tensors = {str(key): value for key, value in content.items() if isinstance(value, Tensor)}
        inner = next((content[key] for key in _NESTED if isinstance(content.get(key), Mapping)), None)
        if inner is None and tensors:
            return {_strip(key): value for key, value in tensors.items()}
        if inner is None:
            break
        content = inner
    got = f"the keys {_some(tuple(map(str, content)))}" if isinstance(content, Mapping) else type(content).__name__
    raise ValueError(
        f"load_weights: expected tensors by name in {file}, directly or under one of {', '.join(_NESTED)}, got {got}; "
        "save model.state_dict()."
    )


def _strip(key: str) -> str:
    while key.startswith(_WRAPPERS):
        key = key.split(".", 1)[1]
    return key


def _candidates(
    model: nn.Module, state: dict[str, Tensor], target: Mapping[str, Tensor]
) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """The ways to read a file: as the whole model, as its backbone, as a backbone in its authors' own format.

    Each is the prefix put before the names of the file, and the tensors by the names of the model.
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
        logger.debug("load_weights: timm's converter does not know this file: %s", error)
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


def _some(keys: tuple[str, ...], most: int = 4) -> str:
    return ", ".join(keys[:most]) + (f" and {len(keys) - most} more" if len(keys) > most else "")
