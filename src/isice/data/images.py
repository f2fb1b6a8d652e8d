"""Decode image files with torchvision, or with Pillow where torchvision cannot.

EXIF orientation is ignored, as in torchvision's and timm's loaders and in the published results.
"""

import os
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

# What Pillow raises for files that are not images.
_UNREADABLE = (OSError, ValueError, SyntaxError, Image.DecompressionBombError)

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm")


class BadImageError(ValueError):
    """An image file that is missing or cannot be decoded."""


def read_image(path: str | Path) -> Tensor:
    """Decode an image file to RGB.

    Args:
        path: The file. Of a GIF, the first frame is decoded.

    Returns:
        Pixels (3, H, W), uint8.

    Raises:
        BadImageError: The file is missing or cannot be decoded.
    """
    try:
        return _decode(path)
    except _UNREADABLE as error:
        raise BadImageError(
            f"data: expected a readable image, got {str(path)!r} ({error}); "
            "repair or remove it, or set data.on_bad_image=skip."
        ) from None


def _decode(path: str | Path) -> Tensor:
    try:
        from torchvision.io import decode_image  # deprecated since 0.29, may be removed

        image: Tensor = decode_image(str(path), mode="RGB")
    except (ImportError, RuntimeError, ValueError):
        return _decode_with_pillow(path)
    if image.dtype != torch.uint8:  # a 16-bit PNG
        return _decode_with_pillow(path)
    return image[0] if image.ndim == 4 else image


def _decode_with_pillow(path: str | Path) -> Tensor:
    with Image.open(path) as image:
        return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1).contiguous()


def missing_files(paths: Iterable[str]) -> list[str]:
    """Return the paths that do not exist, listing each folder once instead of checking each file.

    Example:
        >>> missing_files(["nowhere/a.jpg"])
        ['nowhere/a.jpg']
    """
    by_folder: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        by_folder[os.path.dirname(path)].append(path)
    missing = []
    for folder, members in by_folder.items():
        present = set(os.listdir(folder)) if os.path.isdir(folder) else set()
        missing += [path for path in members if os.path.basename(path) not in present]
    return missing


def find_bad_images(paths: list[str], threads: int | None = None) -> dict[int, str]:
    """Decode every file; return path and error, by index, of those that cannot be decoded."""

    def problem(path: str) -> str | None:
        try:
            _decode(path)
        except _UNREADABLE as error:
            return f"{path} ({error})"
        return None

    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        return {index: text for index, text in enumerate(pool.map(problem, paths, chunksize=64)) if text}
