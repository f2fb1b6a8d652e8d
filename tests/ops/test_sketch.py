"""Sketches: literal transcriptions, unbiasedness, gradients, determinism, memory."""

import cmath

import pytest
import torch

from isice.ops import sketch
from isice.ops.sketch import (
    count_sketch,
    kernel_features,
    random_hashes,
    random_maclaurin,
    random_maclaurin_reference,
    random_normal,
    random_signs,
    tensor_sketch,
    tensor_sketches,
    tensor_sketches_reference,
)


def features(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def few_positions_a_step(monkeypatch):
    """Make chunks so small that small inputs take several."""
    monkeypatch.setattr(sketch, "_CHUNK_ELEMENTS", 20)


def circular_convolution(a, b):
    size = len(a)
    return [sum(a[i] * b[(k - i) % size] for i in range(size)) for k in range(size)]


def count_sketch_by_loop(x, index, sign, n_out):
    out = [0.0] * n_out
    for i, value in enumerate(x):
        out[index[i]] += sign[i] * value
    return out


def tensor_sketches_by_loop(x, index, sign, n_out):
    """Orders 2…p of one image (C, N) as circular convolutions of count sketches."""
    orders = [[0.0] * n_out for _ in index[1:]]
    for position in zip(*x.tolist(), strict=True):
        running = count_sketch_by_loop(position, index[0], sign[0], n_out)
        for order in range(1, len(index)):
            running = circular_convolution(running, count_sketch_by_loop(position, index[order], sign[order], n_out))
            orders[order - 1] = [total + value for total, value in zip(orders[order - 1], running, strict=True)]
    return torch.tensor(orders, dtype=torch.float64)


def test_count_sketch_equals_a_loop():
    index, sign = random_hashes(1, 12, 5, seed=0)
    x = features(12)
    expected = count_sketch_by_loop(x.tolist(), index[0].tolist(), sign[0].tolist(), 5)
    torch.testing.assert_close(count_sketch(x, index[0], sign[0], 5), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("n_out", [1, 2, 7, 8, 13])
@pytest.mark.parametrize(("order", "n_positions"), [(2, 2), (2, 40), (3, 9)])
def test_tensor_sketches_equal_convolutions_by_loop(n_out, order, n_positions, few_positions_a_step):
    index, sign = random_hashes(order, 6, n_out, seed=n_out)
    x = features(2, 6, n_positions)
    expected = torch.stack([tensor_sketches_by_loop(image, index.tolist(), sign.tolist(), n_out) for image in x])
    torch.testing.assert_close(tensor_sketches(x, index, sign, n_out), expected)
    torch.testing.assert_close(tensor_sketch(x, index, sign, n_out), expected[:, -1])


def test_pooling_before_the_inverse_transform_equals_an_explicit_fourier_sum():
    n_out, (index, sign) = 7, random_hashes(2, 4, 7, seed=3)
    x = features(1, 4, 3)

    def dft(a, direction):
        return [
            sum(v * cmath.exp(direction * 2j * cmath.pi * k * t / n_out) for t, v in enumerate(a)) for k in range(n_out)
        ]

    expected = [0.0] * n_out
    for position in x[0].T.tolist():
        a, b = (dft(count_sketch_by_loop(position, index[j].tolist(), sign[j].tolist(), n_out), -1) for j in (0, 1))
        inverse = dft([u * v for u, v in zip(a, b, strict=True)], 1)
        expected = [total + value.real / n_out for total, value in zip(expected, inverse, strict=True)]
    torch.testing.assert_close(tensor_sketch(x, index, sign, n_out)[0], torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize(("degree", "n_positions"), [(1, 9), (2, 2), (2, 9), (3, 9)])
def test_random_maclaurin_equals_a_loop(degree, n_positions, few_positions_a_step):
    x, weights = features(2, 5, n_positions), features(degree, 7, 5, seed=1)
    expected = torch.zeros(2, 7, dtype=torch.float64)
    for b in range(2):
        for k in range(7):
            for t in range(n_positions):
                product = 1.0
                for s in range(degree):
                    product *= sum(weights[s, k, c].item() * x[b, c, t].item() for c in range(5))
                expected[b, k] += product
    torch.testing.assert_close(random_maclaurin(x, weights), expected)


@pytest.mark.parametrize("n_out", [6, 7])
@pytest.mark.parametrize(("order", "n_positions"), [(2, 2), (2, 5), (4, 5)])
def test_tensor_sketches_gradient(n_out, order, n_positions, few_positions_a_step):
    index, sign = random_hashes(order, 4, n_out, seed=0)
    x = features(2, 4, n_positions).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: tensor_sketches(x, index, sign, n_out), x)
    ours = torch.autograd.grad(tensor_sketches(x, index, sign, n_out).sin().sum(), x)
    plain = torch.autograd.grad(tensor_sketches_reference(x, index, sign, n_out).sin().sum(), x)
    torch.testing.assert_close(ours, plain)


@pytest.mark.parametrize(("degree", "n_positions"), [(1, 5), (2, 2), (2, 5), (3, 5)])
def test_random_maclaurin_gradient(degree, n_positions, few_positions_a_step):
    x, weights = features(2, 4, n_positions).requires_grad_(), features(degree, 6, 4, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(random_maclaurin, (x, weights))
    ours = torch.autograd.grad(random_maclaurin(x, weights).sin().sum(), (x, weights))
    plain = torch.autograd.grad(random_maclaurin_reference(x, weights).sin().sum(), (x, weights))
    torch.testing.assert_close(ours, plain)


def mean_and_standard_error(samples):
    samples = torch.tensor(samples)
    return samples.mean().item(), samples.std().item() / len(samples) ** 0.5


@pytest.mark.parametrize("order", [2, 3])
def test_tensor_sketch_is_unbiased_for_the_power_of_the_inner_product(order):
    x, y = features(1, 6, 1), features(1, 6, 1, seed=1)
    truth = (x * y).sum().item() ** order
    estimates = []
    for seed in range(2000):
        index, sign = random_hashes(order, 6, 32, seed)
        a, b = tensor_sketch(torch.cat([x, y]), index, sign, 32)
        estimates.append((a @ b).item())
    mean, error = mean_and_standard_error(estimates)
    assert error < 0.2 * abs(truth), "the test must be able to see a bias"
    assert abs(mean - truth) < 4 * error


def test_random_maclaurin_is_unbiased_for_the_squared_inner_product():
    x, y = features(1, 6, 1), features(1, 6, 1, seed=1)
    truth = (x * y).sum().item() ** 2
    estimates = []
    for seed in range(1000):
        a, b = random_maclaurin(torch.cat([x, y]), random_signs((2, 64, 6), seed).double())
        estimates.append((a @ b).item() / 64)
    mean, error = mean_and_standard_error(estimates)
    assert error < 0.2 * abs(truth)
    assert abs(mean - truth) < 4 * error


def test_kernel_features_equal_their_parts():
    index, sign = random_hashes(3, 5, 11, seed=0)
    x, alpha = features(2, 5, 6), torch.tensor([0.3, -0.5, 0.7, 1.1], dtype=torch.float64)
    second = torch.stack([tensor_sketches_by_loop(image, index.tolist(), sign.tolist(), 11) for image in x]) / 6
    parts = [torch.full((2, 1), 0.3), -0.5 * x.sum(-1) / 6, 0.7 * second[:, 0], 1.1 * second[:, 1]]
    torch.testing.assert_close(kernel_features(x, index, sign, alpha, 11), torch.cat(parts, dim=1))


def test_kernel_features_share_the_transforms_of_lower_orders(monkeypatch):
    calls = []
    rfft = torch.fft.rfft
    monkeypatch.setattr(torch.fft, "rfft", lambda *a, **k: calls.append(a[0].shape) or rfft(*a, **k))
    index, sign = random_hashes(4, 5, 11, seed=0)
    kernel_features(features(2, 5, 6), index, sign, torch.ones(5), 11)
    assert len(calls) == 4, "one forward transform for each hash, however many orders use it"


def test_one_inverse_transform_per_image_and_order(monkeypatch, few_positions_a_step):
    rows = []
    irfft = torch.fft.irfft
    monkeypatch.setattr(torch.fft, "irfft", lambda a, **k: rows.append(a.shape[:-1].numel()) or irfft(a, **k))
    index, sign = random_hashes(3, 5, 11, seed=0)
    tensor_sketches(features(2, 5, 30), index, sign, 11)
    assert sum(rows) == 2 * 2


def test_draws_depend_on_the_seed_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = (*random_hashes(2, 30, 17, seed=3), random_signs((40,), 3), random_normal((40,), 3))
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(6)
    again = (*random_hashes(2, 30, 17, seed=3), random_signs((40,), 3), random_normal((40,), 3))
    other = (*random_hashes(2, 30, 17, seed=4), random_signs((40,), 4), random_normal((40,), 4))
    for a, b, c in zip(first, again, other, strict=True):
        assert torch.equal(a, b)
        assert not torch.equal(a, c)


def test_hashes_cover_their_range_and_are_independent_of_the_signs():
    index, sign = random_hashes(2, 20_000, 10, seed=0)
    assert index.min() == 0
    assert index.max() == 9
    assert set(sign.unique().tolist()) == {-1.0, 1.0}
    low = (index < 5).double() * 2 - 1
    assert (low * sign).mean().abs() < 0.03
    assert (low[0] * low[1]).mean().abs() < 0.03


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sketches_run_in_float32_under_autocast(dtype):
    index, sign = random_hashes(2, 6, 9, seed=0)
    weights = random_signs((2, 9, 6), seed=0).requires_grad_()
    x = torch.rand(2, 6, 8).requires_grad_()
    with torch.autocast("cpu", dtype=dtype):
        sketched, projected = tensor_sketch(x, index, sign, 9), random_maclaurin(x, weights)
        inside = torch.autograd.grad(sketched.sum() + projected.sum(), (x, weights))
    plain = torch.autograd.grad(
        tensor_sketch(x, index, sign, 9).sum() + random_maclaurin(x, weights).sum(), (x, weights)
    )
    assert sketched.dtype == projected.dtype == torch.float32
    torch.testing.assert_close(sketched, tensor_sketch(x, index, sign, 9))
    torch.testing.assert_close(projected, random_maclaurin(x, weights))
    torch.testing.assert_close(inside, plain)


def test_bad_shapes_are_named():
    index, sign = random_hashes(2, 6, 9, seed=0)
    with pytest.raises(ValueError, match=r"tensor_sketches: expected features \(B, C, N\), got \(2, 6, 3, 3\)"):
        tensor_sketch(torch.rand(2, 6, 3, 3), index, sign, 9)
    with pytest.raises(ValueError, match=r"tensor_sketches: expected hashes \(p, C\) with C = 5, got \(2, 6\)"):
        tensor_sketch(torch.rand(2, 5, 9), index, sign, 9)
    with pytest.raises(ValueError, match="at least 2 hashes, got 1"):
        tensor_sketch(torch.rand(2, 6, 9), index[:1], sign[:1], 9)
    with pytest.raises(ValueError, match="random_maclaurin: expected weights"):
        random_maclaurin(torch.rand(2, 5, 9), torch.rand(2, 9, 6))
    with pytest.raises(ValueError, match=r"random_maclaurin: expected weights .* got \(9, 5\)"):
        random_maclaurin(torch.rand(2, 5, 9), torch.rand(9, 5))
