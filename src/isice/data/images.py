"""Decode image files: JPEG with torchvision, all other formats with Pillow.

torchvision is faster for JPEG, but its PNG decoder can crash the process on damaged data. Only
regular files are opened, and the size in the header is checked before pixels are decoded.
EXIF orientation is ignored, as in torchvision's and timm's loaders and in the published results.
"""

import os
import stat
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm")
# Pillow's own limit for an error. A larger image takes 0.5 GB of RGB pixels.
_MAX_PIXELS = 178_956_970
_MAX_PIXELS_VARIABLE = "ISICE_MAX_PIXELS"


class BadImageError(ValueError):
    """An image file that is missing or cannot be decoded."""


def read_image(path: str | Path) -> Tensor:
    """Decode an image file to RGB pixels (3, H, W), uint8.

    Animations give their first frame, 16-bit images the high byte of each value.

    Raises:
        BadImageError: The file is missing, cannot be decoded or has too many pixels.
    """
    limit = max_pixels()
    try:
        return _decode(read_bytes(path), limit)
    # Decoders raise many types for damaged data, such as struct.error, IndexError and RuntimeError.
    except Exception as error:
        raise BadImageError(
            f"data: expected a readable image, got {str(path)!r} ({_reason(error)}); "
            "repair or remove it, or set data.on_bad_image=skip."
        ) from None


def max_pixels() -> int:
    """Return the largest number of pixels that is decoded: ``ISICE_MAX_PIXELS``, or 179 million."""
    text = os.environ.get(_MAX_PIXELS_VARIABLE, str(_MAX_PIXELS))
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"data: expected a positive number of pixels in {_MAX_PIXELS_VARIABLE}, got {text!r}.")
    return int(text)


def read_bytes(path: str | Path) -> bytes:
    """Read a regular file. Opening a named pipe would wait for a writer."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError("it is not a regular file")
    return Path(path).read_bytes()


def check_size(data: bytes, limit: int) -> None:
    """Raise ``ValueError`` if the header of an image announces more than ``limit`` pixels."""
    with _open(data, limit):
        pass


def _open(data: bytes, limit: int) -> Image.Image:
    if limit > _MAX_PIXELS:
        Image.MAX_IMAGE_PIXELS = None  # Pillow's limit is smaller; the check below replaces it.
    image = Image.open(BytesIO(data))
    width, height = image.size
    if width * height > limit:
        raise ValueError(
            f"{width}×{height} pixels are more than the limit of {limit:,}, which {_MAX_PIXELS_VARIABLE} sets"
        )
    return image


def _decode(data: bytes, limit: int) -> Tensor:
    with _open(data, limit) as image:
        if image.format in ("JPEG", "MPO"):
            decoded = _decode_jpeg(data)
            if decoded is not None:
                return decoded
        return torch.from_numpy(np.array(_to_rgb(image))).permute(2, 0, 1).contiguous()


def _decode_jpeg(data: bytes) -> Tensor | None:
    """Decode with torchvision, or return None if it is missing or fails."""
    try:
        from torchvision.io import decode_jpeg  # deprecated since 0.29, may be removed

        pixels: Tensor = decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8), mode="RGB")
    except (ImportError, RuntimeError, ValueError):
        return None
    return pixels


def _to_rgb(image: Image.Image) -> Image.Image:
    """Convert to RGB. Pillow alone would clip 16-bit grey values at 255."""
    sixteen_bit = image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM"))
    if sixteen_bit:
        image = Image.fromarray((np.asarray(image).astype(np.int32) >> 8).astype(np.uint8))
    elif image.mode in ("I", "F"):
        raise ValueError("its 32-bit values have no known range; convert it to 8 or 16 bits")
    return image.convert("RGB")


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "its format is unknown"  # Pillow's message has the address of a buffer
    return str(error) or type(error).__name__


def missing_files(paths: Iterable[str]) -> list[str]:
    """Return the paths that do not exist, listing each folder once."""
    by_folder: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        by_folder[os.path.dirname(path)].append(path)
    missing = []
    for folder, members in by_folder.items():
        present = set(os.listdir(folder)) if os.path.isdir(folder) else set()
        missing += [path for path in members if os.path.basename(path) not in present]
    return missing


def find_bad_images(paths: list[str]) -> dict[int, str]:
    """Decode every file; return path and error, by index, of those that cannot be decoded."""
    limit = max_pixels()

    def problem(path: str) -> str | None:
        try:
            _decode(read_bytes(path), limit)
        except Exception as error:
            return f"{path} ({_reason(error)})"
        return None

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return {index: text for index, text in enumerate(pool.map(problem, paths, chunksize=64)) if text}
