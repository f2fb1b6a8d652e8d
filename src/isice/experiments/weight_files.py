"""Weight files of backbones: found by name in a folder, identified by their content.

A folder of weights holds ``<backbone>.safetensors`` (or ``.pth``, ``.pt``, ``.bin``), with or
without a tag: ``vgg16.safetensors``, ``vgg16.tv_in1k.safetensors``.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path

import safetensors

from .._checks import first_of
from ..config import RunConfig

SUFFIXES = (".safetensors", ".pth", ".pt", ".bin")


def find_weights(root: str | Path, backbone: str) -> Path | None:
    """Return the weight file of a backbone, or None; several candidates are an error."""
    found = [
        path
        for path in sorted(Path(root).expanduser().glob(f"{backbone}.*"))
        if path.suffix in SUFFIXES and path.is_file()
    ]
    if len(found) > 1:
        listed = ", ".join(path.name for path in found)
        raise ValueError(f"weights: expected one file for {backbone!r} in {str(root)!r}, got {listed}; keep one.")
    return found[0] if found else None


def content_hash(path: str | Path) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of a file, read again if it changes."""
    path = Path(path).expanduser()
    stat = path.stat()
    return _content_hash(path, stat.st_mtime_ns, stat.st_size)


@cache
def _content_hash(path: Path, *_changes: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def with_weights(config: RunConfig, files: dict[str, Path | None]) -> RunConfig:
    """Set ``model.checkpoint_path`` and ``model.weights`` of a pretrained backbone that has a file.

    A given ``checkpoint_path`` takes precedence; it is identified by its content, too.
    """
    model = config.model
    path = model.checkpoint_path or (files.get(model.backbone) if model.pretrained else None)
    if path is None or not Path(path).expanduser().is_file():
        return config
    return replace(config, model=replace(model, checkpoint_path=str(path), weights=content_hash(path)))


def find_all(root: str | Path | None, configs: Iterable[object]) -> dict[str, Path | None]:
    """Find the files of all pretrained backbones; one error names all that are missing.

    These files and every given ``model.checkpoint_path`` must be readable.
    """
    models = [config.model for config in configs if isinstance(config, RunConfig)]
    for given in sorted({model.checkpoint_path for model in models if model.checkpoint_path is not None}):
        _check_given(Path(given).expanduser())
    if root is None:
        return {}
    names = sorted({model.backbone for model in models if model.pretrained and model.checkpoint_path is None})
    files = {name: find_weights(root, name) for name in names}
    missing = [name for name, path in files.items() if path is None]
    if missing:
        raise FileNotFoundError(
            f"weights: expected a file for every backbone in {str(root)!r}, missing: {', '.join(missing)}; "
            f"{_content_of(Path(root).expanduser())}; name a file {missing[0]}.safetensors (or "
            f"{', '.join(SUFFIXES[1:])}), or leave out --weights-root (ISICE_WEIGHTS) to download."
        )
    for path in files.values():
        if path is not None:
            _check_readable(path)
    return files


def _content_of(root: Path) -> str:
    """Say what was found in place of weight files."""
    if not root.is_dir():
        return "that is a file" if root.exists() else "there is no such folder"
    names = sorted(path.name for path in root.iterdir() if path.suffix in SUFFIXES)
    return f"got {first_of(names)}" if names else "got no weight files"


def _check_given(path: Path) -> None:
    if not path.is_file():
        problem = "that is a folder" if path.is_dir() else "there is no such file"
        raise FileNotFoundError(
            f"weights: expected a weight file in model.checkpoint_path={str(path)!r}, but {problem}; check the path."
        )
    _check_readable(path)


def _check_readable(path: Path) -> None:
    """Read the header of a safetensors file, or load a file of torch without executing code."""
    try:
        if path.suffix == ".safetensors":
            with safetensors.safe_open(path, framework="numpy"):
                return
        import torch

        torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged pickle raises nearly anything
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise ValueError(f"weights: expected a readable file {path.name}, got {reason}; copy it again.") from error
