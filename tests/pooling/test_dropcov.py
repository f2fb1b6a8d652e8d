import math

import torch

from isice.pooling import create_pooling

X = torch.rand(3, 16, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
X = X * torch.linspace(0.5, 3, 16, dtype=torch.float64)[None, :, None, None]


def literal_training(layer: torch.nn.Module, image: torch.Tensor) -> torch.Tensor:
    """One image by loops: attention, weighted features, rate, dropped channels, covariance."""
    means = [0.0, *image.flatten(1).mean(dim=1).tolist(), 0.0]
    taps = layer.weight.tolist()
    scores = [math.exp(sum(taps[k] * means[c + k] for k in range(3))) for c in range(16)]
    attention = [score / sum(scores) for score in scores]
    weighted = torch.stack([image[c].flatten() * (1 + attention[c]) for c in range(16)])
    rows = torch.cov(weighted, correction=0).sum(dim=1).tolist()
    cosine = sum(r * a for r, a in zip(rows, attention, strict=True)) / math.hypot(*rows) / math.hypot(*attention)
    rate = min(1.0, max(0.0, 1 - 10 / 4 * cosine))
    for c in range(16):
        phase = sum(taps[k] * float(layer.frequencies[k, c]) for k in range(3)) + float(layer.offset[c])
        weighted[c] *= 0 if phase % 1 < rate else 1 / (1 - rate)
    return torch.cov(weighted, correction=0)[tuple(torch.triu_indices(16, 16))]


def test_training_equals_the_literal_formula_and_drops_channels() -> None:
    layer = create_pooling("dropcov", 16).double().train()
    x = X.flip(1)  # variance and attention disagree, so that something is dropped
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([-0.9, -0.8, -1.0]))
    expected = torch.stack([literal_training(layer, image) for image in x])
    assert (expected == 0).any(dim=1).all()
    assert (expected != 0).any(dim=1).all()
    torch.testing.assert_close(layer(x), expected, rtol=1e-7, atol=1e-9)


def test_evaluation_is_plain_covariance() -> None:
    layer = create_pooling("dropcov", 16).eval()
    torch.testing.assert_close(layer(X), create_pooling("covariance", 16)(X))


def test_an_optimizer_step_draws_a_new_mask() -> None:
    layer = create_pooling("dropcov", 16).train()
    with torch.no_grad():
        layer.weight.fill_(-0.9)
    x = X.flip(1).float()
    optimizer = torch.optim.SGD(layer.parameters(), lr=1e-3)
    before = layer(x)
    before.sum().backward()
    assert torch.equal((layer(x) == 0), (before == 0))
    optimizer.step()
    assert ((layer(x) == 0) != (before == 0)).any()


def test_the_seed_is_part_of_the_mask() -> None:
    masks = []
    for seed in range(2):
        layer = create_pooling(f"dropcov(seed={seed})", 16).train()
        with torch.no_grad():
            layer.weight.fill_(-0.9)
        masks.append(layer(X.flip(1).float()) == 0)
    assert (masks[0] != masks[1]).any()
