import math

import pytest
import torch

from isice.ops.codebook import assignment_sharpness, diagonal_mixture, fisher_vector, kmeans, soft_assignment, vlad

B, C, N, K = 2, 5, 7, 3


@pytest.fixture
def words() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return {"x": draw(B, C, N), "weight": draw(K, C), "bias": draw(K), "means": draw(K, C), "log_scales": draw(K, C)}


def literal_shares(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> list[float]:
    exponentials = [math.exp(float(weight[k] @ x + bias[k])) for k in range(K)]
    return [value / sum(exponentials) for value in exponentials]


def test_soft_assignment_is_a_softmax_over_words(words: dict[str, torch.Tensor]) -> None:
    x, weight, bias = words["x"], words["weight"], words["bias"]
    shares = soft_assignment(x, weight, bias)
    for b in range(B):
        for t in range(N):
            assert shares[b, :, t].tolist() == pytest.approx(literal_shares(x[b, :, t], weight, bias))


def test_vlad_sums_residuals(words: dict[str, torch.Tensor]) -> None:
    x, weight, bias, centres = words["x"], words["weight"], words["bias"], words["means"]
    expected = torch.zeros(B, K, C, dtype=torch.float64)
    for b in range(B):
        for t in range(N):
            for k, share in enumerate(literal_shares(x[b, :, t], weight, bias)):
                expected[b, k] += share * (x[b, :, t] - centres[k])
    torch.testing.assert_close(vlad(x, centres, weight, bias), expected)


def test_fisher_vector_is_the_moments_of_standardized_residuals(words: dict[str, torch.Tensor]) -> None:
    x, weight, bias = words["x"], words["weight"], words["bias"]
    expected = torch.zeros(B, 2, K, C, dtype=torch.float64)
    for b in range(B):
        for t in range(N):
            for k, share in enumerate(literal_shares(x[b, :, t], weight, bias)):
                u = (x[b, :, t] - words["means"][k]) / words["log_scales"][k].exp()
                expected[b, 0, k] += share * u / N
                expected[b, 1, k] += share * (u**2 - 1) / math.sqrt(2) / N
    torch.testing.assert_close(fisher_vector(x, words["means"], words["log_scales"], weight, bias), expected)


def test_fisher_vector_keeps_its_digits_under_a_common_offset(words: dict[str, torch.Tensor]) -> None:
    x, means, log_scales, weight = (words[key].float() for key in ("x", "means", "log_scales", "weight"))
    near = fisher_vector(x, means, log_scales, 0 * weight)
    far = fisher_vector(x + 100, means + 100, log_scales, 0 * weight)
    torch.testing.assert_close(far, near, rtol=1e-3, atol=1e-3)


def test_gradients(words: dict[str, torch.Tensor]) -> None:
    inputs = [words[key].requires_grad_() for key in ("x", "means", "log_scales", "weight", "bias")]
    assert torch.autograd.gradcheck(fisher_vector, inputs)
    assert torch.autograd.gradcheck(vlad, [inputs[0], inputs[1], inputs[3], inputs[4]])


def test_kmeans_finds_separated_clusters() -> None:
    generator = torch.Generator().manual_seed(0)
    truth = torch.tensor([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    points = (truth[:, None] + 0.1 * torch.randn(3, 50, 2, generator=generator)).reshape(-1, 2)
    centres, nearest = kmeans(points, 3, seed=1)
    assert torch.cdist(truth, centres).amin(dim=1).max() < 0.1
    assert nearest.bincount().tolist() == [50, 50, 50]
    with pytest.raises(ValueError, match="at least 200 points"):
        kmeans(points, 200)


def test_kmeans_keeps_the_centre_of_an_empty_cluster() -> None:
    centres, _ = kmeans(torch.zeros(4, 2), 2)
    assert torch.equal(centres, torch.zeros(2, 2))


def test_assignment_sharpness_makes_the_best_word_outweigh_the_second_by_100() -> None:
    directions = torch.eye(3)
    x = torch.tensor([[0.8, 0.6, 0.0]])
    shares = soft_assignment(x.mT, assignment_sharpness(x, directions) * directions).flatten()
    assert (shares[0] / shares[1]).item() == pytest.approx(100, rel=1e-4)


def test_diagonal_mixture_of_one_cluster_is_the_standard_deviation() -> None:
    points = torch.randn(10_000, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 2.0, 3.0])
    centre, nearest = kmeans(points, 1)
    scales, variance = diagonal_mixture(points, centre, nearest)
    torch.testing.assert_close(scales[0], points.std(dim=0), rtol=1e-3, atol=1e-3)
    assert variance.item() == pytest.approx(points.var(dim=0).mean().item(), rel=1e-3)


def test_wrong_shapes_are_named() -> None:
    with pytest.raises(ValueError, match=r"vlad: expected descriptors \(B, C, N\) and words \(K, C\)"):
        vlad(torch.rand(2, 8, 49), torch.rand(4, 7), torch.rand(4, 8))
    with pytest.raises(ValueError, match=r"soft_assignment: expected one bias per word \(4,\), got \(5,\)"):
        soft_assignment(torch.rand(2, 8, 49), torch.rand(4, 8), torch.rand(5))
