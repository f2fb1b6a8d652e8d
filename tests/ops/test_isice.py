import shutil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch.utils.flop_counter import FlopCounterMode

import isice.functional as F
from isice.ops.isice import isice_reference

from .conftest import symmetric

NORMALIZE = ["sqrt_trace", "trace", "none"]


@pytest.mark.parametrize("normalize", NORMALIZE)
@pytest.mark.parametrize("first_gradient", ["inverse", "printed"])
@pytest.mark.parametrize("n_iter", [0, 1, 2, 5])
def test_value_and_gradients_against_the_printed_algorithm(normalize, first_gradient, n_iter, make_cov, generator):
    cov = make_cov(3, 6).requires_grad_()
    sparsity = torch.tensor([0.01, 0.1, 0.5], dtype=torch.float64, requires_grad=True)
    step_size = torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64, requires_grad=True)
    inputs, weights = (cov, sparsity, step_size), torch.randn(3, 6, 6, generator=generator, dtype=torch.float64)
    options = {"n_iter": n_iter, "normalize": normalize, "first_gradient": first_gradient}
    value = F.isice(cov, sparsity=sparsity, step_size=step_size, **options)
    expected = isice_reference(cov, sparsity=sparsity, step_size=step_size, **options)
    torch.testing.assert_close(value, expected, rtol=1e-11, atol=1e-12)
    gradients = torch.autograd.grad((value * weights).sum(), inputs)
    wanted = torch.autograd.grad((expected * weights).sum(), inputs, allow_unused=True, materialize_grads=True)
    for gradient, want in zip(gradients, (symmetric(wanted[0]), *wanted[1:]), strict=True):
        torch.testing.assert_close(gradient, want, rtol=1e-9, atol=1e-10 * (1 + float(want.norm())))


def test_gradcheck(make_cov):
    cov = make_cov(2, 3).requires_grad_()
    sparsity = torch.tensor([0.02, 0.3], dtype=torch.float64, requires_grad=True)
    step_size = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)

    def function(a, lam, eta):
        return F.isice(symmetric(a), sparsity=lam, step_size=eta, n_iter=4, n_inverse_iter=3)

    assert torch.autograd.gradcheck(function, (cov, sparsity, step_size))


def test_no_iteration_is_the_precision_matrix(make_cov):
    cov = make_cov(2, 5)
    sigma = cov / cov.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    torch.testing.assert_close(
        F.isice(cov, n_iter=0, normalize="none", alpha=0.0), F.newton_schulz_inverse(sigma, n_iter=7)
    )


def test_presets(make_cov):
    cov = make_cov(1, 5)
    torch.testing.assert_close(F.isice(cov, preset="paper"), F.isice(cov, normalize="trace"), rtol=0, atol=0)
    torch.testing.assert_close(F.isice(cov, preset="official"), F.isice(cov), rtol=0, atol=0)


def test_scale_of_the_features_does_not_matter(make_cov):
    cov = make_cov(2, 5)
    torch.testing.assert_close(F.isice(cov), F.isice(1e4 * cov), rtol=1e-10, atol=1e-12)


def test_permutation_equivariance(make_cov, generator):
    cov, order = make_cov(2, 7), torch.randperm(7, generator=generator)
    torch.testing.assert_close(F.isice(cov)[:, order][:, :, order], F.isice(cov[:, order][:, :, order]))


def test_a_strong_penalty_makes_exact_zeros(make_cov):
    cov = make_cov(2, 8)
    weak, strong = (F.zero_fraction(F.isice(cov, sparsity=lam, step_size=5.0)) for lam in (0.0, 5.0))
    assert (strong > weak + 0.3).all()


def test_the_same_without_gradients_and_in_parts(make_cov, monkeypatch):
    cov = make_cov(5, 6).requires_grad_()
    value = F.isice(cov)
    gradient = torch.autograd.grad(value.square().sum(), cov)[0]
    with torch.no_grad():
        assert torch.equal(F.isice(cov), value)
    monkeypatch.setattr("torch.get_num_threads", lambda: 1)
    monkeypatch.setattr("isice.ops.isice._CACHED_FLOATS", 2 * 6 * 6)
    in_parts = F.isice(cov)
    torch.testing.assert_close(in_parts, value, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(torch.autograd.grad(in_parts.square().sum(), cov)[0], gradient, rtol=1e-10, atol=1e-10)


def test_leading_dimensions_and_per_image_values(make_cov, generator):
    cov, lam = make_cov(2, 3, 5), torch.rand(2, 3, generator=generator, dtype=torch.float64)
    value = F.isice(cov, sparsity=lam)
    torch.testing.assert_close(value[1, 2], F.isice(cov[1, 2], sparsity=float(lam[1, 2])))
    assert F.isice(cov[0, 0]).shape == (5, 5)


def test_cost_at_the_size_in_use(generator):
    """80 products forward, 185 backward, 1.5 MiB kept per image (D = 256, N = 5)."""
    size, batch = 256, 2
    cov = F.covariance(torch.randn(batch, size, 196, generator=generator).relu()).requires_grad_()
    kept = {}

    def pack(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
    # PyTorch's counter leaves out products that are added in place.
    in_place = {torch.ops.aten.baddbmm_: lambda _, a, b, **__: 2 * a.numel() * b[-1]}
    with FlopCounterMode(display=False, custom_mapping=in_place) as forward, hooks:
        value = F.isice(cov)
    with FlopCounterMode(display=False, custom_mapping=in_place) as backward:
        value.sum().backward()
    product = 2 * batch * size**3
    assert forward.get_total_flops() / product == 80
    assert backward.get_total_flops() / product == 185
    assert sum(kept.values()) / batch < 1.51 * 2**20


def test_float32_accuracy_at_256_channels(generator):
    x = torch.randn(2, 256, 196, generator=generator).relu()
    single, double = F.covariance(x).requires_grad_(), F.covariance(x.double()).requires_grad_()
    low, high = F.isice(single), F.isice(double)
    weights = torch.randn(high.shape, generator=generator, dtype=torch.float64)
    low_gradient = torch.autograd.grad((low * weights.float()).sum(), single)[0]
    high_gradient = torch.autograd.grad((high * weights).sum(), double)[0]
    assert (low - high).norm() / high.norm() < 2e-5
    assert (low_gradient - high_gradient).norm() / high_gradient.norm() < 5e-5


@settings(max_examples=60, deadline=None)
@given(
    x=hnp.arrays("float32", (4, 6), elements=st.floats(-1e4, 1e4, width=32)),
    sparsity=st.floats(0, 10),
    step_size=st.floats(0, 5),
    n_iter=st.integers(0, 6),
    normalize=st.sampled_from(NORMALIZE),
)
def test_finite_for_any_finite_features(x, sparsity, step_size, n_iter, normalize):
    features = torch.from_numpy(x)[None].requires_grad_()
    cov = F.covariance(features)
    value = F.isice(cov, sparsity=sparsity, step_size=step_size, n_iter=n_iter, normalize=normalize)
    assert value.isfinite().all()
    assert torch.autograd.grad(value.sum(), features)[0].isfinite().all()


def test_second_derivative_is_a_clear_error(make_cov):
    cov = make_cov(1, 3).requires_grad_()
    for loss in (F.isice(cov).sum(), F.isice(cov).square().sum()):
        gradient = torch.autograd.grad(loss, cov, create_graph=True)[0]
        with pytest.raises(RuntimeError, match="isice: expected a first derivative"):
            torch.autograd.grad(gradient.sum(), cov)


def test_modulated_by_one_is_the_plain_layer(make_cov):
    cov = make_cov(2, 5).requires_grad_()

    def ones(nabla):
        return nabla.new_ones(2), nabla.new_ones(2)

    for n_iter in (0, 1, 5):
        value, expected = F.isice_modulated(cov, ones, n_iter=n_iter), F.isice(cov, n_iter=n_iter)
        torch.testing.assert_close(value, expected)
        torch.testing.assert_close(
            torch.autograd.grad(value.square().sum(), cov)[0], torch.autograd.grad(expected.square().sum(), cov)[0]
        )


def test_modulated_sees_the_gradient_of_every_step(make_cov):
    cov, seen = make_cov(2, 4), []

    def modulate(nabla):
        seen.append(nabla)
        return nabla.new_full((2,), 0.5), nabla.new_full((2,), 2.0)

    value = F.isice_modulated(cov, modulate)
    torch.testing.assert_close(value, F.isice(cov, step_size=0.5, sparsity=0.02))
    assert len(seen) == 4


def test_modulation():
    torch.testing.assert_close(F.modulation(torch.tensor([-1e9, 0.0, 1e9])), torch.tensor([0.01, 1.01, 2.01]))
    penalty = F.modulation_penalty(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 1.0]), gamma=0.1)
    torch.testing.assert_close(penalty, torch.tensor(0.1))


@pytest.mark.slow  # every pooling is compiled by aot_eager in tests/pooling/test_contract.py
@pytest.mark.skipif(
    shutil.which("c++") is None and shutil.which("g++") is None, reason="torch.compile needs a C++ compiler"
)
def test_inductor(make_cov):
    cov = make_cov(2, 8, dtype=torch.float32).requires_grad_()
    compiled = torch.compile(lambda a: F.isice(a, n_iter=2, n_inverse_iter=2), fullgraph=True)
    expected = F.isice(cov, n_iter=2, n_inverse_iter=2)
    torch.testing.assert_close(compiled(cov), expected, rtol=1e-4, atol=1e-5)
    gradient = torch.autograd.grad(compiled(cov).square().sum(), cov)[0]
    torch.testing.assert_close(gradient, torch.autograd.grad(expected.square().sum(), cov)[0], rtol=1e-3, atol=1e-4)


def test_a_compiled_step_passes_the_same_cotangents(make_cov):
    cov = torch.cat([make_cov(2, 6), torch.eye(6)[None].to(make_cov(1, 6))])  # with entries at ReLU's kink

    def gradient(function):
        leaf = cov.clone().requires_grad_()
        function(leaf, n_iter=1, n_inverse_iter=2, sparsity=0.1).sin().sum().backward()
        return leaf.grad

    compiled = torch.compile(F.isice, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(gradient(compiled), gradient(F.isice))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_iter": -1}, "isice: expected n_iter ≥ 0, got -1"),
        ({"n_inverse_iter": 0}, "isice: expected n_inverse_iter ≥ 1, got 0"),
        ({"normalize": "sqrttrace"}, "expected normalize to be one of .*, got 'sqrttrace'. Did you mean 'sqrt_trace'"),
        ({"first_gradient": "sigma"}, "expected first_gradient to be one of 'inverse', 'printed', got 'sigma'"),
        ({"sparsity": -0.1}, "isice: expected a finite sparsity ≥ 0"),
        ({"step_size": float("nan")}, "isice: expected a finite step_size ≥ 0"),
        ({"sparsity": torch.rand(3)}, r"isice: expected sparsity to be a number or of shape \(2,\), one value per"),
        ({"preset": "papers"}, "expected preset to be one of 'paper', 'official', got 'papers'. Did you mean 'paper'"),
        ({"alpha": -1.0}, "isice: expected a finite alpha ≥ 0"),
    ],
)
def test_errors(options, message):
    with pytest.raises(ValueError, match=message):
        F.isice(torch.eye(3).expand(2, 3, 3), **options)


@pytest.mark.parametrize("function", [F.isice, F.newton_schulz_sqrt, F.newton_schulz_inverse, F.matrix_log])
def test_square_feature_maps_instead_of_matrices(function):
    with pytest.raises(ValueError, match=r"expected symmetric matrices .* pass features through covariance\(\) first"):
        function(torch.rand(8, 64, 14, 14))
