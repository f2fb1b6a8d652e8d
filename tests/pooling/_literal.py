"""What literal transcriptions share: seeded features, normalisation of bilinear features."""

import math

import torch


def features(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def normalized(vector):
    """√(relu z + 1e-5) − √(relu −z + 1e-5) of a list of numbers, then unit length."""
    roots = [math.sqrt(max(z, 0.0) + 1e-5) - math.sqrt(max(-z, 0.0) + 1e-5) for z in vector]
    length = math.sqrt(sum(root * root for root in roots))
    return torch.tensor([root / length for root in roots], dtype=torch.float64)


def by_image(function, x):
    """Stacks a function of one image (C, N) over a batch of maps."""
    return torch.stack([function(image) for image in x.flatten(2)])
