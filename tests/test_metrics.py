"""Metrics against values worked out by hand or by another library."""

import math
import statistics

import pytest
import torch
from sklearn.metrics import top_k_accuracy_score

from isice.metrics import mean_std, topk_correct, wilson_interval


@pytest.mark.parametrize("k", [1, 2, 4])
def test_topk_agrees_with_sklearn(k):
    generator = torch.Generator().manual_seed(0)
    logits, target = torch.randn(50, 5, generator=generator), torch.randint(0, 5, (50,), generator=generator)
    expected = top_k_accuracy_score(target.numpy(), logits.numpy(), k=k, normalize=False, labels=range(5))
    assert topk_correct(logits, target, k) == expected


def test_topk_errors():
    with pytest.raises(ValueError, match=r"expected logits \(B, K\)"):
        topk_correct(torch.zeros(3), torch.zeros(3))
    with pytest.raises(ValueError, match="1 ≤ k ≤ 2"):
        topk_correct(torch.zeros(3, 2), torch.zeros(3), k=3)


def test_mean_std():
    values = [0.25, 0.5, 1.0, 4.0]
    assert mean_std(values) == pytest.approx((statistics.mean(values), statistics.stdev(values), 4))
    assert math.isnan(mean_std([1.0]).std)
    with pytest.raises(ValueError, match="at least one"):
        mean_std([])


@pytest.mark.parametrize(("accuracy", "n"), [(0.0, 10), (0.3, 40), (0.97, 450), (1.0, 450)])
def test_wilson_ends_solve_its_equation(accuracy, n):
    z = 1.96
    for end in wilson_interval(accuracy, n, z):
        assert abs(accuracy - end) == pytest.approx(z * math.sqrt(end * (1 - end) / n), abs=1e-7)
