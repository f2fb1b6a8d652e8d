"""The covariance kernels against float64: on a GPU, or by Triton's interpreter."""

import functools

import pytest
import torch

pytest.importorskip("triton")

import isice.functional as F
from isice.kernels import covariance as kernels
from isice.kernels.covariance import Units, covariance, covariance_vjp
from isice.ops import _dispatch
from isice.ops._autograd import FusedCovariance
from isice.ops.covariance import covariance_reference

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
gpu = [pytest.mark.gpu, pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")]
SHAPES = [(2, 9, 5), (1, 70, 33), (1, 16, 1), (2, 24, 130), (1, 130, 20)]
SHAPES += [] if DEVICE == "cpu" else [(1, 260, 20)]
# Tensor cores round sums towards zero; the interpreter adds as a CPU does.
TOLERANCE = 2e-6 if DEVICE == "cpu" else 1e-5
HALVES = [torch.bfloat16, torch.float16]


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def features(*shape, offset=0.0, dtype=torch.float32):
    return (noise(*shape).relu() + offset).to(DEVICE, dtype)


def reference(x, grad):
    """Value and gradient in float64 of the numbers that the kernels get."""
    x = x.detach().double().cpu().requires_grad_()
    value = covariance_reference(x)
    return value.detach(), torch.autograd.grad(value, x, grad.double().cpu())[0]


def relative_error(found, expected):
    assert found.isfinite().all()
    scale = expected.norm()
    return float((found.double().cpu() - expected).norm() / (scale if scale > 0 else 1.0))


def run(x, grad, precision="accurate"):
    cov, channels = covariance(x, precision)
    return cov, covariance_vjp(x, channels, grad, precision), channels[:, 0]


def cotangent(x):
    """A cotangent that is not symmetric."""
    return noise(len(x), x.shape[1], x.shape[1], seed=1).float().to(DEVICE)


@pytest.fixture
def filled_with_nan(monkeypatch):
    for name in ("empty", "empty_like"):
        real = getattr(torch, name)
        fill = lambda *args, real=real, **kwargs: real(*args, **kwargs).fill_(float("nan"))  # noqa: E731
        monkeypatch.setattr(torch, name, fill)


@pytest.mark.usefixtures("filled_with_nan")
@pytest.mark.parametrize("precision", ["accurate", "fast"])
@pytest.mark.parametrize("shape", SHAPES)
def test_value_and_gradient(shape, precision):
    x = features(*shape)
    grad = cotangent(x)
    expected, d_expected = reference(x, grad)
    cov, d_x, means = run(x, grad, precision)
    tolerance = TOLERANCE if precision == "accurate" else 2e-3
    assert relative_error(cov, expected) < tolerance
    assert relative_error(d_x, d_expected) < tolerance
    assert torch.equal(cov, cov.mT)
    torch.testing.assert_close(means.cpu(), x.mean(-1).cpu())


@pytest.mark.parametrize(
    "shape",
    [(2, 20, 400)] if DEVICE == "cpu" else [(2, 8, 49), (2, 63, 196), (2, 100, 3136), (2, 257, 196), (1, 512, 784)],
)
def test_errors_are_at_most_twice_those_of_pytorch(shape):
    x = features(*shape)
    grad = cotangent(x)
    single = x.cpu().requires_grad_()
    value = covariance_reference(single)
    (d_simple,) = torch.autograd.grad(value, single, grad.cpu())
    cov, d_x, _ = run(x, grad)
    for found, simple, expected in zip((cov, d_x), (value.detach(), d_simple), reference(x, grad), strict=True):
        assert relative_error(found, expected) < 2 * relative_error(simple, expected)


def test_one_position_has_no_variance():
    x = features(2, 20, 1, offset=7.0)
    cov, d_x, _ = run(x, cotangent(x))
    assert not cov.any()
    assert not d_x.any()


@pytest.mark.parametrize("offset", [1e3, -1e3])
def test_a_large_offset_keeps_the_accuracy(offset):
    x = features(2, 20, 150, offset=offset)
    grad = cotangent(x)
    expected, d_expected = reference(x, grad)
    cov, d_x, _ = run(x, grad)
    assert relative_error(cov, expected) < TOLERANCE
    assert relative_error(d_x, d_expected) < 5e-5  # a mean of float32 has 2⁻²⁴ of the offset at best


@pytest.mark.parametrize("size", [1e-12, 1e-6, 1e12])
def test_channels_of_any_scale(size):
    x, grad = features(2, 20, 150), cotangent(features(2, 20, 150))
    sizes = size * 10.0 ** (torch.arange(20) % 7 - 3).to(DEVICE)
    expected, d_expected = reference(x, grad)
    cov, d_x, _ = run(x * sizes[:, None], grad / (sizes[:, None] * sizes))
    assert relative_error(cov / (sizes[:, None] * sizes), expected) < TOLERANCE
    assert relative_error(d_x * sizes[:, None], d_expected) < TOLERANCE


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_non_finite_features_give_non_finite_results(value):
    x = features(2, 20, 30)
    x[1, 3, 5] = value
    cov, d_x, _ = run(x, cotangent(x))
    assert cov[0].isfinite().all()
    assert d_x[0].isfinite().all()
    assert not cov[1, 3].isfinite().any()
    assert not d_x[1].isfinite().any()


@pytest.mark.parametrize("dtype", HALVES)
def test_half_features_are_centred_in_float32(dtype):
    x = features(2, 36, 49, offset=3.0, dtype=dtype)
    grad = cotangent(x)
    expected, d_expected = reference(x, grad)
    cov, d_x, means = run(x, grad)
    assert cov.dtype == means.dtype == torch.float32
    assert d_x.dtype == dtype
    assert relative_error(cov, expected) < TOLERANCE
    # One rounding of the result, not of what it is computed from; the
    # interpreter truncates to bfloat16.
    once = relative_error(d_expected.to(dtype), d_expected)
    assert relative_error(d_x, d_expected) < (2.5 if DEVICE == "cpu" and dtype == torch.bfloat16 else 1.01) * once


def layouts():
    maps = features(2, 18, 5, 4)
    yield "channels last", maps.to(memory_format=torch.channels_last).flatten(2)
    yield "a slice", features(3, 40, 50)[1:, 3:35:2, 5:41:3]
    yield "batch inside", features(18, 2, 33).transpose(0, 1)
    yield "expanded", features(1, 18, 7).expand(3, -1, -1)


@pytest.mark.usefixtures("filled_with_nan")
@pytest.mark.parametrize(("name", "x"), list(layouts()), ids=lambda value: value if isinstance(value, str) else "")
def test_any_strides(name, x):
    grad = cotangent(x)
    expected, d_expected = reference(x, grad)
    cov, d_x, _ = run(x, grad)
    assert relative_error(cov, expected) < TOLERANCE
    assert relative_error(d_x, d_expected) < TOLERANCE
    if name == "channels last":
        assert d_x.stride() == x.stride() == (360, 1, 18)


def test_wide_offsets(monkeypatch):
    x = features(2, 20, 6)
    grad = cotangent(x)
    expected = run(x, grad)
    monkeypatch.setattr(kernels, "Units", lambda *units: Units(*units[:-1], WIDE=True))
    for found, same in zip(run(x, grad), expected, strict=True):
        assert torch.equal(found, same)


def test_an_empty_batch():
    cov, d_x, means = run(torch.empty(0, 9, 4, device=DEVICE), torch.empty(0, 9, 9, device=DEVICE))
    assert (cov.shape, d_x.shape, means.shape) == ((0, 9, 9), (0, 9, 4), (0, 9))


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
def test_fake_operations_have_the_right_shapes(dtype):
    x = features(2, 12, 3, 3, dtype=dtype).to(memory_format=torch.channels_last).flatten(2)
    grad = cotangent(x)
    check = functools.partial(torch.library.opcheck, test_utils=("test_schema", "test_faketensor"))
    check(torch.ops.isice.covariance.default, (x, "accurate"))
    _, channels = torch.ops.isice.covariance(x, "accurate")
    check(torch.ops.isice.covariance_vjp.default, (x, channels, grad, "accurate"))


def test_autograd_through_the_kernels():
    x = features(2, 9, 14).requires_grad_()
    grad = cotangent(x).requires_grad_()
    along = noise(2, 9, 14, seed=2).float().to(DEVICE)
    (first,) = torch.autograd.grad(FusedCovariance.apply(x), x, grad, create_graph=True)
    second = torch.autograd.grad(first, (x, grad), along)
    exact_x, exact_grad = (t.detach().double().cpu().requires_grad_() for t in (x, grad))
    (d_x,) = torch.autograd.grad(covariance_reference(exact_x), exact_x, exact_grad, create_graph=True)
    expected = torch.autograd.grad(d_x, (exact_x, exact_grad), along.double().cpu())
    assert relative_error(first.detach(), d_x.detach()) < TOLERANCE
    for found, exact in zip(second, expected, strict=True):
        assert relative_error(found, exact) < TOLERANCE


def test_compiles_without_graph_break():
    torch.compiler.reset()
    compiled = torch.compile(FusedCovariance.apply, fullgraph=True, backend="aot_eager")
    x = features(2, 9, 3, 4).to(memory_format=torch.channels_last).flatten(2).requires_grad_()
    grad = cotangent(x)
    expected, d_expected = reference(x, grad)
    cov = compiled(x)
    (d_x,) = torch.autograd.grad(cov, x, grad)
    assert relative_error(cov.detach(), expected) < TOLERANCE
    assert relative_error(d_x, d_expected) < TOLERANCE


class TestOnGPU:
    pytestmark = gpu

    @pytest.fixture(autouse=True)
    def precision(self):
        before = torch.get_float32_matmul_precision()
        yield
        torch.set_float32_matmul_precision(before)

    def check(self, x, tolerance=5e-5, function=F.covariance):
        x = x.detach().requires_grad_()
        flat = x.detach().flatten(2)
        grad = cotangent(flat)
        expected, d_expected = reference(flat, grad)
        cov = function(x)
        (d_x,) = torch.autograd.grad(cov, x, grad)
        assert cov.dtype == torch.float32
        assert d_x.dtype == x.dtype
        assert relative_error(cov.detach(), expected) <= 5e-5
        assert relative_error(d_x.flatten(2), d_expected) <= tolerance
        assert torch.equal(cov, cov.mT)
        return d_x

    @pytest.mark.parametrize("mode", ["highest", "high"])
    @pytest.mark.parametrize("positions", [1, 49, 196])
    @pytest.mark.parametrize("channels", [8, 63, 256, 257])
    def test_sizes(self, channels, positions, mode):
        torch.set_float32_matmul_precision(mode)
        self.check(features(5, channels, positions))
        self.check(features(5, channels, positions, offset=1e3))

    @pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
    @pytest.mark.parametrize("channels", [63, 256])
    def test_channels_last(self, channels, dtype):
        x = features(5, channels, 14, 14, dtype=dtype).to(memory_format=torch.channels_last)
        tolerance = {torch.bfloat16: 2e-3, torch.float16: 3e-4}.get(dtype, 5e-5)
        assert self.check(x, tolerance).stride() == x.stride()

    def test_features_of_16_bits_are_never_copied(self):
        x = features(64, 256, 14, 14, dtype=torch.bfloat16)
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        F.covariance(x)
        assert torch.cuda.max_memory_allocated() - before < 64 * 256 * (256 + 2) * 4 + 2**20

    def test_other_leading_dimensions(self):
        x = features(2, 3, 16, 4, 5)
        torch.testing.assert_close(F.covariance(x)[1, 2], F.covariance(x[1, 2].flatten(1)), rtol=0, atol=0)

    def test_pytorch_where_the_kernels_are_missing(self, monkeypatch):
        monkeypatch.setattr(_dispatch, "kernels_missing", lambda: "not today")
        x = features(2, 16, 20)
        assert relative_error(F.covariance(x), covariance_reference(x.double().cpu())) < TOLERANCE

    def test_second_derivatives(self):
        test_autograd_through_the_kernels()

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_compiled(self, dtype):
        torch.compiler.reset()
        x = features(3, 64, 7, 7, dtype=dtype).to(memory_format=torch.channels_last)
        d_x = self.check(x, 2e-3, torch.compile(F.covariance, fullgraph=True))
        assert d_x.shape == x.shape
