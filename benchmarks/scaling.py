"""Measure what training costs and how it scales with processes; docs/build.py makes the tables.

Usage: python benchmarks/scaling.py --bytes       count parameters and bytes exchanged per step
       python benchmarks/scaling.py --processes   time one against two gloo processes on this CPU
       python benchmarks/scaling.py --gpu         time training steps on a GPU (one to two minutes)
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.measure import RESULTS, write_results
from isice.models import PAPER_BACKBONES, create_model
from isice.pooling import create_pooling, list_poolings, pooling_class

CHANNELS = 256
CLASSES = {"CUB-200": 200, "ImageNet-1k": 1000, "iNaturalist": 5089}
# Image size and number of classes of each dataset, so that the right classifier is timed.
GPU_DATA = {"ImageNet-1k": (224, 1000), "iNaturalist": (299, 5089), "CUB-200": (448, 200)}
# Timed steps of a case: at least enough for a median, even if set-up used up the time.
FEWEST_STEPS, MOST_STEPS = 5, 20


def count_bytes() -> list[dict[str, Any]]:
    """Count the parameters of the paper's backbones with reduction and of every pooling."""
    rows: list[dict[str, Any]] = []
    for name in PAPER_BACKBONES:
        model = create_model(name, pooling="gap", num_classes=0, reduce=CHANNELS)
        rows.append({"part": "backbone", "name": name, "parameters": sum(p.numel() for p in model.parameters())})
    for name in list_poolings():
        counts = {data: head_parameters(name, classes) for data, classes in CLASSES.items()}
        rows.append({"part": "head", "name": name, "parameters": counts})
    return rows


def head_parameters(name: str, classes: int) -> int:
    """Count the parameters of a pooling with its linear classifier, if it needs one."""
    pooling = create_pooling(name, CHANNELS, num_classes=classes)
    own = sum(p.numel() for p in pooling.parameters())
    return own if pooling_class(name).needs_num_classes else own + (pooling.out_features + 1) * classes


def measure_processes(repeats: int) -> list[dict[str, Any]]:
    """Time the same small run with one and with two processes of one thread each, alternating.

    Wall-clock speed depends on other load; CPU time per image shows the
    overhead of the second process.
    """
    rows = []
    for batch in (64, 512):
        found: dict[int, list[dict[str, float]]] = {1: [], 2: []}
        for _ in range(repeats):
            for processes, runs in found.items():
                runs.append(_run_processes(processes, batch))
        best = {n: max(run["images_per_second"] for run in runs) for n, runs in found.items()}
        cpu = {n: min(run["cpu_ms_per_image"] for run in runs) for n, runs in found.items()}
        row = {
            "backbone": "small_cnn",
            "head": "isqrt_cov",
            "batch": batch,
            "runs": {str(n): r for n, r in found.items()},
        }
        row |= {"efficiency": best[2] / (2 * best[1]), "cpu_efficiency": cpu[1] / cpu[2]}
        rows.append(row | {"load_average": os.getloadavg()[0], "cores": os.cpu_count()})
    return rows


def _run_processes(processes: int, batch: int) -> dict[str, float]:
    """Return the speed of the fastest epoch and the CPU time per image over all processes."""
    with tempfile.TemporaryDirectory() as folder:
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        command = [sys.executable, *launcher, __file__, "--worker", folder, "--batch", str(batch)]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        subprocess.run(command, env=environment, check=True, stderr=subprocess.DEVNULL)
        record = json.loads((Path(folder) / "run" / "record.json").read_text(encoding="utf-8"))
        seconds = sum(float(path.read_text()) for path in Path(folder).glob("cpu_*"))
    images = len(record["epochs"]) * record["images"]["train"]
    speed = max(row["images_per_second"] for row in record["epochs"])
    return {"images_per_second": speed, "cpu_ms_per_image": 1e3 * seconds / images}


def work(folder: str, batch: int) -> None:
    """Run one process of :func:`measure_processes`: a warm-up run, then a timed one."""
    from isice.config import override
    from isice.experiments.loader import load_recipe
    from isice.train import train_run

    settings = ["model.pooling=isqrt_cov", f"data.batch_size={batch}", "data.val_fraction=0", "select_on=last"]
    config = override(load_recipe("small"), [*settings, "tensorboard=false", "device=cpu"])
    train_run(override(config, ["optim.epochs=1"]), Path(folder) / "warm")
    start = time.process_time()
    train_run(override(config, ["optim.epochs=4"]), Path(folder) / "run")
    (Path(folder) / f"cpu_{os.environ['RANK']}").write_text(str(time.process_time() - start))


def measure_gpu(device: torch.device, args: argparse.Namespace, save: Callable[[list[dict[str, Any]]], None]) -> None:
    """Time training steps for ``args.seconds`` in all; save the rows after each case."""
    torch.backends.cudnn.benchmark = True  # as in training
    cases = [(b, p, d) for d in args.data for b in args.backbones for p in args.poolings]
    end, rows = time.perf_counter() + args.seconds, []
    for index, (backbone, head, data) in enumerate(cases):
        share = min((end - time.perf_counter()) / (len(cases) - index), 10.0)
        row = {"backbone": backbone, "head": head, "data": data, "batch": args.batch}
        try:
            row |= time_steps(backbone, head, *GPU_DATA[data], args.batch, device, share)
        except torch.OutOfMemoryError as error:
            row["error"] = str(error)
        rows.append(row)
        print(row, flush=True)
        save(rows)


def time_steps(
    backbone: str, head: str, size: int, classes: int, batch: int, device: torch.device, seconds: float
) -> dict[str, Any]:
    """Return the median AdamW step in bfloat16 on random images, within about ``seconds``."""
    start = time.perf_counter()
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    model = create_model(backbone, pooling=head, num_classes=classes, reduce=CHANNELS)
    model = model.to(device).to(memory_format=torch.channels_last).train()
    x = torch.randn(batch, 3, size, size, device=device).contiguous(memory_format=torch.channels_last)
    target = torch.randint(classes, (batch,), device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def step() -> float:
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=cuda):
            logits, aux_loss = model(x, return_loss=True)
        (cross_entropy(logits.float(), target) + aux_loss).backward()
        optimizer.step()
        if cuda:
            torch.cuda.synchronize(device)
        return time.perf_counter() - begin

    for _ in range(3):
        step()
    times = [step()]
    while len(times) < FEWEST_STEPS or (len(times) < MOST_STEPS and time.perf_counter() - start < seconds):
        times.append(step())
    median = statistics.median(times)
    parameters = sum(p.numel() for p in model.parameters())
    return {
        "image_size": size,
        "classes": classes,
        "parameters": parameters,
        "steps": len(times),
        "step_ms": 1e3 * median,
        "images_per_second": batch / median,
        "peak_gpu_bytes": torch.cuda.max_memory_allocated(device) if cuda else None,
    }


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    for name in ("bytes", "processes", "gpu"):
        what.add_argument(f"--{name}", action="store_true")
    what.add_argument("--worker", metavar="FOLDER", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="record to write")
    parser.add_argument("--batch", type=int, default=64, help="images per step and GPU")
    parser.add_argument("--seconds", type=float, default=55.0, help="time for all cases of --gpu together")
    parser.add_argument("--repeats", type=int, default=2, help="runs per number of processes")
    parser.add_argument("--device", default="cuda", help="device of --gpu")
    parser.add_argument(
        "--data", nargs="+", choices=list(GPU_DATA), default=list(GPU_DATA), help="image sizes of --gpu"
    )
    parser.add_argument("--backbones", nargs="+", default=["resnet50", "vgg16"], help="backbones of --gpu")
    parser.add_argument("--poolings", nargs="+", default=["gap", "isqrt_cov", "isice"], help="poolings of --gpu")
    return parser.parse_args()


def main() -> None:
    args = parse()
    if args.worker:
        work(args.worker, args.batch)
    else:
        torch.manual_seed(0)
        name = next(name for name in ("bytes", "processes", "gpu") if getattr(args, name))
        device = torch.device(args.device if args.gpu else "cpu")
        command = f"python benchmarks/scaling.py --{name}"
        title = {
            "bytes": "parameters of backbones and heads",
            "processes": "one and two processes",
            "gpu": "training steps on one GPU, bfloat16 autocast, channels_last, AdamW, random images and weights",
        }[name]
        save = partial(write_results, args.out or RESULTS / f"scaling_{name}.json", title, command, 0, device)
        if args.gpu:
            measure_gpu(device, args, save)
        else:
            save(count_bytes() if args.bytes else measure_processes(args.repeats))


if __name__ == "__main__":
    main()
