import torch

from isice.pooling import create_pooling


def features() -> torch.Tensor:
    return torch.randn(3, 4, 3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_equals_the_literal_formula() -> None:
    x = features()
    layer = create_pooling("smso(n_features=6, eps=1e-14)", 4).double()
    for image, vector in zip(x.flatten(2), layer(x), strict=True):
        cov = torch.cov(image)  # divides by n − 1, as published
        expected = torch.stack([(2 * (w @ cov @ w)).sqrt() for w in layer.weight.T])
        torch.testing.assert_close(vector, expected, rtol=1e-5, atol=1e-6)


def test_without_batch_norm_the_batch_does_not_matter_in_training() -> None:
    layer, x = create_pooling("smso(n_features=6)", 4).train(), features().float()
    torch.testing.assert_close(layer(x)[:1], layer(x[:1]))


def test_batch_norm_standardizes_the_vector_over_the_batch() -> None:
    layer = create_pooling("smso(n_features=6, batch_norm=True)", 4).train()
    x = features().float()
    assert layer(x).mean(dim=0).abs().max() < 1e-5
    # Ahead of the covariance, it removes the scale of a channel.
    scaled = x * torch.tensor([1.0, 10.0, 100.0, 1000.0])[None, :, None, None]
    torch.testing.assert_close(layer(scaled), layer(x), rtol=1e-2, atol=1e-2)
