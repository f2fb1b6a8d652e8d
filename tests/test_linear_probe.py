"""The linear probe of the benchmarks: leave-one-out against explicit refits."""

import pytest
import torch
from benchmarks import linear_probe


@pytest.mark.parametrize("size", [5, 60])
@pytest.mark.parametrize("penalty", [0.01, 1.0])
def test_leave_one_out_equals_refits(size, penalty, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(40) % 4
    vectors = torch.randn(40, size, generator=generator) + 0.4 * torch.randn(4, size, generator=generator)[labels]
    held_out = torch.arange(40) >= 30
    monkeypatch.setattr(linear_probe, "PENALTIES", torch.tensor([penalty], dtype=torch.float64))
    found, right = linear_probe.probe(vectors, labels, held_out)
    x, y, val = vectors[:30].double(), labels[:30], vectors[30:].double()
    centred = x - x.mean(0)
    amount = penalty * centred.square().sum() / 30

    def scores(rows, at):
        mean, target = x[rows].mean(0), torch.nn.functional.one_hot(y[rows], 4).double()
        part = x[rows] - mean
        slope = torch.linalg.solve(part.T @ part + amount * torch.eye(size), part.T @ (target - target.mean(0)))
        return (at - mean) @ slope + target.mean(0)

    everything = torch.arange(30)
    assert torch.equal(right, scores(everything, val).argmax(1) == labels[30:])
    assert found["accuracy"] == pytest.approx(right.double().mean())
    right = [int(scores(everything[everything != i], x[i : i + 1]).argmax()) == int(y[i]) for i in range(30)]
    assert found["leave_one_out"] == pytest.approx(sum(right) / 30)
    assert 0.2 < found["leave_one_out"] < 1


def test_unit_positions_forget_the_length_of_a_position_and_a_random_start_the_data():
    generator = torch.Generator().manual_seed(0)
    x, held_out = torch.rand(6, 4, 5, 5, generator=generator), torch.arange(6) >= 3
    lengths = torch.rand(6, 1, 5, 5, generator=generator) + 0.5

    def vectors(group, features):
        return linear_probe.pooled(group, "netvlad(n_clusters=2)", features, held_out)[0]

    def means(group, features):
        return linear_probe.pooled(group, "gap", features, held_out)[0]

    torch.testing.assert_close(means(linear_probe.UNIT, lengths * x), means(linear_probe.UNIT, x))
    assert (means("baselines", lengths * x) - means("baselines", x)).abs().max() > 0.01
    layer = linear_probe.create_pooling("netvlad(n_clusters=2)", 4)
    torch.testing.assert_close(vectors(linear_probe.RANDOM, x), layer(x).detach())
    assert (vectors("baselines", x) - layer(x)).abs().max() > 0.01
