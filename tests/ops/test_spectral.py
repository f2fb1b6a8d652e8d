import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import isice.functional as F
from isice.ops import spectral
from isice.ops.spectral import eigh_in_threads, matrix_log_reference, matrix_power_reference

from .conftest import symmetric

FUNCTIONS = {
    "log": (F.matrix_log, matrix_log_reference),
    **{
        f"power {p}": (lambda a, p=p: F.matrix_power(a, p), lambda a, p=p: matrix_power_reference(a, p))
        for p in (0.5, -0.5, -1.0, 2.0, 0.3)
    },
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_value_and_gradient_against_autograd(name, make_cov, generator):
    function, reference = FUNCTIONS[name]
    cov = make_cov(3, 6).requires_grad_()
    weights = torch.randn(3, 6, 6, generator=generator, dtype=torch.float64)
    value, expected = function(cov), reference(cov)
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-12)
    gradient = torch.autograd.grad((value * weights).sum(), cov)[0]
    expected_gradient = symmetric(torch.autograd.grad((expected * weights).sum(), cov)[0])
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-9, atol=1e-10)


def test_against_scipy(make_cov):
    linalg = pytest.importorskip("scipy.linalg")
    cov = make_cov(1, 5)[0]
    torch.testing.assert_close(F.matrix_log(cov), torch.from_numpy(linalg.logm(cov.numpy())), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(
        F.matrix_power(cov, 0.3),
        torch.from_numpy(linalg.fractional_matrix_power(cov.numpy(), 0.3)),
        rtol=1e-9,
        atol=1e-9,
    )


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("values", [[1, 1, 1], [2, 2, 5], [1, 1 + 1e-12, 3]])
def test_gradcheck_at_repeated_eigenvalues(name, values):
    """Finite differences are the judge: autograd through eigh gives NaN here."""
    function, _ = FUNCTIONS[name]
    basis = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64))[0]
    cov = symmetric(basis @ torch.diag(torch.tensor(values, dtype=torch.float64)) @ basis.mT).requires_grad_()
    assert torch.autograd.gradcheck(lambda a: function(symmetric(a)), cov)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("matrix", [torch.zeros(4, 4), torch.ones(4, 4), torch.diag(torch.tensor([1.0, 0, 0, 2]))])
def test_finite_on_singular_matrices(name, dtype, matrix):
    cov = matrix.to(dtype).requires_grad_()
    value = FUNCTIONS[name][0](cov)
    assert value.isfinite().all()
    assert torch.autograd.grad(value.sum(), cov)[0].isfinite().all()


@settings(max_examples=40, deadline=None)
@given(
    x=hnp.arrays("float32", (4, 6), elements=st.floats(-100, 100, width=32)), name=st.sampled_from(sorted(FUNCTIONS))
)
def test_finite_for_any_finite_features(x, name):
    features = torch.from_numpy(x)[None].requires_grad_()
    value = FUNCTIONS[name][0](F.covariance(features))
    assert value.isfinite().all()
    assert torch.autograd.grad(value.sum(), features)[0].isfinite().all()


@pytest.mark.parametrize("name", ["log", "power 0.5"])
def test_second_derivative_is_a_clear_error(name, make_cov):
    cov = make_cov(1, 3).requires_grad_()
    for loss in (FUNCTIONS[name][0](cov).sum(), FUNCTIONS[name][0](cov).square().sum()):
        gradient = torch.autograd.grad(loss, cov, create_graph=True)[0]
        with pytest.raises(RuntimeError, match=r"matrix_\w+: expected a first derivative"):
            torch.autograd.grad(gradient.sum(), cov)


def test_errors():
    with pytest.raises(TypeError, match="matrix_power: expected p to be a number, got 'half'"):
        F.matrix_power(torch.eye(2), "half")


def test_a_batch_decomposed_by_several_cores_is_that_of_one(make_cov):
    cov = make_cov(2, 5, 7)
    cov[1, 2] = torch.nan
    threads = torch.get_num_threads()
    with torch.inference_mode():
        values, vectors = eigh_in_threads(cov)
    assert torch.get_num_threads() == threads
    assert values.shape == (2, 5, 7)
    assert values[1, 2].isnan().all()
    whole = torch.ones(2, 5, dtype=torch.bool)
    whole[1, 2] = False
    torch.testing.assert_close(values[whole], torch.linalg.eigvalsh(cov[whole]), rtol=1e-10, atol=1e-12)
    again = (vectors * values.unsqueeze(-2)) @ vectors.mT
    torch.testing.assert_close(again[whole], cov[whole], rtol=1e-10, atol=1e-12)


def test_every_thread_computes_with_one_core(make_cov, monkeypatch):
    seen, eigh = [], torch.linalg.eigh
    monkeypatch.setattr(torch.linalg, "eigh", lambda part: seen.append(torch.get_num_threads()) or eigh(part))
    spectral._thread_pool.cache_clear()
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        eigh_in_threads(make_cov(8, 5))
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
        spectral._thread_pool.cache_clear()
    assert seen == [1, 1, 1]


@pytest.mark.gpu
def test_large_batches_on_a_gpu_are_decomposed_by_the_host(monkeypatch, make_cov):
    cov = make_cov(16, 96, samples=400).float().cuda()
    expected = F.matrix_power(cov.double(), 0.5)
    used = []
    monkeypatch.setattr(spectral, "eigh_in_threads", lambda a: (used.append(a.shape), eigh_in_threads(a))[1])
    root = F.matrix_power(cov.requires_grad_(), 0.5)
    root.sum().backward()
    assert used == [(16, 96, 96)]
    assert root.device.type == cov.grad.device.type == "cuda"
    torch.testing.assert_close(root.double(), expected, rtol=1e-3, atol=1e-3)
