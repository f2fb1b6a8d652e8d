"""Damaged, oversized and unusual files: no crash, hang or unbounded memory; the file is named."""

import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from isice.data.images import BadImageError, find_bad_images, read_image

from .conftest import save_image

# Runs in its own process, because a decoder that crashes ends the process.
FUZZ = """
import sys, warnings
from pathlib import Path
import numpy as np
from isice.data.images import BadImageError, read_image

warnings.simplefilter("ignore")
folder, count = Path(sys.argv[1]), int(sys.argv[2])
rng = np.random.default_rng(0)
for path in sorted(folder.iterdir()):
    original, refused = np.frombuffer(path.read_bytes(), np.uint8), 0
    for _ in range(count):
        damaged = original.copy()
        for place in rng.integers(0, len(damaged), rng.integers(1, 4)):
            damaged[place] ^= np.uint8(1 << rng.integers(0, 8))
        path.write_bytes(damaged[: rng.integers(len(damaged) // 2, len(damaged) + 1)].tobytes())
        try:
            image = read_image(path)
            assert image.shape[0] == 3, image.shape
        except BadImageError as error:
            refused += 1
            assert path.name in str(error), error
    print(path.name, refused)
"""
FORMATS = (".jpg", ".png", ".bmp", ".gif", ".webp", ".tif", ".ppm")


def fuzz(folder: Path, suffixes: tuple[str, ...], count: int) -> dict[str, int]:
    for suffix in suffixes:
        save_image(folder / f"image{suffix}", size=(60, 48))
    if ".png" in suffixes:
        grey = np.random.default_rng(0).integers(0, 65536, (40, 40), dtype=np.uint16)
        Image.fromarray(grey).save(folder / "sixteen.png")
        Image.fromarray(grey.astype(np.uint8)).save(folder / "grey.png")
    done = subprocess.run(
        [sys.executable, "-c", FUZZ, str(folder), str(count)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"status {done.returncode}: {done.stdout}{done.stderr}"
    return {name: int(refused) for name, refused in (line.split() for line in done.stdout.splitlines())}


def test_damaged_png_does_not_end_the_process(tmp_path: Path):
    refused = fuzz(tmp_path, (".png", ".jpg"), 25)
    assert len(refused) == 4
    assert refused["image.png"] > 12


@pytest.mark.slow
@pytest.mark.parametrize("suffix", FORMATS)
def test_damaged_files_of_every_format(tmp_path: Path, suffix: str):
    assert fuzz(tmp_path, (suffix,), 500)


def damage(path: Path) -> None:
    """Overwrite the compressed pixels of a PNG, which its checksum covers too."""
    data = bytearray(path.read_bytes())
    start = data.index(b"IDAT") + 4
    for place in range(start, start + 40):
        data[place] ^= 0x5A
    path.write_bytes(data)


def test_a_png_named_jpg_takes_the_same_way(tmp_path: Path):
    path = save_image(tmp_path / "a.png")
    damage(path)
    with pytest.raises(BadImageError, match=r"b\.jpg"):
        read_image(path.rename(tmp_path / "b.jpg"))


@pytest.mark.parametrize("suffix", [".png", ".tif", ".ppm"])
def test_sixteen_bit_grey_keeps_its_brightness(tmp_path: Path, suffix: str):
    values = (np.arange(64 * 64, dtype=np.uint32) * 16).reshape(64, 64).astype(np.uint16)
    path = tmp_path / f"grey{suffix}"
    if suffix == ".ppm":  # by hand, because earlier versions of Pillow do not write it
        path.write_bytes(b"P5 64 64 65535\n" + values.astype(">u2").tobytes())
    else:
        Image.fromarray(values).save(path)
    found = read_image(path)
    assert (found.numpy() == (values >> 8).astype(np.uint8)).all()


def png(path: Path, width: int, height: int, body: bytes, *, interlaced: bool) -> Path:
    """Write an RGB file by chunks: Pillow writes neither interlaced nor false files."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, interlaced)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(body)), (b"IEND", b"")]
    parts = [struct.pack(">I", len(b)) + n + b + struct.pack(">I", zlib.crc32(n + b)) for n, b in chunks]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))
    return path


def test_interlaced_png(tmp_path: Path):
    pixels = np.random.default_rng(0).integers(0, 256, (3, 5, 3), dtype=np.uint8)
    adam7 = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    rows = [row for top, left, down, right in adam7 for row in pixels[top::down, left::right] if row.size]
    body = b"".join(b"\0" + row.tobytes() for row in rows)
    path = png(tmp_path / "interlaced.png", 5, 3, body, interlaced=True)
    assert (read_image(path).permute(1, 2, 0).numpy() == pixels).all()


@pytest.mark.parametrize("mode", ["I", "F"])
def test_values_without_a_range_are_refused(tmp_path: Path, mode: str):
    Image.new(mode, (4, 4)).save(tmp_path / "a.tif")
    with pytest.raises(BadImageError, match=r"a\.tif.*no known range"):
        read_image(tmp_path / "a.tif")


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".gif", ".bmp"])
def test_pixel_limit(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch):
    path = save_image(tmp_path / f"large{suffix}", size=(40, 30))
    monkeypatch.setenv("ISICE_MAX_PIXELS", "1200")
    assert read_image(path).shape == (3, 30, 40)
    monkeypatch.setenv("ISICE_MAX_PIXELS", "1199")
    with pytest.raises(BadImageError, match=r"large.*40×30 pixels are more than the limit of 1,199"):
        read_image(path)
    assert list(find_bad_images([str(path)])) == [0]


def test_a_bomb_is_refused_by_default(tmp_path: Path):
    path = png(tmp_path / "bomb.png", 20_000, 20_000, b"", interlaced=False)
    with pytest.raises(BadImageError, match=r"bomb\.png.*exceeds limit"):
        read_image(path)


@pytest.mark.parametrize("text", ["0", "-1", "many", ""])
def test_pixel_limit_must_be_a_number(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ISICE_MAX_PIXELS", text)
    with pytest.raises(ValueError, match="positive number of pixels in ISICE_MAX_PIXELS, got"):
        read_image(save_image(tmp_path / "a.png"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
@pytest.mark.parametrize("suffix", [".png", ".jpg"])
def test_a_named_pipe_is_refused(tmp_path: Path, suffix: str):
    os.mkfifo(tmp_path / f"pipe{suffix}")
    with pytest.raises(BadImageError, match="not a regular file"):
        read_image(tmp_path / f"pipe{suffix}")
