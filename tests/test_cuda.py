"""On a GPU: every layer and operation agrees with the CPU in float64, forward and backward."""

import pytest
import torch

import isice.functional as F
from isice.pooling import create_pooling, list_poolings

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
OPERATIONS = {
    "newton_schulz_sqrt": F.newton_schulz_sqrt,
    "newton_schulz_inverse_sqrt": F.newton_schulz_inverse_sqrt,
    "newton_schulz_inverse": F.newton_schulz_inverse,
    "isice": F.isice,
    "matrix_power": lambda cov: F.matrix_power(cov, 0.5),
    "matrix_log": F.matrix_log,
    "correlation": F.correlation,
    "vectorize": F.vectorize,
}


def value_and_gradient(function, x):
    x = x.detach().requires_grad_()
    value = function(x)
    weights = torch.linspace(-1, 1, value.numel(), dtype=torch.float64).reshape(value.shape).to(value)
    return value.detach(), torch.autograd.grad((value * weights).sum(), x)[0]


def assert_agrees(found, expected, tolerance):
    assert found.device.type == "cuda"
    assert (found.double().cpu() - expected).norm() <= tolerance * expected.norm()


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("size", [1, 7, 63, 100, 257])
def test_operations(name, size):
    x = torch.randn(3, size, 2 * size + 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64).relu()
    cov = F.covariance(x) + 1e-2 * torch.eye(size, dtype=torch.float64)
    expected, expected_gradient = value_and_gradient(OPERATIONS[name], cov)
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 2e-3)):
        value, gradient = value_and_gradient(OPERATIONS[name], cov.to("cuda", dtype))
        assert_agrees(value, expected, tolerance)
        assert_agrees(gradient, expected_gradient, tolerance)


@pytest.mark.parametrize("name", list_poolings())
def test_layers(name):
    torch.manual_seed(0)
    # Two solutions certified to the default tolerance may differ by a few percent.
    spec = "sice(tol=1e-10)" if name == "sice" else name
    layer = create_pooling(spec, 16, num_classes=5).double().eval()
    x = torch.randn(3, 16, 7, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64).relu()
    expected, expected_gradient = value_and_gradient(layer, x)
    value, gradient = value_and_gradient(layer.cuda(), x.cuda())
    assert_agrees(value, expected, 1e-7)
    assert_agrees(gradient, expected_gradient, 1e-7)


@pytest.mark.parametrize("name", list_poolings())
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_layers_stay_in_float32_under_autocast(name, dtype):
    torch.manual_seed(0)
    layer = create_pooling(name, 16, num_classes=5).cuda().eval()
    half = torch.randn(3, 16, 7, 7, generator=torch.Generator().manual_seed(0)).relu().to("cuda", dtype)
    expected, _ = value_and_gradient(layer, half.float())
    with torch.autocast("cuda", dtype=dtype):
        value, gradient = value_and_gradient(layer, half)
    assert value.dtype == torch.float32
    assert gradient.isfinite().all()
    torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("mode", ["highest", "high"])
def test_covariance_is_exact_under_high(mode):
    x = torch.randn(3, 64, 196, generator=torch.Generator().manual_seed(0), dtype=torch.float64).relu()
    expected, expected_gradient = value_and_gradient(F.covariance, x)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(mode)
    try:
        value, gradient = value_and_gradient(F.covariance, x.to("cuda", torch.float32))
    finally:
        torch.set_float32_matmul_precision(before)
    assert_agrees(value, expected, 2e-6)
    assert_agrees(gradient, expected_gradient, 2e-6)


@pytest.mark.parametrize("name", ["isice", "isqrt_cov", "precision"])
def test_no_host_synchronisation(name):
    layer = create_pooling(name, 32).cuda()
    x = torch.randn(4, 32, 7, 7, device="cuda", requires_grad=True)
    layer(x).sum().backward()
    torch.cuda.set_sync_debug_mode("error")
    try:
        layer(x).sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("name", ["isice", "isqrt_cov"])
def test_a_cuda_graph_repeats_the_layer(name):
    layer = create_pooling(name, 64).cuda()
    x = torch.randn(4, 64, 7, 7, device="cuda").relu().requires_grad_()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # compiles, and fills the caches of index tables and programs
        torch.autograd.grad(layer(x).square().sum(), x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (gradient,) = torch.autograd.grad(layer(x).square().sum(), x)
    with torch.no_grad():
        x.copy_(torch.randn(4, 64, 7, 7, device="cuda").relu())
    graph.replay()
    (expected,) = torch.autograd.grad(layer(x).square().sum(), x)
    torch.testing.assert_close(gradient, expected, rtol=1e-3, atol=1e-4 * float(expected.abs().max()))


@pytest.mark.parametrize("name", ["isice", "isqrt_cov"])
def test_a_compiled_layer_uses_the_kernels(name):
    layer = create_pooling(name, 32).cuda()
    x = torch.randn(4, 32, 7, 7, device="cuda").relu().requires_grad_()
    expected = layer(x)
    (expected_gradient,) = torch.autograd.grad(expected.square().sum(), x)
    value = torch.compile(layer, fullgraph=True)(x)
    (gradient,) = torch.autograd.grad(value.square().sum(), x)
    torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-3, atol=1e-4 * float(expected_gradient.abs().max()))
