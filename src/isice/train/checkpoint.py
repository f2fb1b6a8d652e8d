"""Checkpoints of a run: written atomically, verified by checksum, read without executing code.

A run folder::

    config.toml               the resolved config
    record.json               config, versions, hardware and results; written when the run ends
    metrics.jsonl             one line per epoch
    evaluation.json           scores and predictions of the reported epoch on the test images
    arrays.npz                mean descriptor of each class, for the report
    tensorboard/              the metrics of metrics.jsonl
    checkpoints/last/         model.safetensors  meta.json  state.pt   to resume from
    checkpoints/best/         model.safetensors  meta.json             the reported epoch

``model.safetensors`` holds the weights to predict with: the averaged ones if the run averages them.
``meta.json`` holds the config and its hash, the classes, the arguments of ``create_model``, the
fingerprint of the data, epoch, step, the SHA-256 of the other files and of itself. ``state.pt``
holds optimizer, schedule and counters, and is read with ``torch.load(weights_only=True)``.

A thread writes a checkpoint to a temporary folder, syncs it to disk and renames it, while training
continues. A run killed at any moment leaves either the previous checkpoint or the new one. An epoch
that ends within 30 seconds after a checkpoint writes none, unless it is the best or the last one.
"""

import hashlib
import io
import json
import pickle
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from .._atomic import readable_folder, write_folder
from .._checks import check_choice, first_of
from ..config import RunConfig, config_hash, to_dict
from ..models import Network
from ..models.weights import plain_weights

SCHEMA = 1
WHICH = ("best", "last")
_WEIGHTS, _STATE, _META = "model.safetensors", "state.pt", "meta.json"
_CHECKSUM = "sha256"
# The keys of every meta.json, with their types. Those without a checksum have no others.
_KEYS: dict[str, type | tuple[type, ...]] = {
    "schema": int,
    "hash": str,
    "config": dict,
    "classes": list,
    "network": (dict, type(None)),
    "epoch": int,
    "step": int,
    "files": dict,
}


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint: metadata, weights on the CPU, training state (None for ``best``)."""

    meta: dict[str, Any]
    weights: dict[str, Tensor]
    state: dict[str, Any] | None


def save_checkpoint(
    folder: str | Path,
    which: str,
    *,
    config: RunConfig,
    classes: tuple[str, ...],
    model: nn.Module,
    epoch: int,
    step: int,
    state: dict[str, Any] | None = None,
    data: dict[str, Any] | None = None,
    weights: dict[str, Tensor] | None = None,
) -> Path:
    """Replace ``folder/checkpoints/<which>`` atomically.

    ``state`` is the training state to resume from, ``data`` the fingerprint of the data, and
    ``weights`` a copy to save instead of the present weights of the model.
    """
    contents = {_WEIGHTS: safetensors.torch.save(plain_weights(model) if weights is None else weights)}
    if state is not None:
        buffer = io.BytesIO()
        torch.save(state, buffer)
        contents[_STATE] = buffer.getvalue()
    meta = {
        "schema": SCHEMA,
        "hash": config_hash(config),
        "config": to_dict(config),
        "classes": list(classes),
        "network": model.config if isinstance(model, Network) and model.backbone.config is not None else None,
        "data": data,
        "epoch": epoch,
        "step": step,
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()},
    }
    meta[_CHECKSUM] = _checksum(meta)
    contents[_META] = json.dumps(meta, indent=1, ensure_ascii=False).encode()
    place = Path(folder) / "checkpoints" / which
    try:
        write_folder(place, contents)
    except OSError as error:
        kept = "the previous one is intact" if readable_folder(place).exists() else "there is no previous one"
        message = f"checkpoint: could not write {str(place)!r}: {error.strerror}; {kept}; free disk space and resume"
        raise OSError(error.errno, message) from error
    return place


def read_checkpoint(folder: str | Path, which: str = "last") -> Checkpoint:
    """Read a checkpoint and verify its checksums."""
    check_choice("checkpoint", "which", which, WHICH)
    place = readable_folder(Path(folder) / "checkpoints" / which)
    if not (place / _META).is_file():
        there = [name for name in WHICH if has_checkpoint(folder, name)]
        hint = f"use which={there[0]!r}" if there else "train first, or name another folder"
        raise FileNotFoundError(f"checkpoint: expected {str(place)!r}, which does not exist; {hint}.")
    meta = _read_meta(place)
    contents = {name: _verified(place / name, digest) for name, digest in meta["files"].items()}
    try:
        weights = safetensors.torch.load(contents[_WEIGHTS])
        state = None
        if _STATE in contents:
            state = torch.load(io.BytesIO(contents[_STATE]), map_location="cpu", weights_only=True)
    except (SafetensorError, pickle.UnpicklingError, RuntimeError, KeyError) as error:
        raise ValueError(f"checkpoint: expected plain tensors and numbers in {str(place)!r}: {error}") from None
    return Checkpoint(meta, weights, state)


def has_checkpoint(folder: str | Path, which: str = "last") -> bool:
    """Return whether the run folder has a complete checkpoint of that name."""
    return (readable_folder(Path(folder) / "checkpoints" / which) / _META).is_file()


def load_weights_into(model: nn.Module, weights: dict[str, Tensor], where: str) -> None:
    """Load weights whose names and shapes must match those of the model."""
    own = model.state_dict()
    differing = sorted(own.keys() ^ weights.keys())
    differing += [name for name in own.keys() & weights.keys() if own[name].shape != weights[name].shape]
    if differing:
        raise ValueError(
            f"checkpoint: expected the weights in {where!r} to match the model, got differences in "
            f"{first_of(differing, 3)}; the run used another model."
        )
    model.load_state_dict(weights)


class CheckpointWriter:
    """Writer of checkpoints in a thread, in the order of the calls.

    Weights and state are copied to the host first, so that a checkpoint holds the moment of the
    call. A failed write raises at a later call or at :meth:`wait`.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._pending: list[Future[Path]] = []

    def save(
        self, folder: Path, which: str, *, model: nn.Module, state: dict[str, Any] | None = None, **options: Any
    ) -> None:
        """Start :func:`save_checkpoint`; the first checkpoint of a run is complete on return."""
        self.wait(leave=1)  # one for "best", one for "last"
        copied: dict[str, Any] = {
            "state": None if state is None else copy_to_cpu(state),
            "weights": plain_weights(model),
        }
        self._pending.append(self._pool.submit(save_checkpoint, folder, which, model=model, **options, **copied))
        if not has_checkpoint(folder, "last"):
            self.wait()

    def wait(self, leave: int = 0) -> None:
        """Wait until all checkpoints but the newest ``leave`` are on disk."""
        while len(self._pending) > leave:
            self._pending.pop(0).result()


def copy_to_cpu(value: Any) -> Any:
    """Return nested dictionaries, lists and tuples with copies of their tensors on the CPU."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: copy_to_cpu(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(copy_to_cpu(item) for item in value)
    return value


def _read_meta(place: Path) -> dict[str, Any]:
    try:
        meta: dict[str, Any] = json.loads((place / _META).read_text(encoding="utf-8"))
        schema = meta["schema"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"checkpoint: expected a readable {_META} in {str(place)!r}: {error!r}.") from None
    if schema != SCHEMA:
        raise ValueError(
            f"checkpoint: expected format {SCHEMA} in {str(place)!r}, got {schema!r}; "
            "read it with the version of isice that wrote it."
        )
    _check_meta(meta, place)
    return meta


def _check_meta(meta: dict[str, Any], place: Path) -> None:
    """Verify keys, types and checksum; checkpoints of earlier versions have no checksum."""
    wrong = [key for key, types in _KEYS.items() if not isinstance(meta.get(key, ...), types)]
    if wrong:
        raise ValueError(f"checkpoint: expected a complete {_META} in {str(place)!r}, got no valid {', '.join(wrong)}.")
    unchecked = _CHECKSUM not in meta and meta.keys() == _KEYS.keys()
    if not unchecked and meta.get(_CHECKSUM) != _checksum(meta):
        raise ValueError(f"checkpoint: expected {_META} in {str(place)!r} to match its SHA-256: it is damaged.")
    names = meta["files"]
    if _WEIGHTS not in names or not names.keys() <= {_WEIGHTS, _STATE}:
        raise ValueError(
            f"checkpoint: expected {_WEIGHTS} and at most {_STATE} as files of {str(place)!r}, got "
            f"{', '.join(map(repr, names)) or 'none'}; files outside the checkpoint are not read."
        )


def _checksum(meta: dict[str, Any]) -> str:
    """Return the SHA-256 of the metadata without its checksum."""
    content = {key: value for key, value in meta.items() if key != _CHECKSUM}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _verified(path: Path, digest: str) -> bytes:
    if not path.is_file():
        raise FileNotFoundError(f"checkpoint: expected {str(path)!r}, which is missing; restore it or train again.")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != digest:
        raise ValueError(f"checkpoint: expected {str(path)!r} to match its SHA-256, got another: it is damaged.")
    return content
