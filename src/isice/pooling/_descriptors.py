"""Local descriptors of feature maps, from which codebooks and projections are initialised."""

from torch import Tensor

_MOST_DESCRIPTORS = 2**16


def sample_descriptors(x: Tensor) -> Tensor:
    """Return descriptors (M, C) of features (B, C, H, W): all, or 65,536 evenly spaced."""
    descriptors = x.movedim(1, -1).reshape(-1, x.shape[1])
    step = -(-len(descriptors) // _MOST_DESCRIPTORS)
    return descriptors[::step]
