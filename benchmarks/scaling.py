"""What training costs and how it grows with the number of processes: figures, and from them the tables of a document.

Usage: python benchmarks/scaling.py --bytes       parameters and bytes exchanged per step, counted
       python benchmarks/scaling.py --processes   one against two gloo processes on this CPU, measured
       python benchmarks/scaling.py --gpu         training steps on a GPU, measured (one to two minutes)
       python benchmarks/scaling.py --table       writes the tables of docs/scaling.md from the records
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
from benchmarks.scaling_tables import write_document
from isice.models import PAPER_BACKBONES, create_model
from isice.pooling import create_pooling, list_poolings, pooling_class

CHANNELS = 256
CLASSES = {"CUB-200": 200, "ImageNet-1k": 1000, "iNaturalist": 5089}
# Image size and classes belong together, so that the classifier that is timed is the one of the data.
GPU_DATA = {"ImageNet-1k": (224, 1000), "iNaturalist": (299, 5089), "CUB-200": (448, 200)}
GPU_BACKBONES, GPU_HEADS = ("resnet50", "vgg16"), ("gap", "isqrt_cov", "isice")
# Timed steps of a case: one alone is no median, however little time is left after the preparations.
FEWEST_STEPS, MOST_STEPS = 5, 20


def count_bytes() -> list[dict[str, Any]]:
    """Parameters of every paper backbone with its reduction, and of every head with its classifier."""
    rows: list[dict[str, Any]] = []
    for name in PAPER_BACKBONES:
        model = create_model(name, pooling="gap", num_classes=0, reduce=CHANNELS)
        rows.append({"part": "backbone", "name": name, "parameters": sum(p.numel() for p in model.parameters())})
    for name in list_poolings():
        counts = {data: head_parameters(name, classes) for data, classes in CLASSES.items()}
        rows.append({"part": "head", "name": name, "parameters": counts})
    return rows


def head_parameters(name: str, classes: int) -> int:
    """Parameters of a head with its linear classifier; a head that gives logits has none of its own."""
    pooling = create_pooling(name, CHANNELS, num_classes=classes)
    own = sum(p.numel() for p in pooling.parameters())
    return own if pooling_class(name).needs_num_classes else own + (pooling.out_features + 1) * classes


def measure_processes(repeats: int) -> list[dict[str, Any]]:
    """The same small run with one and with two processes of one thread each, alternating.

    Speed by the clock depends on what else the machine does; CPU time per image tells what the second process costs.
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
    """Speed of the best epoch of a run in ``processes`` processes, and the CPU time of all of them per image."""
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
    """One process of :func:`measure_processes`: a run to warm up, then one whose CPU time is noted."""
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
    """Speed and peak memory of training steps, each case about its share of the time there is; saved after each."""
    torch.backends.cudnn.benchmark = True  # as in training
    cases = [(b, h, d) for d in GPU_DATA for b in GPU_BACKBONES for h in GPU_HEADS]
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
    """The median step of AdamW training in bfloat16 on random images, for about ``seconds`` with the preparations."""
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
    for name in ("bytes", "processes", "gpu", "table"):
        what.add_argument(f"--{name}", action="store_true")
    what.add_argument("--worker", metavar="FOLDER", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="the record to write")
    parser.add_argument("--batch", type=int, default=64, help="images per step and GPU")
    parser.add_argument("--seconds", type=float, default=55.0, help="time for all GPU cases together")
    parser.add_argument("--repeats", type=int, default=2, help="runs per number of processes")
    parser.add_argument("--device", default="cuda", help="where --gpu measures")
    return parser.parse_args()


def main() -> None:
    args = parse()
    if args.worker:
        work(args.worker, args.batch)
    elif args.table:
        write_document()
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
