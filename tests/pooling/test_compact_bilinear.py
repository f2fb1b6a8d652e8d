"""Compact bilinear pooling against its formula, and its memory."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from isice.ops.sketch import tensor_sketches_reference
from isice.pooling import create_pooling
from isice.pooling.compact_bilinear import CompactBilinear
from tests.pooling._literal import by_image, features, normalized


def tensor_sketch_by_pairs(image, index, sign, n_out):
    """The sketch of the bilinear matrix: (i, j) goes to bucket h₁(i) + h₂(j), sign s₁(i)s₂(j)."""
    bilinear, out = image @ image.T, [0.0] * n_out
    for i in range(len(bilinear)):
        for j in range(len(bilinear)):
            bucket = (index[0][i] + index[1][j]) % n_out
            out[bucket] += sign[0][i] * sign[1][j] * bilinear[i, j].item()
    return normalized(out)


@pytest.mark.parametrize("n_features", [16, 17, 30])
def test_tensor_sketch_equals_the_sketch_of_all_pairs(n_features):
    layer, x = CompactBilinear(6, n_features=n_features), features(2, 6, 3, 4)
    index, sign = layer.index.tolist(), layer.sign.tolist()
    expected = by_image(lambda image: tensor_sketch_by_pairs(image, index, sign, n_features), x)
    torch.testing.assert_close(layer(x), expected)


def test_random_maclaurin_equals_bilinear_forms():
    layer, x = CompactBilinear(6, method="random_maclaurin", n_features=11), features(2, 6, 3, 4)
    left, right = layer.weights.double()
    forms = by_image(
        lambda image: normalized([(a @ image @ image.T @ b).item() for a, b in zip(left, right, strict=True)]), x
    )
    torch.testing.assert_close(layer(x), forms)


def test_the_output_approximates_the_second_order_kernel():
    """Without the signed root, inner products of the layer's vectors approach ⟨XXᵀ, YYᵀ⟩."""
    layer, x = CompactBilinear(6, n_features=4001), features(2, 6, 25)
    a, b = tensor_sketches_reference(x, layer.index, layer.sign, 4001)[:, 0]
    kernel = (x[0] @ x[0].T * (x[1] @ x[1].T)).sum()
    scale = torch.linalg.matrix_norm(x[0] @ x[0].T) * torch.linalg.matrix_norm(x[1] @ x[1].T)
    assert abs(a @ b - kernel) < 0.1 * scale


@pytest.mark.parametrize("method", ["tensor_sketch", "random_maclaurin"])
def test_projections_are_seeded_saved_and_independent_of_the_global_generator(method):
    spec = f"compact_bilinear(method={method!r}, n_features=33, seed={{}})"
    first = create_pooling(spec.format(7), 6)
    torch.rand(1)
    same, other = create_pooling(spec.format(7), 6), create_pooling(spec.format(8), 6)
    x = torch.rand(2, 6, 4, 4)
    assert torch.equal(first(x), same(x))
    assert not torch.allclose(first(x), other(x))
    other.load_state_dict(first.state_dict())
    assert torch.equal(first(x), other(x))
    assert not list(first.parameters())


class _Outputs(TorchDispatchMode):
    """Records shape and bytes of every new tensor, views of ``known`` tensors excepted."""

    def __init__(self, known):
        super().__init__()
        self.known = {tensor.untyped_storage().data_ptr() for tensor in known}
        self.shapes, self.bytes = [], []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().data_ptr() not in self.known:
                self.shapes.append(tuple(tensor.shape))
                self.bytes.append(tensor.numel() * tensor.element_size())
        return out


def memory(layer, x):
    """Return the bytes kept between forward and backward, and the tensors that were made."""
    saved = {}

    def pack(tensor):
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with _Outputs(layer.buffers()) as outputs:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            out = layer(x)
        out.sum().backward()
    projections = sum(buffer.untyped_storage().nbytes() for buffer in layer.buffers())
    return sum(saved.values()) - projections, outputs


@pytest.mark.parametrize("method", ["tensor_sketch", "random_maclaurin"])
def test_memory_at_512_channels_and_28x28_positions(method):
    x = torch.rand(1, 512, 28, 28, requires_grad=True)
    kept, outputs = memory(CompactBilinear(512, method=method), x)
    assert kept <= 1.2 * x.numel() * 4 + 16 * 512**2, "the features, one matrix, its buckets and signs"
    assert max(outputs.bytes) <= 4 * 2**20, "never all positions times n_features (25 MiB)"


@pytest.mark.parametrize(("method", "n_positions"), [("tensor_sketch", 7), ("random_maclaurin", 5)])
def test_memory_of_many_channels_at_few_positions(method, n_positions):
    x = torch.rand(1, 1024, 1, n_positions, requires_grad=True)
    kept, outputs = memory(CompactBilinear(1024, method=method, n_features=256), x)
    assert kept <= 1.2 * x.numel() * 4 + 16 * 256, "only features and projections are kept"
    assert not [shape for shape in outputs.shapes if shape[-2:] == (1024, 1024)], "C² products are not formed"
