"""The operations of benchmarks/run.py: inputs, reference, and tests to pass before timing."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

import isice.functional as F
from isice.ops.correlation import correlation_reference
from isice.ops.covariance import covariance_reference
from isice.ops.isice import isice_reference
from isice.ops.newton_schulz import newton_schulz_reference
from isice.ops.spectral import matrix_log_reference, matrix_power_reference
from isice.ops.vectorize import vectorize_reference


@dataclass(frozen=True)
class Spec:
    """An operation; ``function`` and ``reference`` take the same features or matrices."""

    function: Callable[[Tensor], Tensor]
    reference: Callable[[Tensor], Tensor]
    tests: str
    takes: str = "cov"


SPECS: dict[str, Spec] = {
    "covariance": Spec(
        F.covariance, lambda x: covariance_reference(x.flatten(-2)), "tests/ops/test_covariance.py", "features"
    ),
    "vectorize": Spec(F.vectorize, vectorize_reference, "tests/ops/test_vectorize.py"),
    "correlation": Spec(F.correlation, correlation_reference, "tests/ops/test_correlation.py"),
    "newton_schulz_sqrt": Spec(
        F.newton_schulz_sqrt, lambda c: newton_schulz_reference(c, 5, "sqrt"), "tests/ops/test_newton_schulz.py"
    ),
    "newton_schulz_inverse": Spec(
        F.newton_schulz_inverse, lambda c: newton_schulz_reference(c, 7, "inverse"), "tests/ops/test_newton_schulz.py"
    ),
    "isice": Spec(F.isice, isice_reference, "tests/ops/test_isice.py"),
    "matrix_power": Spec(
        lambda c: F.matrix_power(c, 0.5), lambda c: matrix_power_reference(c, 0.5), "tests/ops/test_spectral.py"
    ),
    "matrix_log": Spec(F.matrix_log, matrix_log_reference, "tests/ops/test_spectral.py"),
}


def make_input(spec: Spec, batch: int, channels: int, side: int, device: torch.device, seed: int) -> Tensor:
    """Return random ReLU features (B, C, H, W) or their covariance with a small ridge."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(batch, channels, side, side, generator=generator).relu().to(device)
    if spec.takes == "features":
        return x
    return F.covariance(x) + 1e-3 * torch.eye(channels, device=device)
