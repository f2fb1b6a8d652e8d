"""Benchmark the second-order layers on a GPU: time, memory, accuracy, share of the hardware limits.

Usage: python benchmarks/gpu_speed.py [--quick] [--features FILE.npy] [--authors SICE.py]
       python benchmarks/gpu_speed.py --backends auto    measures the kernels alone
       python benchmarks/gpu_speed.py --small    a smoke test of the script on any machine

Backends: the kernels ("auto"), PyTorch ("torch") and the published algorithm by autograd
("published"), in the modes of torch.set_float32_matmul_precision. --authors adds iSICE from
src/representation/SICE.py of the paper's repository ("authors"; times only, because it divides by
another trace).

Times are medians of CUDA events after a warm-up. Errors are ‖value − exact‖/‖exact‖ for 16 images,
against the float64 reference. Features are synthetic. --features adds those of a network: an array
(B, C, N) from network_features.py. The peak throughput of the GPU is measured in the same run.
"""

import argparse
import contextlib
import functools
import hashlib
import importlib.util
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import isice.functional as F
from benchmarks import published
from benchmarks.measure import RESULTS, count_flops, median_error, median_ms, peak_mib, relative_error, write_results
from isice.ops import _dispatch
from isice.ops.covariance import covariance_reference
from isice.ops.isice import isice_reference
from isice.ops.newton_schulz import newton_schulz_reference
from isice.ops.vectorize import vectorize_reference
from isice.pooling import Pooling, create_pooling

HEADS = ("isice", "isqrt_cov", "precision", "isice_mlp")
MODES = ("highest", "high", "medium")
BACKENDS = ("auto", "torch", "published")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
CHECKED = 16  # images whose values and gradients are compared with float64


class Shape(NamedTuple):
    """Features (batch, channels, side, side)."""

    batch: int
    channels: int
    side: int


SHAPES = (Shape(128, 256, 14), Shape(32, 256, 14), Shape(64, 512, 28), Shape(128, 128, 14))
Function = Callable[[Tensor], Tensor]


@contextlib.contextmanager
def pytorch_only() -> Iterator[None]:
    """Disable the kernels: layers, unlike functions, have no option for it."""
    with mock.patch.object(_dispatch, "kernels_missing", return_value="the benchmark measures PyTorch"):
        matrix = torch.eye(16, device="cuda" if torch.cuda.is_available() else "cpu")
        if _dispatch.use_kernels("gpu_speed", "auto", matrix, 5):
            raise RuntimeError("gpu_speed: expected PyTorch to compute, but kernels would; correct pytorch_only().")
        yield


def make_layer(name: str, channels: int, seed: int) -> Pooling:
    """Create a layer with default options and nonzero parameters, to test every gradient."""
    layer = create_pooling(name, channels)
    generator = torch.Generator().manual_seed(seed)
    for parameter in layer.parameters():
        parameter.data = 0.1 * torch.randn(parameter.shape, generator=generator)
    return layer


def reference(name: str, layer: Pooling, x: Tensor) -> Tensor:
    """Compute the output of the layer by the reference implementations."""
    cov = covariance_reference(x.flatten(2))
    if name == "isqrt_cov":
        return vectorize_reference(newton_schulz_reference(cov, 5, "sqrt"))
    if name == "precision":
        return vectorize_reference(newton_schulz_reference(cov, 7, "inverse"))
    options: dict[str, Any] = {}
    if name == "isice_mlp":
        step_factor, sparsity_factor = layer.modulate(x.mean(dim=(-2, -1)))
        options = {"step_size": layer.step_size * step_factor, "sparsity": layer.sparsity * sparsity_factor}
    return vectorize_reference(isice_reference(cov, **options))


def count_products(name: str) -> int:
    """Count the D×D×D matrix products of the forward pass, except the covariance's."""
    operation = {"isqrt_cov": F.newton_schulz_sqrt, "precision": F.newton_schulz_inverse}.get(name, F.isice)
    with count_flops() as forward:
        operation((torch.eye(8) + 0.1)[None], backend="torch")
    return forward.get_total_flops() // (2 * 8**3)


def arithmetic(name: str, shape: Shape, n: int, itemsize: int) -> dict[str, float]:
    """Return operations and minimal memory traffic of forward and backward.

    A product LC counts D³ operations, half of 2·D³, because it is symmetric; so does each of the
    two of its derivative dL·C + L·dC. The backward pass computes all three. The covariance counts
    D²·N forward and 2·D²·N backward. The traffic is that of features, vectors and their gradients
    alone, each read or written once.
    """
    forward, d = count_products(name), shape.channels
    backward, vector = 3 * forward, d * (d + 1) // 2
    operations = shape.batch * ((forward + backward) * d**3 + 3 * d**2 * n)
    traffic = shape.batch * (3 * d * n * itemsize + 2 * vector * 4)
    return {"products_forward": forward, "products_backward": backward, "operations": operations, "bytes": traffic}


def make_features(shape: Shape, seed: int) -> Tensor:
    """Create ReLU-like maps (B, C, H, W) with correlated channels."""
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(shape.channels, shape.channels, generator=generator) / shape.channels**0.5
    noise = torch.randn(shape.batch, shape.channels, shape.side**2, generator=generator)
    return (mixing @ noise).relu().unflatten(-1, (shape.side, shape.side))


def value_and_gradient(function: Function, x: Tensor, cotangent: Tensor) -> tuple[Tensor, Tensor]:
    """Return the value and the gradient of ⟨cotangent, value⟩."""
    x = x.detach().requires_grad_()
    value = function(x)
    return value.detach(), torch.autograd.grad(value, x, cotangent)[0]


def errors(function: Function, x: Tensor, cotangent: Tensor, exact: tuple[Tensor, Tensor]) -> dict[str, float]:
    """Return the relative errors of value and gradient, over all images and for the median one."""
    found = value_and_gradient(function, x, cotangent)
    pairs = [(a[: len(b)], b) for a, b in zip(found, exact, strict=True)]
    names = ("error", "gradient_error")
    of_all = {name: relative_error(*pair) for name, pair in zip(names, pairs, strict=True)}
    return of_all | {f"median_{name}": median_error(*pair) for name, pair in zip(names, pairs, strict=True)}


def timings(function: Function, x: Tensor, cotangent: Tensor, repeats: int) -> dict[str, Any]:
    """Return times and peak memory of one layer."""

    def forward() -> None:
        with torch.no_grad():
            function(x)

    def both() -> None:
        value_and_gradient(function, x, cotangent)

    return {
        "forward_ms": median_ms(forward, x.device, repeats),
        "forward_backward_ms": median_ms(both, x.device, repeats),
        "peak_mib": peak_mib(both, x.device),
    }


def authors_layer(path: Path, channels: int) -> torch.nn.Module:
    """Load iSICE from the authors' file, with the defaults of this package."""
    spec = importlib.util.spec_from_file_location("authors", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise SystemExit(f"gpu_speed: expected a Python file with a class SICE, got {path}; pass the authors' SICE.py.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, "SICE"):
        raise SystemExit(f"gpu_speed: expected a class SICE in {path}, got none; pass the authors' SICE.py.")
    return module.SICE(iterNum=5, input_dim=channels, sparsity_val=0.01, sice_lrate=1.0)


def variants(name: str, layer: Pooling, dtype: str, args: argparse.Namespace) -> Iterator[tuple[str, str, Function]]:
    """Yield backend, mode and function of every row of one layer, shape and dtype."""
    if args.authors and name == "isice" and dtype == "float32":
        theirs = authors_layer(args.authors, layer.in_channels).to(args.device)
        for mode in ("highest", "high"):
            yield "authors", mode, lambda x: theirs(x).squeeze(-1)
    for backend, mode in itertools.product(args.backends, args.modes):
        if backend == "auto":
            yield backend, mode, layer
        elif dtype == "float32" and (backend == "torch" or (name in published.HEADS and mode != "medium")):
            plain = layer if backend == "torch" else (lambda x: published.HEADS[name](x.flatten(2)))
            yield backend, mode, plain


def case(
    name: str, shape: Shape, dtype: str, limits: dict[str, float], args: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Yield the rows of one layer, shape and dtype."""
    device = torch.device(args.device)
    layer = make_layer(name, shape.channels, args.seed).to(device)
    exact_layer = make_layer(name, shape.channels, args.seed).to(device, torch.float64)
    inputs = {"": make_features(shape, args.seed).to(device, DTYPES[dtype])}
    if args.real is not None and args.real.shape[1] == shape.channels:
        inputs["real_"] = args.real[: shape.batch].to(device, DTYPES[dtype])
    generator = torch.Generator().manual_seed(args.seed + 1)
    cotangent = torch.randn(shape.batch, layer.out_features, generator=generator).to(device)
    exact = {
        kind: value_and_gradient(
            lambda v: reference(name, exact_layer, v), x[:CHECKED].double(), cotangent[: len(x[:CHECKED])].double()
        )
        for kind, x in inputs.items()
    }
    counts = arithmetic(name, shape, shape.side**2, inputs[""].element_size())
    for backend, mode, function in variants(name, layer, dtype, args):
        if device.type == "cuda":  # on a CPU, a mode may select instructions that it lacks
            torch.set_float32_matmul_precision(mode)
        row: dict[str, Any] = {"part": "layer", "head": name, **shape._asdict(), "dtype": dtype}
        row |= {"backend": backend, "mode": mode, **counts}
        with pytorch_only() if backend == "torch" else contextlib.nullcontext():
            for kind, x in inputs.items() if backend != "authors" else ():
                found = errors(function, x, cotangent[: len(x)], exact[kind])
                row |= {f"{kind}{key}": value for key, value in found.items()}
            repeats = args.repeats if backend in ("auto", "torch") else 3
            row |= timings(function, inputs[""], cotangent, repeats)
        row |= fractions(row, limits)
        yield row


def fractions(row: dict[str, Any], limits: dict[str, float]) -> dict[str, float]:
    """Return the throughput of forward and backward, and its fraction of the limits."""
    seconds = row["forward_backward_ms"] / 1e3
    tflops = row["operations"] / seconds / 1e12
    found = {"tflops": tflops}
    if limits:
        found |= {f"of_{name}": tflops / limits[f"{name}_tflops"] for name in ("bf16", "fp16", "tf32")}
        found["of_bandwidth"] = row["bytes"] / seconds / 1e9 / limits["copy_gb_per_s"]
    return found


def measure_limits(device: torch.device) -> dict[str, float]:
    """Measure the throughput of large products (2·size³ operations) and copies."""
    found, size = {}, 8192
    kinds = (("bf16", torch.bfloat16, "highest"), ("fp16", torch.float16, "highest"), ("tf32", torch.float32, "high"))
    for name, dtype, mode in kinds:
        torch.set_float32_matmul_precision(mode)
        a, b, out = torch.randn(3, size, size, device=device, dtype=dtype)
        ms = median_ms(functools.partial(torch.mm, a, b, out=out), device, 7)
        found[f"{name}_tflops"] = 2 * size**3 / ms / 1e9
    source = torch.empty(2**30, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    ms = median_ms(lambda: target.copy_(source), device, 7)
    found["copy_gb_per_s"] = 2 * source.numel() / ms / 1e6  # read and written
    return found


def line(row: dict[str, Any]) -> str:
    """Format one row for the terminal."""
    peak = "—" if row["peak_mib"] is None else f"{row['peak_mib']:.0f} MiB"
    share = f", {row['of_bf16']:.0%} of bf16" if "of_bf16" in row else ""
    accuracy = f", error {row['error']:.0e} / {row['gradient_error']:.0e}" if "error" in row else ""
    return (
        f"{row['head']:9} D={row['channels']:3} B={row['batch']:3} {row['dtype']:8} {row['backend']:9} {row['mode']:7} "
        f"{row['forward_ms']:7.2f} / {row['forward_backward_ms']:7.2f} ms, {peak}, "
        f"{row['tflops']:.1f} TFLOP/s{share}{accuracy}"
    )


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heads", nargs="+", choices=HEADS, default=list(HEADS))
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=list(BACKENDS))
    parser.add_argument("--dtypes", nargs="+", choices=list(DTYPES), default=list(DTYPES))
    parser.add_argument("--features", type=Path, help="features of a network, an array (B, C, N) in a .npy file")
    parser.add_argument("--authors", type=Path, help="the file src/representation/SICE.py of the paper's repository")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--quick", action="store_true", help="only 128 maps of 256 channels in float32")
    parser.add_argument("--small", action="store_true", help="tiny sizes, for a test of the script")
    parser.add_argument("--out", type=Path, default=RESULTS / "gpu_speed.json")
    args = parser.parse_args(argv)
    args.shapes = (Shape(3, 16, 4),) if args.small else SHAPES[:1] if args.quick else SHAPES
    args.dtypes = ["float32"] if args.quick else args.dtypes
    args.repeats = 2 if args.small else args.repeats
    return args


def load_features(path: Path) -> Tensor:
    """Load features (B, C, N) as float32 maps (B, C, N, 1)."""
    array = np.load(path)
    if array.ndim != 3:
        raise ValueError(f"gpu_speed: expected features (B, C, N) in {path}, got an array {array.shape}.")
    return torch.from_numpy(array).float().unsqueeze(-1)


def main(argv: list[str] | None = None) -> int:
    args, start = parse(argv), time.perf_counter()
    args.real = load_features(args.features) if args.features else None
    device, limits = torch.device(args.device), {}
    if device.type == "cuda":
        torch.cuda.set_device(device.index or 0)  # whose events and memory are measured
        limits = measure_limits(device)
    rows: list[dict[str, Any]] = [{"part": "limits", **limits}]
    if args.features:
        digest = hashlib.sha256(args.features.read_bytes()).hexdigest()
        rows.append({"part": "features", "shape": list(args.real.shape[:-1]), "sha256": digest})
    options = [f"--{key}" for key in ("quick", "small") if getattr(args, key)]
    options += [f"--{key} FILE" for key in ("features", "authors") if getattr(args, key)]
    options += [f"--{key} {' '.join(getattr(args, key))}" for key in ("heads", "modes", "backends", "dtypes")]
    command = " ".join(["python benchmarks/gpu_speed.py", *options, f"--repeats {args.repeats}"])
    for shape, name, dtype in itertools.product(args.shapes, args.heads, args.dtypes):
        for row in case(name, shape, dtype, limits, args):
            rows.append(row)
            print(line(row), flush=True)
        write_results(args.out, "second-order layers, features to vectors", command, args.seed, device, rows)
    print(f"{time.perf_counter() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
