import math

import pytest
import torch

from isice.ops.channel_dropout import adaptive_drop_rate, channel_attention, drop_channels, hashed_uniform
from isice.ops.covariance import covariance


def test_attention_is_a_softmax_of_a_sliding_product() -> None:
    x = torch.randn(2, 6, 3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kernel = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
    attention = channel_attention(x, kernel)
    for b in range(2):
        means = [0.0, *x[b].flatten(1).mean(dim=1).tolist(), 0.0]
        scores = [math.exp(0.5 * means[c] - means[c + 1] + 2 * means[c + 2]) for c in range(6)]
        assert attention[b].tolist() == pytest.approx([score / sum(scores) for score in scores])


def test_drop_rate_by_the_printed_formula() -> None:
    generator = torch.Generator().manual_seed(0)
    cov = covariance(torch.rand(2, 64, 30, generator=generator, dtype=torch.float64))
    attention = torch.rand(2, 64, generator=generator, dtype=torch.float64)
    for rate, matrix, shares in zip(adaptive_drop_rate(cov, attention), cov, attention, strict=True):
        rows = [float(matrix[i].sum()) for i in range(64)]
        dot = sum(a * float(b) for a, b in zip(rows, shares, strict=True))
        cosine = dot / math.hypot(*rows) / math.hypot(*shares.tolist())
        assert rate.item() == pytest.approx(min(1.0, max(0.0, 1 - 10 / 6 * cosine)), abs=1e-9)


@pytest.mark.parametrize(("rate", "agreement"), [(0.0, 1.0), (1.0, 0.0)])
def test_drop_rate_follows_the_agreement(rate: float, agreement: float) -> None:
    attention = torch.tensor([[1.0, 0.0]])
    cov = torch.diag(torch.tensor([agreement, 1 - agreement]))[None]
    assert adaptive_drop_rate(cov, attention).item() == rate


def test_drop_channels_is_the_covariance_of_dropped_features() -> None:
    x = torch.randn(2, 5, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rate, noise = torch.tensor([0.3, 0.6], dtype=torch.float64), torch.tensor([0.1, 0.4, 0.9, 0.7, 0.2]).double()
    dropped = x.clone()
    for b in range(2):
        for c in range(5):
            dropped[b, c] = 0 if noise[c] < rate[b] else x[b, c] / (1 - rate[b])
    torch.testing.assert_close(drop_channels(covariance(x), rate, noise), covariance(dropped))


def test_everything_is_dropped_at_rate_one() -> None:
    assert torch.equal(drop_channels(torch.ones(1, 3, 3), torch.ones(1), torch.rand(3)), torch.zeros(1, 3, 3))


def test_hashed_numbers_are_uniform_and_change_with_the_key() -> None:
    generator = torch.Generator().manual_seed(0)
    frequencies, offset = 1e6 * torch.randn(3, 20_000, generator=generator), torch.rand(20_000, generator=generator)
    key = torch.tensor([0.3, -0.2, 0.1])
    first = hashed_uniform(key, frequencies, offset)
    second = hashed_uniform(key + torch.tensor([1e-6, 0, 0]), frequencies, offset)
    assert torch.equal(first, hashed_uniform(key.clone(), frequencies, offset))
    assert torch.histc(first, 10, 0, 1).sub(2000).abs().max() < 200
    assert torch.corrcoef(torch.stack((first, second)))[0, 1].abs() < 0.05


def test_wrong_shapes_are_named() -> None:
    with pytest.raises(ValueError, match=r"channel_attention: expected a kernel \(K,\) with K odd, got \(4,\)"):
        channel_attention(torch.rand(1, 4, 2, 2), torch.zeros(4))
    with pytest.raises(ValueError, match=r"adaptive_drop_rate: expected weights \(1, 4\), got \(1, 3\)"):
        adaptive_drop_rate(torch.eye(4)[None], torch.rand(1, 3))
