"""Choice between PyTorch and the Triton kernels.

``backend=None`` or ``"auto"`` uses kernels where they apply; a named backend is used or raises.
"""

import importlib.util
from typing import Literal, cast

import torch
from torch import Tensor

from .._checks import check_choice, is_half, under_torch_func
from ..kernels.schedule import MAX_STEPS

Backend = Literal["auto", "torch", "triton"]
MAX_SIZE = 1024  # rows of a matrix


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def kernels_missing() -> str:
    """Return why no kernel can run on this machine, or an empty string where kernels can run."""
    if not torch.cuda.is_available():
        return "there is no CUDA device"
    if importlib.util.find_spec("triton") is None:
        return "the package triton is not installed"
    if torch.cuda.get_device_capability() < (8, 0):
        return "the GPU is older than compute capability 8.0"
    return ""


def does_not_apply(tensor: Tensor, name: str, size: int, *, half: bool = False) -> str:
    """Return why no kernel takes a tensor of ``name`` = ``size``, or an empty string."""
    if tensor.device.type != "cuda":
        return f"the tensor is on {tensor.device.type}"
    if not (tensor.dtype == torch.float32 or (half and is_half(tensor.dtype))):
        return f"the dtype is {tensor.dtype}, kernels take {'16 and 32 bits' if half else 'float32'}"
    if not 8 <= size <= MAX_SIZE:
        return f"{name} = {size}, kernels take 8 to {MAX_SIZE}"
    return cast(str, kernels_missing())


def use_kernels(who: str, backend: Backend | None, matrix: Tensor, n_steps: int, torch_only: str = "") -> bool:
    """Return whether the kernels compute ``n_steps`` Newton–Schulz steps on (..., D, D).

    ``torch_only`` is a reason of the caller why only PyTorch computes this call.
    """
    if backend == "torch":
        return False
    reason = torch_only or does_not_apply(matrix, "D", matrix.shape[-1])
    if not reason and n_steps > MAX_STEPS:
        reason = f"{n_steps} Newton-Schulz steps are asked for, kernels take at most {MAX_STEPS}"
    return choose_kernels(who, backend, reason)


def choose_kernels(who: str, backend: Backend | None, reason: str) -> bool:
    """Return whether to use kernels, given why they do not apply (empty if they do)."""
    if backend not in (None, "auto"):
        check_choice(who, "backend", backend, ("auto", "torch", "triton"))
    if not reason and not torch.compiler.is_compiling() and under_torch_func():
        reason = "kernels have no rules for torch.func"
    if backend == "triton" and reason:
        raise RuntimeError(f"{who}: expected to run on Triton kernels, but {reason}; use backend='auto' or 'torch'.")
    return backend != "torch" and not reason


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def kernel_precision() -> str:
    """Return the kernels' precision: one fp16 matmul under "medium", else three (split fp16)."""
    return "fast" if torch.get_float32_matmul_precision() == "medium" else "accurate"
