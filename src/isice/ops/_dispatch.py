"""Which implementation computes: plain PyTorch everywhere, or Triton kernels on a GPU.

``backend=None`` or ``"auto"`` takes the kernels where they apply; a backend asked for by name is used or is an error.
"""

import importlib.util
from typing import Literal

import torch
from torch import Tensor

from .._checks import check_choice
from ..kernels.program import MOST_STEPS

Backend = Literal["auto", "torch", "triton"]
LARGEST = 1024


@torch.compiler.assume_constant_result
def kernels_missing() -> str:
    """Why no kernel can run on this machine; an empty string where they can."""
    if not torch.cuda.is_available():
        return "there is no CUDA device"
    if importlib.util.find_spec("triton") is None:
        return "the package triton is not installed"
    if torch.cuda.get_device_capability() < (8, 0):
        return "the GPU is older than compute capability 8.0"
    return ""


def _does_not_apply(matrix: Tensor, n_steps: int) -> str:
    if matrix.device.type != "cuda":
        return f"the tensor is on {matrix.device.type}"
    if matrix.dtype != torch.float32:
        return f"the dtype is {matrix.dtype}, kernels compute in float32"
    if not 8 <= matrix.shape[-1] <= LARGEST:
        return f"D = {matrix.shape[-1]}, kernels take 8 to {LARGEST}"
    if n_steps > MOST_STEPS:
        return f"{n_steps} Newton-Schulz steps are asked for, kernels take at most {MOST_STEPS}"
    return kernels_missing()


def use_kernels(who: str, backend: Backend | None, matrix: Tensor, n_steps: int, not_needed: str = "") -> bool:
    """Whether the Triton kernels compute this call: so many Newton–Schulz steps on matrices (..., D, D).

    ``not_needed`` is a reason why not.
    """
    if backend in (None, "auto"):
        return not not_needed and not _does_not_apply(matrix, n_steps)
    check_choice(who, "backend", backend, ("auto", "torch", "triton"))
    if backend == "torch":
        return False
    reason = not_needed or _does_not_apply(matrix, n_steps)
    if reason:
        raise RuntimeError(f"{who}: expected to run on Triton kernels, but {reason}; use backend='auto' or 'torch'.")
    return True


@torch.compiler.assume_constant_result
def kernel_precision() -> str:
    """How kernels multiply: in 11 bits under PyTorch's precision "medium" for its own products, else in split ones."""
    return "fast" if torch.get_float32_matmul_precision() == "medium" else "accurate"
