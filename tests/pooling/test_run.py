"""RUN against its formula with dense matrices."""

import pytest
import torch

from isice.pooling.compact_bilinear import CompactBilinear
from isice.pooling.run import RUN
from tests.pooling._literal import by_image, features, normalized


@pytest.mark.parametrize("strength", [0.5, 0.2])
@pytest.mark.parametrize("n_iter", [1, 2])
def test_equals_the_sketch_of_the_dense_update(n_iter, strength):
    layer, x = RUN(5, n_iter=n_iter, strength=strength, n_features=13), features(2, 5, 3, 4)
    index, sign = layer.index.tolist(), layer.sign.tolist()

    def literal(image):
        bilinear, v = image @ image.T, layer.start.double()
        for _ in range(n_iter):
            v = bilinear @ v
        damping = torch.eye(5, dtype=torch.float64) - strength * torch.outer(v, v) / (v @ v)
        updated, out = damping @ bilinear @ damping.T, [0.0] * 13
        for i in range(5):
            for j in range(5):
                out[(index[0][i] + index[1][j]) % 13] += sign[0][i] * sign[1][j] * updated[i, j].item()
        return normalized(out)

    torch.testing.assert_close(layer(x), by_image(literal, x))


@pytest.mark.parametrize("method", ["tensor_sketch", "random_maclaurin"])
def test_without_strength_it_is_compact_bilinear(method):
    x = features(2, 6, 4, 4)
    plain = CompactBilinear(6, method=method, n_features=21)
    torch.testing.assert_close(RUN(6, strength=0.0, method=method, n_features=21)(x), plain(x))
    assert not torch.allclose(RUN(6, method=method, n_features=21)(x), plain(x), atol=1e-3)


def test_the_first_vector_is_saved_with_the_model():
    first, other = RUN(6, n_features=21), RUN(6, n_features=21, seed=5)
    assert {name for name, _ in first.named_buffers()} == {"index", "sign", "start"}
    other.load_state_dict(first.state_dict())
    x = torch.rand(2, 6, 3, 3)
    assert torch.equal(first(x), other(x))


def test_never_forms_the_bilinear_matrix():
    shapes = []
    layer, x = RUN(12, n_features=31), torch.rand(1, 12, 5, 5, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: shapes.append(tuple(t.shape)) or t, lambda t: t):
        layer(x)
    assert shapes
    assert not [shape for shape in shapes if shape[-2:] == (12, 12)]
