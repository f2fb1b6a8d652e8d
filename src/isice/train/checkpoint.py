"""Checkpoints of a run: complete or not there, checked when read, and never able to execute code.

A run folder::

    config.toml               the resolved config
    record.json               what was computed, with what, on what, and what came out (once it ended)
    metrics.jsonl             one line per epoch
    arrays.npz                mean descriptor per class, for the report
    tensorboard/              the same numbers as metrics.jsonl
    checkpoints/last/         model.safetensors  meta.json  state.pt   the newest state; training resumes from it
    checkpoints/best/         model.safetensors  meta.json             the reported epoch; evaluation uses it

``model.safetensors`` holds the weights to predict with (the averaged ones, if the run averages). ``meta.json`` holds
config and its hash, classes, the arguments that build the network again, epoch, step, and the SHA-256 of the other
files. ``state.pt`` holds optimizer, schedule and counters, read with ``torch.load(weights_only=True)``.

A checkpoint is written beside its place, synced to disk and then renamed, so that a run killed at any moment leaves
the old one or the new one.
"""

import hashlib
import io
import json
import os
import pickle
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from .._checks import check_choice
from ..config import RunConfig, config_hash, from_dict, to_dict
from ..models import Network, create_model
from ..records import read_record

SCHEMA = 1
WHICH = ("best", "last")
_WEIGHTS, _STATE, _META = "model.safetensors", "state.pt", "meta.json"


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint as read from disk: facts, weights on the CPU, and the training state (None for ``best``)."""

    meta: dict[str, Any]
    weights: dict[str, Tensor]
    state: dict[str, Any] | None


@dataclass(frozen=True)
class Trained:
    """A trained network with all that is needed to use it.

    Attributes:
        config: The config of the run.
        model: The network, in eval mode on the CPU.
        classes: Names of the classes, in the order of the logits.
        record: The run's record; empty while the run has not ended.
        epoch: The epoch after which the weights were saved, counted from 1.
    """

    config: RunConfig
    model: nn.Module
    classes: tuple[str, ...]
    record: dict[str, Any]
    epoch: int


def load_trained(folder: str | Path, which: str = "best") -> Trained:
    """Loads the network of a run folder.

    Args:
        folder: The folder that :func:`isice.train.train_run` wrote.
        which: ``"best"``, the epoch that the record reports, or ``"last"``, the newest.
    """
    folder = Path(folder)
    checkpoint = read_checkpoint(folder, which)
    meta = checkpoint.meta
    if meta["network"] is None:
        raise ValueError(
            f"load_trained: expected a network made by create_model in {str(folder)!r}, got a custom model; "
            "build it yourself and load checkpoints/best/model.safetensors."
        )
    arguments = dict(meta["network"])
    model = create_model(arguments.pop("name"), **arguments)
    load_weights_into(model, checkpoint.weights, str(folder))
    return Trained(
        config=from_dict(meta["config"]),
        model=model.eval(),
        classes=tuple(meta["classes"]),
        record=read_record(folder) or {},
        epoch=meta["epoch"],
    )


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
) -> Path:
    """Writes ``folder/checkpoints/<which>`` in one step; the one before stays until the new one is complete.

    Args:
        folder: The run folder.
        which: ``"last"`` or ``"best"``.
        config: The run.
        classes: Names of the classes.
        model: The network whose weights are saved.
        epoch: Epochs completed.
        step: Optimizer steps done in the next epoch.
        state: What training needs besides to go on: tensors, numbers, strings, lists and dictionaries.
    """
    check_choice("save_checkpoint", "which", which, WHICH)
    contents = {_WEIGHTS: safetensors.torch.save(plain_weights(model))}
    if state is not None:
        buffer = io.BytesIO()
        torch.save(state, buffer)
        contents[_STATE] = buffer.getvalue()
    meta = {
        "schema": SCHEMA,
        "hash": config_hash(config),
        "config": to_dict(config),
        "classes": list(classes),
        "network": model.config if isinstance(model, Network) else None,
        "epoch": epoch,
        "step": step,
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()},
    }
    contents[_META] = json.dumps(meta, indent=1, ensure_ascii=False).encode()
    place = Path(folder) / "checkpoints" / which
    _write_folder(place, contents)
    return place


def read_checkpoint(folder: str | Path, which: str = "last") -> Checkpoint:
    """Reads and verifies a checkpoint; a missing or damaged one is an error that names it."""
    check_choice("checkpoint", "which", which, WHICH)
    place = _recovered(Path(folder) / "checkpoints" / which)
    if not (place / _META).is_file():
        there = [name for name in WHICH if has_checkpoint(folder, name)]
        hint = f"use which={there[0]!r}" if there else "train first, or look for another folder"
        raise FileNotFoundError(f"checkpoint: expected {str(place)!r}, which does not exist; {hint}.")
    meta = _read_meta(place)
    contents = {name: _verified(place / name, digest) for name, digest in meta["files"].items()}
    try:
        weights = safetensors.torch.load(contents[_WEIGHTS])
        state = _read_state(contents[_STATE]) if _STATE in contents else None
    except (SafetensorError, pickle.UnpicklingError, RuntimeError, KeyError) as error:
        raise ValueError(f"checkpoint: expected plain tensors and numbers in {str(place)!r}: {error}") from None
    return Checkpoint(meta, weights, state)


def has_checkpoint(folder: str | Path, which: str = "last") -> bool:
    """True if a complete checkpoint of that name is in the run folder."""
    return (_recovered(Path(folder) / "checkpoints" / which) / _META).is_file()


def load_weights_into(model: nn.Module, weights: dict[str, Tensor], where: str) -> None:
    """Loads weights that must fit exactly; otherwise an error names what differs."""
    own = model.state_dict()
    differing = sorted(own.keys() ^ weights.keys())
    differing += [name for name in own.keys() & weights.keys() if own[name].shape != weights[name].shape]
    if differing:
        more = f" and {len(differing) - 3} more" if len(differing) > 3 else ""
        raise ValueError(
            f"checkpoint: expected the weights in {where!r} to fit the model, got differences in "
            f"{', '.join(differing[:3])}{more}; the run used another model."
        )
    model.load_state_dict(weights)


def plain_weights(model: nn.Module) -> dict[str, Tensor]:
    """The state dict on the CPU, contiguous, with no two tensors in the same memory, as safetensors wants it."""
    return {name: value.detach().to("cpu", copy=True).contiguous() for name, value in model.state_dict().items()}


def _read_state(content: bytes) -> dict[str, Any]:
    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)


def _read_meta(place: Path) -> dict[str, Any]:
    try:
        meta = json.loads((place / _META).read_text(encoding="utf-8"))
        schema = meta["schema"]
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"checkpoint: expected a readable {_META} in {str(place)!r}: {error!r}.") from None
    if schema != SCHEMA:
        raise ValueError(
            f"checkpoint: expected format {SCHEMA} in {str(place)!r}, got {schema!r}; "
            "use the version of isice that wrote it."
        )
    return meta


def _verified(path: Path, digest: str) -> bytes:
    if not path.is_file():
        raise FileNotFoundError(f"checkpoint: expected {str(path)!r}, which is missing; restore it or train anew.")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != digest:
        raise ValueError(f"checkpoint: expected {str(path)!r} as it was written, got other content: it is damaged.")
    return content


def _write_folder(place: Path, contents: dict[str, bytes]) -> None:
    """Replaces the folder ``place`` by one with these files: all of them, or none."""
    partial, previous = place.with_suffix(".partial"), place.with_suffix(".previous")
    try:
        _recovered(place)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        for name, content in contents.items():
            _write_synced(partial / name, content)
        _sync_folder(partial)
        if place.exists():
            place.rename(previous)
        partial.rename(place)
        _sync_folder(place.parent)
        shutil.rmtree(previous, ignore_errors=True)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        kept = "the one before is intact" if _recovered(place).exists() else "none was written before"
        raise OSError(
            error.errno, f"checkpoint: could not write {str(place)!r}: {error.strerror}; {kept}; make room and resume"
        ) from error


def _recovered(place: Path) -> Path:
    """Finishes what a kill between the two renames of :func:`_write_folder` left undone."""
    previous = place.with_suffix(".previous")
    if previous.exists():
        if place.exists():
            shutil.rmtree(previous, ignore_errors=True)
        else:
            previous.rename(place)
    return place


def _write_synced(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Makes renames in a folder durable; systems that cannot open folders do it on their own."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
