"""Measure the training step of a network with different poolings, by default ResNet-50 at 448 px.

Usage: python benchmarks/training_step.py [--heads gap isice …] [--modes high medium] [--out FILE]
       python benchmarks/training_step.py --small    a smoke test of the script on any machine

A step is forward, loss, backward, AdamW (fused on a GPU) and zero_grad. On a GPU the
backbone runs in bfloat16 autocast and channels_last; the poolings compute in float32.
Poolings and modes are interleaved, so that changes of the clock rate affect all. Times are
medians of CUDA events after a warm-up.
"""

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.measure import RESULTS, peak_mib, times_ms, write_results
from isice.models import create_model

HEADS = ("gap", "isqrt_cov", "partial_correlation", "precision", "isice", "isice_mlp")
TITLE = "training step, {model} at {size} px, batch {batch}, bfloat16 autocast, channels_last, AdamW, {classes} classes"
SMALL = {"model": "test_resnet", "size": 64, "batch": 2, "reduce": 16, "warm_up": 1, "rounds": 2, "classes": 10}


class Trainer:
    """A network with one pooling on random images, and its training step."""

    def __init__(self, head: str, args: argparse.Namespace, images: Tensor, target: Tensor) -> None:
        torch.manual_seed(args.seed)
        model = create_model(args.model, pooling=head, num_classes=args.classes, reduce=args.reduce)
        self.model = model.to(images.device).to(memory_format=torch.channels_last).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, fused=images.is_cuda)
        self.images, self.target = images, target

    def step(self) -> Tensor:
        """Run one step; return the loss without synchronising."""
        with torch.autocast(self.images.device.type, dtype=torch.bfloat16, enabled=self.images.is_cuda):
            logits, aux_loss = self.model(self.images, return_loss=True)
        loss = cross_entropy(logits.float(), self.target) + aux_loss
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()


def make_batch(args: argparse.Namespace) -> tuple[Tensor, Tensor]:
    """Return random images in channels_last, and labels."""
    generator = torch.Generator().manual_seed(args.seed)
    images = torch.randn(args.batch, 3, args.size, args.size, generator=generator)
    target = torch.randint(args.classes, (args.batch,), generator=generator)
    return images.to(args.device, memory_format=torch.channels_last), target.to(args.device)


def choose_mode(mode: str, cuda: bool) -> None:
    """Set the precision of products on a GPU; a CPU may lack the instructions."""
    if cuda:
        torch.set_float32_matmul_precision(mode)


def measure(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Return a row per mode and pooling, with the ratio to ``gap`` in the same mode."""
    cuda = torch.device(args.device).type == "cuda"
    batch = make_batch(args)
    trainers = {head: Trainer(head, args, *batch) for head in args.heads}
    times: dict[tuple[str, str], list[float]] = {(mode, head): [] for mode in args.modes for head in args.heads}
    for turn in range(args.warm_up + args.rounds):
        for mode, head in times:
            choose_mode(mode, cuda)
            # Skip the first of three: its launches are not hidden behind a
            # step of the same network.
            elapsed = times_ms(trainers[head].step, torch.device(args.device), 3)[1:]
            if turn >= args.warm_up:
                times[mode, head] += elapsed
    rows = []
    for (mode, head), found in times.items():
        choose_mode(mode, cuda)
        row: dict[str, Any] = {"head": head, "mode": mode, "step_ms": statistics.median(found)}
        row |= {"fastest_ms": min(found), "slowest_ms": max(found), "steps": len(found)}
        gap = times.get((mode, "gap"))
        row["ratio_to_gap"] = row["step_ms"] / statistics.median(gap) if gap else None
        # Excludes weights, optimizer state and images, which are allocated already.
        row["peak_mib"] = peak_mib(trainers[head].step, torch.device(args.device))
        row["parameters"] = sum(p.numel() for p in trainers[head].model.parameters())
        row["loss"] = float(trainers[head].step())
        rows.append(row)
    return rows


def markdown(rows: list[dict[str, Any]]) -> str:
    """Format the rows for the terminal."""
    lines = ["| head | mode | step ms | × gap | peak MiB |", "|---|---|--:|--:|--:|"]
    for row in rows:
        ratio = "—" if row["ratio_to_gap"] is None else f"{row['ratio_to_gap']:.3f}"
        peak = "—" if row["peak_mib"] is None else f"{row['peak_mib']:.0f}"
        lines.append(f"| {row['head']} | {row['mode']} | {row['step_ms']:.2f} | {ratio} | {peak} |")
    return "\n".join(lines)


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heads", nargs="+", default=list(HEADS))
    parser.add_argument("--modes", nargs="+", choices=("highest", "high", "medium"), default=["high", "medium"])
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--size", type=int, default=448)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--classes", type=int, default=200)
    parser.add_argument("--reduce", type=int, default=256)
    parser.add_argument("--warm-up", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--small", action="store_true", help="tiny sizes, for a test of the script")
    parser.add_argument("--out", type=Path, default=RESULTS / "training_step.json")
    args = parser.parse_args(argv)
    if args.small:
        vars(args).update(SMALL)
    return args


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    torch.backends.cudnn.benchmark = True  # as in training
    rows = measure(args)
    print(markdown(rows))
    options = [f"--{key} {getattr(args, key)}" for key in ("model", "size", "batch", "classes", "reduce", "rounds")]
    command = " ".join(["python benchmarks/training_step.py", *options, "--heads", *args.heads, "--modes", *args.modes])
    write_results(args.out, TITLE.format(**vars(args)), command, args.seed, torch.device(args.device), rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
