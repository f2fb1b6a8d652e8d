"""Argument checks with uniform messages: *who: expected, got; what to do*.

torch is imported inside the functions that need it, because configs and reports load without torch.
"""

import difflib
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the closest of ``known``, or an empty string."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def first_of(words: Iterable[str], most: int = 5) -> str:
    """Return a few words for a message: ``"a, b and 3 more"``."""
    words = list(words)
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")


def check_choice(who: str, name: str, value: Any, choices: Iterable[str]) -> None:
    """Raise ValueError unless ``value`` is one of ``choices``."""
    options = list(choices)
    if value not in options:
        hint = suggestion(str(value), options)
        raise ValueError(f"{who}: expected {name} to be one of {', '.join(map(repr, options))}, got {value!r}.{hint}")


def check_bool(who: str, **options: Any) -> None:
    """Raise TypeError unless every option is True or False."""
    for name, value in options.items():
        if not isinstance(value, bool):
            raise TypeError(
                f"{who}: expected {name} to be True or False, got {value!r} of type {type(value).__name__}."
            )


def check_int(who: str, name: str, value: Any, *, minimum: int) -> None:
    """Raise unless ``value`` is an integer of at least ``minimum``."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{who}: expected {name} to be an integer, got {value!r} of type {type(value).__name__}.")
    if value < minimum:
        raise ValueError(f"{who}: expected {name} ≥ {minimum}, got {value}.")


def is_number(value: Any) -> bool:
    """Return whether ``value`` is a finite number, and no boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def check_number(who: str, name: str, value: Any, *, minimum: float = 0.0, strict: bool = False) -> None:
    """Raise unless ``value`` is a finite number ≥ ``minimum``, or > ``minimum`` if ``strict``."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{who}: expected {name} to be a number, got {value!r} of type {type(value).__name__}.")
    if not (minimum < value if strict else minimum <= value) or value == float("inf"):
        raise ValueError(f"{who}: expected a finite {name} {'>' if strict else '≥'} {minimum}, got {value}.")


def check_floating(who: str, tensor: Any) -> None:
    """Raise TypeError unless ``tensor`` is a floating-point tensor."""
    from torch import Tensor

    if not isinstance(tensor, Tensor):
        raise TypeError(
            f"{who}: expected a torch.Tensor, got {type(tensor).__name__}; convert it with torch.as_tensor()."
        )
    if not tensor.is_floating_point():
        raise TypeError(f"{who}: expected a floating-point tensor, got {tensor.dtype}; call .float() on it first.")


def check_square(who: str, matrix: Any) -> None:
    """Raise unless ``matrix`` is a floating-point tensor of shape (..., D, D) with D ≥ 1."""
    check_floating(who, matrix)
    if matrix.ndim < 2 or matrix.shape[-1] != matrix.shape[-2] or matrix.shape[-1] == 0:
        raise ValueError(
            f"{who}: expected square matrices (..., D, D), got {tuple(matrix.shape)}; "
            "pass features through covariance() first."
        )


def check_symmetric(who: str, matrix: Any) -> None:
    """Raise unless ``matrix`` is square and its first row equals its first column.

    Values are compared on the CPU only: on a GPU it would synchronise, in a compiler break the
    graph, and under vmap there are none.
    """
    import torch

    check_square(who, matrix)
    if torch.compiler.is_compiling() or type(matrix) is not torch.Tensor or matrix.device.type != "cpu":
        return
    row, column = matrix[..., 0, :], matrix[..., :, 0]
    try:
        if torch.equal(row, column):
            return
    except RuntimeError:  # under vmap
        return
    asymmetry = (row - column).detach().abs()
    largest = matrix.detach().diagonal(dim1=-2, dim2=-1).abs().amax(-1, keepdim=True)
    if (asymmetry > 1e-3 * largest).any():
        raise ValueError(
            f"{who}: expected symmetric matrices (..., D, D), got {tuple(matrix.shape)} with a row that differs from "
            "its column; pass features through covariance() first, or (S + Sᵀ)/2."
        )


def under_torch_func() -> bool:
    """Return whether a transform of torch.func is running, in which kernels cannot read tensors.

    PyTorch has no public query. A version without the private one counts as running none.
    """
    import torch

    query = getattr(getattr(torch._C, "_functorch", None), "maybe_current_level", None)
    return query is not None and query() is not None


def check_feature_map(who: str, x: Any, channels: int | None = None) -> None:
    """Raise unless ``x`` is a floating-point feature map (B, C, H, W) with C = ``channels``."""
    check_floating(who, x)
    if x.ndim != 4 or 0 in x.shape[1:]:
        raise ValueError(
            f"{who}: expected a feature map (B, C, H, W), got {tuple(x.shape)}; "
            "reshape tokens to a grid and move the channels to dimension 1."
        )
    if channels is not None and x.shape[1] != channels:
        raise ValueError(
            f"{who}: expected {channels} channels, got {x.shape[1]} in a map of shape {tuple(x.shape)}; "
            f"create the layer with in_channels={x.shape[1]} or reduce the channels first."
        )


def check_feature_set(who: str, x: Any) -> None:
    """Raise unless ``x`` is a tensor of features (B, C, N) with a channel and a position."""
    if x.ndim != 3 or 0 in x.shape[1:]:
        raise ValueError(
            f"{who}: expected features (B, C, N), got {tuple(x.shape)}; flatten the positions with x.flatten(2)."
        )


def check_images(who: str, x: Any, in_chans: int) -> None:
    """Raise unless ``x`` is a floating-point batch of images (B, in_chans, H, W)."""
    check_floating(who, x)
    if x.ndim != 4 or x.shape[1] != in_chans:
        raise ValueError(
            f"{who}: expected images (B, {in_chans}, H, W), got {tuple(x.shape)}; "
            "pass a batch of channels-first images, or create the model with another in_chans."
        )


def is_half(dtype: "torch.dtype") -> bool:
    """Return whether ``dtype`` has 16 bits; operations compute such input in float32."""
    import torch

    return dtype in (torch.float16, torch.bfloat16)
