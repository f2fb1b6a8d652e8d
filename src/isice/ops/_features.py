"""Features in the shapes that users have, brought to the one that the operations use."""

from torch import Tensor


def flat_features(who: str, x: Tensor) -> Tensor:
    """Feature maps (..., C, H, W) or feature sets (B, C, N), (C, N) as (..., C, N); anything else is an error."""
    sizes = x.shape[-3:] if x.ndim > 3 else x.shape[-2:]
    if x.ndim < 2 or 0 in sizes:
        raise ValueError(
            f"{who}: expected features (B, C, H, W) or (B, C, N) with at least one channel and position, "
            f"got {tuple(x.shape)}."
        )
    return x.flatten(-2) if x.ndim > 3 else x
