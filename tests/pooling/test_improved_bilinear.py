import torch

from isice.pooling import create_pooling


def features(positions: int) -> torch.Tensor:
    return torch.randn(2, 4, positions, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def signed_sqrt_l2(matrix: torch.Tensor) -> torch.Tensor:
    z = matrix.flatten(1)
    z = (z.relu() + 1e-5).sqrt() - ((-z).relu() + 1e-5).sqrt()
    return z / z.norm(dim=1, keepdim=True)


def test_equals_the_literal_formula() -> None:
    x = features(3)
    roots = []
    for image in x.flatten(2):
        moment = image @ image.T / image.shape[1]
        norm = (moment**2).sum().sqrt()
        y, z, eye = moment / norm, torch.eye(4, dtype=torch.float64), torch.eye(4, dtype=torch.float64)
        for _ in range(5):
            p = (3 * eye - z @ y) / 2
            y, z = y @ p, p @ z
        roots.append(norm.sqrt() * y)
    layer = create_pooling("improved_bilinear", 4)
    torch.testing.assert_close(layer.matrix(x), torch.stack(roots))
    torch.testing.assert_close(layer(x), signed_sqrt_l2(torch.stack(roots)), rtol=1e-8, atol=1e-10)


def test_converges_to_the_square_root_of_the_second_moment() -> None:
    x = features(40)
    root = create_pooling("improved_bilinear(n_iter=20)", 4).matrix(x)
    flat = x.flatten(2)
    torch.testing.assert_close(root @ root, flat @ flat.mT / flat.shape[-1])
