import torch

from isice.pooling import create_pooling


def features(seed: int = 0) -> torch.Tensor:
    return torch.randn(2, 4, 3, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def literal(x: torch.Tensor, eps: float) -> torch.Tensor:
    """The published formula, entry by entry: √(relu z + ε) − √(relu −z + ε), then ℓ2."""
    vectors = []
    for image in x.flatten(2):
        entries = []
        for i in range(len(image)):
            for j in range(len(image)):
                z = sum(float(image[i, t] * image[j, t]) for t in range(image.shape[1])) / image.shape[1]
                entries.append((max(z, 0) + eps) ** 0.5 - (max(-z, 0) + eps) ** 0.5)
        length = sum(entry**2 for entry in entries) ** 0.5
        vectors.append([entry / length for entry in entries])
    return torch.tensor(vectors, dtype=torch.float64)


def test_equals_the_literal_formula() -> None:
    x = features()
    torch.testing.assert_close(create_pooling("bilinear", 4)(x), literal(x, 1e-5), rtol=1e-9, atol=1e-11)


def test_is_not_centred() -> None:
    x = features()
    layer = create_pooling("bilinear", 4)
    assert (layer(x) - layer(x + 1)).abs().max() > 0.01


def test_upper_triangle_is_the_same_matrix_each_entry_once() -> None:
    x = features()
    full = create_pooling("bilinear", 4)(x).unflatten(1, (4, 4))
    rows, columns = torch.triu_indices(4, 4)
    half = full[:, rows, columns]
    triangle = create_pooling("bilinear(upper_triangle=True)", 4)(x)
    torch.testing.assert_close(triangle, half / half.norm(dim=1, keepdim=True))
