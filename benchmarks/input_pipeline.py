"""Measure the input pipeline, from JPEG files to normalised batches, in images per second.

Usage: python benchmarks/input_pipeline.py [--size 448] [--workers 0 1 2 4] [--root FOLDER]

Cases: decoding in one thread (torchvision and Pillow); decoding, resizing and flipping in worker
processes; flipping images cached in memory; and, with CUDA, decoding the dataset on the GPU and
batches from the GPU cache. Batches are copied to the device and normalised there.

Without --root (an image folder), JPEG files of 500×375 pixels of 1/f noise are generated; they are
about as large as photographs. Files come from the page cache, so the disk is not measured.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.measure import RESULTS, write_results
from isice.config import DataConfig
from isice.data import GpuBatches, Split, create_loader
from isice.data.gpu_cache import decode_split
from isice.data.images import read_image
from isice.data.layouts import load_folder
from isice.data.sources import FileSource
from isice.data.transforms import create_transforms

WIDTH, HEIGHT, QUALITY, DISTINCT = 500, 375, 90, 256


def make_photographs(folder: Path, seed: int) -> FileSource:
    """Write JPEG files with the 1/f spectrum of photographs, so that decoding costs as much."""
    rng = np.random.default_rng(seed)
    frequency = np.hypot(np.fft.fftfreq(HEIGHT)[:, None], np.fft.rfftfreq(WIDTH)[None])
    frequency[0, 0] = 1.0
    paths = []
    for number in range(DISTINCT):
        noise = np.fft.rfft2(rng.normal(size=(3, HEIGHT, WIDTH)))
        pixels = np.fft.irfft2(noise / frequency, s=(HEIGHT, WIDTH))
        pixels = 128 + 50 * pixels / pixels.std(axis=(1, 2), keepdims=True)
        paths.append(str(folder / f"{number}.jpg"))
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8).transpose(1, 2, 0)).save(paths[-1], quality=QUALITY)
    return FileSource(paths, [0] * DISTINCT)


def rate(epoch: Callable[[], Iterable[Any]], images: int, repeats: int, device: torch.device) -> float:
    """Return the median images per second of a pass, after one warm-up pass."""
    seconds = []
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        for _ in epoch():
            pass
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    return images / statistics.median(seconds[1:])


def decoding(source: FileSource, repeats: int) -> Iterator[dict[str, Any]]:
    """Measure decoding in one thread."""
    cpu, paths = torch.device("cpu"), source.paths

    def pillow(path: str) -> Image.Image:
        with Image.open(path) as image:
            return image.convert("RGB")

    for name, decode in (("torchvision", read_image), ("Pillow", pillow)):
        per_second = rate(lambda decode=decode: map(decode, paths), len(paths), repeats, cpu)
        yield {"path": f"decode only, {name}, one thread", "images_per_second": per_second}


def through_workers(part: Split, batches: list[list[int]], args: argparse.Namespace, path: str) -> Iterator[dict]:
    """Measure the training loader for each number of workers."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    images = sum(map(len, batches))
    for workers in args.workers:
        loader = create_loader(part, DataConfig(workers=workers), batches, device)
        per_second = rate(lambda loader=loader: loader, images, args.repeats, device)
        yield {"path": path, "workers": workers, "images_per_second": per_second}


def on_gpu(part: Split, batches: list[list[int]], args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measure decoding on the GPU, then batches from the GPU cache."""
    device, images = torch.device("cuda"), sum(map(len, batches))
    counts = []

    def decode() -> list[None]:
        counts.append(decode_split(part, device)[1])
        return []

    per_second = rate(decode, len(part), args.repeats, device)
    yield {"path": "decode and resize on the GPU, once", "images_per_second": per_second, "decoded_by": counts[-1]}
    loader = GpuBatches(part, batches, device)
    yield {
        "path": "batches from the GPU cache",
        "images_per_second": rate(lambda: loader, images, args.repeats, device),
    }


def measure(source: FileSource, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measure all cases."""
    transform, _ = create_transforms("paper", args.size)
    indices = [index % len(source) for index in range(args.images)]
    part = Split(source, transform, indices)
    batches = [list(range(i, i + args.batch)) for i in range(0, args.images - args.batch + 1, args.batch)]
    yield from decoding(source.keep(range(min(len(source), DISTINCT))), args.repeats)
    yield from through_workers(part, batches, args, "decode, resize and flip in workers")
    if torch.cuda.is_available():
        yield from on_gpu(part, batches, args)
    part.cache_in_memory()
    yield from through_workers(part, batches, args, "flip in workers, from the cache in memory")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=448)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--images", type=int, default=2048, help="images per pass")
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--root", help="image folder, train/<class>/*")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--commit", help="commit of this code, if git cannot tell")
    parser.add_argument("--out", type=Path, default=RESULTS / "input_pipeline.json")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if args.root:
            source: Any = load_folder(DataConfig(name="folder", root=args.root)).train
        else:
            source = make_photographs(Path(folder), args.seed)
        sample = source.paths[:DISTINCT]
        kilobytes = sum(os.path.getsize(path) for path in sample) / len(sample) / 1e3
        rows = []
        for row in measure(source, args):
            row |= {"size": args.size, "batch": args.batch, "kilobytes_per_file": round(kilobytes, 1)}
            workers = f", {row['workers']} workers" if "workers" in row else ""
            print(f"{row['path']}{workers}: {row['images_per_second']:.0f} images/s", flush=True)
            rows.append(row)
    options = [f"--{name} {getattr(args, name)}" for name in ("size", "batch", "images", "repeats", "seed")]
    source_option = ["--root FOLDER"] if args.root else []
    command = " ".join(
        ["python benchmarks/input_pipeline.py", *options, "--workers", *map(str, args.workers), *source_option]
    )
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    write_results(args.out, f"input pipeline at {args.size} px", command, args.seed, device, rows, args.commit)


if __name__ == "__main__":
    main()
