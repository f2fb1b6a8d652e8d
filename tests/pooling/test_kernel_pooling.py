"""Kernel pooling against its formula, and what it contains."""

import math

import pytest
import torch

from isice.pooling.compact_bilinear import CompactBilinear
from isice.pooling.kernel_pooling import KernelPooling
from tests.pooling._literal import by_image, features, normalized


def kernel_features_by_tuples(image, index, sign, alpha, n_out):
    """Order i as the sum over all i-tuples of channels, without any shortcut."""
    channels, positions = image.shape
    out = [alpha[0]] + [alpha[1] * row.sum().item() / positions for row in image]
    for order in range(2, len(alpha)):
        sketch = [0.0] * n_out
        for channel in torch.cartesian_prod(*[torch.arange(channels)] * order).tolist():
            moment = image[channel].prod(dim=0).sum().item() / positions
            signs = math.prod(sign[j][c] for j, c in enumerate(channel))
            sketch[sum(index[j][c] for j, c in enumerate(channel)) % n_out] += signs * moment
        out += [alpha[order] * value for value in sketch]
    return normalized(out)


@pytest.mark.parametrize("normalize_input", [True, False])
@pytest.mark.parametrize("order", [2, 3])
def test_equals_the_sum_over_tuples_of_channels(order, normalize_input):
    layer = KernelPooling(4, order=order, n_features=9, gamma=0.7, normalize_input=normalize_input)
    x = features(2, 4, 2, 3)
    unit = x / x.square().sum(1, keepdim=True).sqrt() if normalize_input else x
    alpha = [math.sqrt(math.exp(-1.4) * 1.4**i / math.factorial(i)) for i in range(order + 1)]
    index, sign = layer.index.tolist(), layer.sign.tolist()
    expected = by_image(lambda image: kernel_features_by_tuples(image, index, sign, alpha, 9), unit)
    torch.testing.assert_close(layer(x), expected, rtol=1e-6, atol=1e-7)


def test_order_two_contains_compact_bilinear():
    kernel, compact = KernelPooling(6, order=2, n_features=31, normalize_input=False), CompactBilinear(6, n_features=31)
    compact.load_state_dict({"index": kernel.index, "sign": kernel.sign})
    with torch.no_grad():
        kernel.coefficients.fill_(1.0)
    # Large features make the ε of the signed root negligible, then scale (mean
    # against sum) drops out.
    x = 1e4 * features(2, 6, 3, 4)
    part = kernel(x)[:, 7:]
    torch.testing.assert_close(part / part.norm(dim=1, keepdim=True), compact(x), rtol=1e-4, atol=1e-6)


def test_coefficients_are_trained_hashes_are_not():
    layer = KernelPooling(6, n_features=31)
    assert [name for name, _ in layer.named_parameters()] == ["coefficients"]
    assert {name for name, _ in layer.named_buffers()} == {"index", "sign"}
    (layer(torch.rand(2, 6, 3, 3)) * torch.rand(layer.out_features)).sum().backward()
    assert (layer.coefficients.grad != 0).all()


def test_inner_products_approach_the_gaussian_kernel():
    """Of two unit vectors: Σ α_i²⟨x, y⟩ⁱ is the Taylor sum of exp(−γ‖x − y‖²)."""
    from isice.ops.sketch import kernel_features

    layer = KernelPooling(6, order=8, n_features=2**14, gamma=0.5)
    x = features(2, 6, 1)
    x = x / x.norm(dim=1, keepdim=True)
    a, b = kernel_features(x, layer.index, layer.sign, layer.coefficients, layer.n_features)
    assert (a @ b).item() == pytest.approx(math.exp(-0.5 * (x[0] - x[1]).square().sum().item()), abs=0.05)
