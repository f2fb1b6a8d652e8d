import math

import pytest
import torch

from isice.pooling import create_pooling


def features() -> torch.Tensor:
    return torch.rand(2, 5, 3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def unit(vector: list[float]) -> list[float]:
    length = math.hypot(*vector)
    return [value / length for value in vector]


def test_equals_the_literal_formula() -> None:
    x = features()
    layer = create_pooling("netvlad(n_clusters=3, alpha=4.0, eps=1e-16)", 5).double()
    centres, weight = layer.centres.tolist(), layer.weight.tolist()
    for image, vector in zip(x.flatten(2), layer(x), strict=True):
        words = [[0.0] * 5 for _ in range(3)]
        for t in range(9):
            descriptor = unit(image[:, t].tolist())
            scores = [math.exp(sum(w * d for w, d in zip(row, descriptor, strict=True))) for row in weight]
            for k in range(3):
                for c in range(5):
                    words[k][c] += scores[k] / sum(scores) * (descriptor[c] - centres[k][c])
        expected = unit([value for word in words for value in unit(word)])
        assert vector.tolist() == pytest.approx(expected, abs=1e-9)


def test_init_from_puts_centres_on_clusters_and_sharpens_the_assignment() -> None:
    directions = torch.eye(6)[:3]
    descriptors = directions.repeat(40, 1) + 0.05 * torch.randn(120, 6, generator=torch.Generator().manual_seed(0))
    layer = create_pooling("netvlad(n_clusters=3, seed=2)", 6)
    layer.init_from(7 * descriptors.T.reshape(1, 6, 12, 10))
    assert torch.cdist(directions, layer.centres).amin(dim=1).max() < 0.05
    scores = torch.nn.functional.normalize(descriptors) @ layer.weight.mT
    best = scores.topk(2, dim=1).values
    assert (best[:, 0] - best[:, 1]).mean().item() == pytest.approx(math.log(100), rel=1e-3)


def test_centres_and_assignment_are_trained_apart() -> None:
    layer = create_pooling("netvlad(n_clusters=3, alpha=4.0)", 5)
    layer(features().float()).square().cumsum(1).sum().backward()
    assert {name for name, p in layer.named_parameters() if p.grad.abs().sum() > 0} == {"centres", "weight"}


def test_a_word_with_hardly_any_descriptor_has_unit_length_before_the_last_norm() -> None:
    layer = create_pooling("netvlad(n_clusters=2)", 3)
    with torch.no_grad():
        layer.centres.copy_(torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))
        layer.weight.copy_(torch.tensor([[15.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    # Every position is (1, 0, 0): the second word gets e⁻¹⁵ of each.
    words = layer(torch.tensor([1.0, 0, 0]).reshape(1, 3, 1, 1).expand(1, 3, 4, 4)).reshape(2, 3)
    torch.testing.assert_close(words.norm(dim=1), torch.full((2,), 0.5**0.5), rtol=2e-2, atol=0)
