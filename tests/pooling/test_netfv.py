import math

import torch

from isice.ops.codebook import fisher_vector
from isice.pooling import create_pooling


def test_equals_the_literal_formula() -> None:
    x = torch.randn(2, 4, 3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    layer = create_pooling("netfv(n_components=3)", 4).double()
    with torch.no_grad():
        layer.log_scales.uniform_(-0.5, 0.5, generator=torch.Generator().manual_seed(1))
    mean, scale = layer.means.tolist(), layer.log_scales.exp().tolist()
    for image, vector in zip(x.flatten(2), layer(x), strict=True):
        orders = torch.zeros(2, 3, 4, dtype=torch.float64)
        for t in range(9):
            scores = [math.exp(float((layer.weight[k] @ image[:, t] + layer.bias[k]).detach())) for k in range(3)]
            for k in range(3):
                for c in range(4):
                    u = (float(image[c, t]) - mean[k][c]) / scale[k][c]
                    orders[0, k, c] += scores[k] / sum(scores) * u / 9
                    orders[1, k, c] += scores[k] / sum(scores) * (u * u - 1) / math.sqrt(2) / 9
        z = orders.flatten()
        z = (z.relu() + 1e-5).sqrt() - ((-z).relu() + 1e-5).sqrt()
        torch.testing.assert_close(vector, z / z.norm(), rtol=1e-7, atol=1e-9)


def test_starts_as_the_posterior_of_a_unit_mixture() -> None:
    layer = create_pooling("netfv(n_components=3)", 4)
    x = torch.randn(4, generator=torch.Generator().manual_seed(0))
    posterior = torch.softmax(-0.5 * (x - layer.means).square().sum(dim=1), dim=0)
    torch.testing.assert_close(torch.softmax(layer.weight @ x + layer.bias, dim=0), posterior)


def test_init_from_makes_the_statistics_of_its_own_data_vanish() -> None:
    generator = torch.Generator().manual_seed(0)
    centres = 20 * torch.eye(4)[:2]
    noise = torch.randn(2, 4000, 4, generator=generator) * torch.tensor([0.5, 1.0, 1.5, 2.0])
    descriptors = (centres[:, None] + noise).reshape(-1, 4)
    layer = create_pooling("netfv(n_components=2)", 4)
    layer.init_from(descriptors.T.reshape(1, 4, 80, 100))
    torch.testing.assert_close(layer.log_scales.exp()[0], torch.tensor([0.5, 1.0, 1.5, 2.0]), rtol=0.05, atol=0)
    statistics = fisher_vector(descriptors.T, layer.means, layer.log_scales, layer.weight, layer.bias)
    assert statistics.abs().max() < 1e-2
