"""The implicit gradient: finite differences, every input, compile and export of the operator."""

import functools
from functools import partial
from unittest import mock

import pytest
import torch

from isice.ops.graphical_lasso import graphical_lasso, polish
from isice.ops.graphical_lasso.autograd import ROUGHEST_STEPS, graphical_lasso_backward_op
from isice.ops.graphical_lasso.certificate import inverse_if_positive

# The covariance's own unit, and the tolerance of a layer.
graphical_lasso = partial(graphical_lasso, scale="raw", tol=1e-4)


def needs_cuda(test):
    return pytest.mark.gpu(pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")(test))


def spd(size, samples, *, batch=(), seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(*batch, size, samples, generator=generator, dtype=torch.float64)
    return x @ x.mT / samples


def solve(cov, sparsity, weights=None, **options):
    return graphical_lasso(cov, sparsity, weights=weights, tol=1e-12, **options)


def _precision(cov, sparsity, **options):
    return solve(cov, sparsity, **options).precision


@pytest.mark.parametrize(
    ("samples", "options"),
    [(40, {}), (4, {}), (40, {"penalize_diagonal": True}), (4, {"scale": "correlation"}), (40, {"scale": "trace"})],
)
def test_gradcheck_to_covariance_and_sparsity(samples, options):
    cov = spd(5, samples, batch=(2,)).requires_grad_()
    sparsity = torch.tensor([0.08, 0.15], dtype=torch.float64) / (5 if options.get("scale") == "trace" else 1)
    sparsity.requires_grad_()
    precision = solve(cov, sparsity, **options).precision
    zeros = int((precision == 0).sum())
    assert 0 < zeros < precision.numel()
    function = functools.partial(_precision, **options)
    assert torch.autograd.gradcheck(function, (cov, sparsity), atol=1e-5, rtol=1e-4, fast_mode=samples == 4)


def test_gradcheck_to_weights_and_one_sparsity_for_all():
    cov = spd(5, 30, batch=(2,), seed=1)
    generator = torch.Generator().manual_seed(2)
    weights = (0.5 + torch.rand(5, 5, generator=generator, dtype=torch.float64)).requires_grad_()
    sparsity = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)

    def found(s, w):
        return solve(cov, s, w + w.mT).precision

    assert torch.autograd.gradcheck(found, (sparsity, weights), atol=1e-5, rtol=1e-4)


def test_gradient_through_the_covariance_of_the_result():
    cov = spd(5, 30, seed=4).requires_grad_()
    assert torch.autograd.gradcheck(lambda c: solve(c, 0.1).covariance, (cov,), atol=1e-5, rtol=1e-4)


def test_bad_units_do_not_spoil_the_gradient():
    cov, units = spd(6, 20, seed=5), torch.logspace(-3, 3, 6, dtype=torch.float64)
    outer = torch.outer(units, units)
    plain, scaled = cov.clone().requires_grad_(), (cov * outer).requires_grad_()
    target = torch.randn(6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    (solve(plain, 0.1, scale="correlation").precision * target).sum().backward()
    (solve(scaled, 0.1, scale="correlation").precision * outer * target).sum().backward()
    torch.testing.assert_close(scaled.grad * outer, plain.grad, rtol=1e-6, atol=1e-8)


def test_float32_gradient_is_near_the_float64_one():
    cov = spd(20, 60, seed=6)
    target = torch.randn(20, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    grads = []
    for dtype in (torch.float32, torch.float64):
        leaf = cov.to(dtype).requires_grad_()
        (graphical_lasso(leaf, 0.1, tol=1e-9).precision * target.to(dtype)).sum().backward()
        grads.append(leaf.grad.double())
    assert float((grads[0] - grads[1]).norm() / grads[1].norm()) < 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("samples", "sparsity"), [(120, 0.05), (15, 0.1)])
def test_default_settings_give_gradients_right_to_five_digits(samples, sparsity, dtype):
    cov = spd(30, samples, seed=3)
    generator = torch.Generator().manual_seed(1)
    target, direction = (torch.randn(30, 30, generator=generator, dtype=torch.float64) for _ in range(2))
    cov, direction = cov.to(dtype).double(), direction + direction.mT

    def loss(c):
        return float((graphical_lasso(c, sparsity, tol=1e-13).precision * target).sum())

    step = 1e-6
    difference = (loss(cov + step * direction) - loss(cov - step * direction)) / (2 * step)
    leaf = cov.to(dtype).requires_grad_()
    (graphical_lasso(leaf, sparsity).precision * target.to(dtype)).sum().backward()
    assert float((leaf.grad.double() * direction).sum()) == pytest.approx(difference, rel=1e-5)


def test_gradients_of_singular_matrices_are_right_where_the_penalty_is_small():
    samples = torch.randn(100, 25, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    cov, target = torch.corrcoef(samples), spd(100, 200, seed=1)
    grads = []
    for tol in (1e-6, 1e-13):
        leaf = cov.clone().requires_grad_()
        (graphical_lasso(leaf, 0.003, tol=tol).precision * target).sum().backward()
        grads.append(leaf.grad)
    torch.testing.assert_close(*grads, rtol=0, atol=1e-6 * float(grads[1].abs().max()))


def test_a_call_without_gradient_is_not_polished():
    cov = spd(30, 15)
    leaf = cov.clone().requires_grad_()
    with torch.no_grad():
        assert float(graphical_lasso(leaf, 0.1).gap) > 1e-9
    assert float(graphical_lasso(leaf, 0.1, polish=False).gap) > 1e-9
    assert float(graphical_lasso(cov, 0.1, polish=True).gap) < 1e-9
    assert float(graphical_lasso(leaf, 0.1).gap) < 1e-9


def test_second_derivative_is_a_clear_error():
    cov = spd(4, 20).requires_grad_()
    (grad,) = torch.autograd.grad(graphical_lasso(cov, 0.05).precision.sum(), cov, create_graph=True)
    with pytest.raises(RuntimeError, match="expected a first derivative"):
        grad.sum().backward()


def test_certificate_and_iterations_carry_no_gradient():
    result = graphical_lasso(spd(4, 20).requires_grad_(), 0.05)
    assert result.precision.requires_grad
    assert not result.gap.requires_grad
    assert not result.n_iter.requires_grad
    assert not result.dual.requires_grad


def test_the_operator_keeps_the_rules_of_custom_operators():
    from isice.ops.graphical_lasso.autograd import graphical_lasso_op

    cov = spd(5, 20, batch=(2,)).requires_grad_()
    penalty = torch.full((2, 1, 1), 0.1, dtype=torch.float64, requires_grad=True)
    torch.library.opcheck(graphical_lasso_op, (cov, penalty, False, 1e-10, 100, None, True))


def test_compiles_without_graph_breaks():
    cov = spd(5, 20, batch=(3,))
    compiled = torch.compile(lambda c: graphical_lasso(c, 0.1).precision, fullgraph=True, backend="aot_eager")
    leaf, eager_leaf = cov.clone().requires_grad_(), cov.clone().requires_grad_()
    compiled(leaf).square().sum().backward()
    graphical_lasso(eager_leaf, 0.1).precision.square().sum().backward()
    torch.testing.assert_close(leaf.grad, eager_leaf.grad)


@pytest.mark.parametrize("size", [8, 24])
def test_agrees_with_cvxpylayers(size):
    cp = pytest.importorskip("cvxpy")
    layers = pytest.importorskip("cvxpylayers.torch")
    cov = spd(size, 3 * size, seed=size)
    target = torch.randn(size, size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    target = target + target.T
    theta, parameter = cp.Variable((size, size), PSD=True), cp.Parameter((size, size))
    off = (1 - torch.eye(size)).numpy()
    penalty = 0.15 * cp.sum(cp.abs(cp.multiply(off, theta)))
    problem = cp.Problem(cp.Minimize(cp.sum(cp.multiply(parameter, theta)) - cp.log_det(theta) + penalty))
    layer = layers.CvxpyLayer(problem, parameters=[parameter], variables=[theta])
    theirs, ours = cov.clone().requires_grad_(), cov.clone().requires_grad_()
    (answer,) = layer(theirs, solver_args={"eps": 1e-9, "max_iters": 200_000})
    (answer * target).sum().backward()
    precision = solve(ours, 0.15).precision
    (precision * target).sum().backward()
    torch.testing.assert_close(precision, answer, rtol=1e-5, atol=1e-6)
    gradient = 0.5 * (theirs.grad + theirs.grad.T)
    assert float((gradient - ours.grad).norm() / ours.grad.norm()) < 1e-4


@needs_cuda
@pytest.mark.parametrize("size", [24, 96])
def test_cuda_gives_value_and_gradient_of_the_cpu(size):
    cov, results = spd(size, size // 2, batch=(4,), seed=size), []
    target = torch.randn(size, size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for device in ("cpu", "cuda"):
        leaf = cov.clone().to(device).requires_grad_()
        result = graphical_lasso(leaf, 0.1, scale="correlation", tol=1e-10)
        (result.precision * target.to(device)).sum().backward()
        results.append((result.precision.detach().cpu(), leaf.grad.cpu()))
    torch.testing.assert_close(results[1][0], results[0][0], rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(results[1][1], results[0][1], rtol=1e-4, atol=1e-5 * float(results[0][1].abs().max()))


@needs_cuda
def test_cuda_in_float32_certifies_singular_matrices_within_the_promised_memory():
    cov = spd(128, 64, batch=(32,)).float().cuda()
    graphical_lasso(cov, 0.03, scale="correlation")
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    result = graphical_lasso(cov, 0.03, scale="correlation")
    assert bool((result.gap <= 1e-4 * 128).all())
    identity = torch.eye(128, device="cuda")
    assert float((result.precision @ result.covariance - identity).abs().max()) < 1e-3
    assert (torch.cuda.max_memory_allocated() - before) / cov.numel() / 4 <= 14


@pytest.mark.parametrize("sparsity", [0.1, 0.01])
def test_the_unpolished_float32_system_is_solved_beyond_the_error_of_the_solution(sparsity):
    """Of the same solution, the gradient by float32 to 1e-3 and the one by float64 to 1e-11."""
    generator = torch.Generator().manual_seed(0)
    cov = torch.corrcoef(torch.randn(40, 60, generator=generator))
    result = graphical_lasso(cov, sparsity, scale="raw", tol=1e-4)
    cotangent = torch.randn(1, 40, 40, generator=generator)
    exact, _ = inverse_if_positive(result.precision.double()[None], result.covariance.double()[None])
    rough = graphical_lasso_backward_op(cotangent, result.precision[None], result.covariance[None], 1e-4, False)
    fine = graphical_lasso_backward_op(cotangent.double(), result.precision.double()[None], exact, 1e-4, True)
    assert float((rough - fine).norm() / fine.norm()) < 3e-3


def test_a_large_tolerance_limits_the_steps_of_an_unpolished_gradient():
    """On singular features the few steps cost less accuracy than the solution's own error."""
    generator = torch.Generator().manual_seed(0)
    features = (torch.randn(96, 24, generator=generator) @ torch.randn(24, 60, generator=generator) + 2).relu()
    cov, cotangent = torch.corrcoef(features), torch.randn(96, 96, generator=generator)

    def gradient(dtype, **options):
        leaf = cov.to(dtype).requires_grad_()
        result = graphical_lasso(leaf, 0.1, scale="raw", **options)
        return torch.autograd.grad((result.precision * cotangent.to(dtype)).sum(), leaf)[0].double()

    exact = gradient(torch.float64)
    with mock.patch.object(polish, "_projected_product", wraps=polish._projected_product) as products:
        rough = gradient(torch.float32, tol=5e-4, polish=False)
    assert products.call_count <= 1 + 2 * ROUGHEST_STEPS
    assert float(torch.cosine_similarity(rough.flatten(), exact.flatten(), dim=0)) > 0.95
