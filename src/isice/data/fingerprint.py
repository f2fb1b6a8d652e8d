"""A fingerprint of the data of a run, by which a resumed run notices that its data changed.

It covers the classes and, for every split, the number of images, their names, sizes and labels in
order, and the content of a sample of images. Names are relative, so that data may move.
"""

import hashlib
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .sources import FileSource, Split, TensorSource
from .splits import Splits

SAMPLE = 64  # images per split whose content is compared
_WORDS = {
    "names": "the names of its files",
    "sizes": "the sizes of its files",
    "labels": "its labels",
    "sample": "the content of its images",
}

Fingerprint = dict[str, Any]


def fingerprint(splits: Splits) -> Fingerprint:
    """Return the fingerprint of the splits: JSON values."""
    found = {name: _split(split) for name, split in splits.by_name.items()}
    return {"classes": list(splits.info.classes), "splits": found}


def describe_changes(before: Fingerprint, now: Fingerprint) -> list[str]:
    """Return what differs between two fingerprints, in words."""
    changes = class_changes(before["classes"], now["classes"])
    for name in sorted(before["splits"].keys() | now["splits"].keys()):
        old, new = before["splits"].get(name), now["splits"].get(name)
        if old is None or new is None:
            changes.append(f"the split {name} is {'new' if old is None else 'missing'}")
        elif old["images"] != new["images"]:
            changes.append(f"{name} has {new['images']} images instead of {old['images']}")
        elif differing := [word for key, word in _WORDS.items() if old[key] != new[key]]:
            changes.append(f"{name} differs in {', '.join(differing)}")
    return changes


def class_changes(before: Sequence[str], now: Sequence[str]) -> list[str]:
    """Return how two lists of classes differ, in words; empty if they are equal."""
    if before == now:
        return []
    if len(before) != len(now):
        return [f"there are {len(now)} classes instead of {len(before)}"]
    label = next(i for i, (old, new) in enumerate(zip(before, now, strict=True)) if old != new)
    return [f"class {label} is {now[label]!r} instead of {before[label]!r}"]


def _split(split: Split) -> dict[str, Any]:
    indices = split.indices.tolist()
    chosen = [indices[i] for i in np.linspace(0, len(indices) - 1, min(SAMPLE, len(indices))).astype(int)]
    source, names, sizes = split.source, [], []
    if isinstance(source, FileSource):
        paths = [source.path(index) for index in indices]
        root = os.path.commonpath([os.path.dirname(os.path.abspath(path)) for path in paths])
        names = [os.path.relpath(os.path.abspath(path), root) for path in paths]
        sizes = [str(os.stat(path).st_size) for path in paths]
    return {
        "images": len(indices),
        "names": _digest(name.encode(errors="surrogateescape") for name in names),
        "sizes": _digest(size.encode() for size in sizes),
        "labels": _digest([split.targets.numpy().tobytes()]),
        "sample": _digest(_content(source, index) for index in chosen),
    }


def _content(source: Any, index: int) -> bytes:
    if isinstance(source, FileSource):
        with open(source.path(index), "rb") as file:
            return file.read()
    # Other sources may compute their images, which need not be the same to the last bit.
    return source.images[index].numpy().tobytes() if isinstance(source, TensorSource) else b""


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()
