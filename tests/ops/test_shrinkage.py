import pytest
import torch
from sklearn.covariance import OAS, LedoitWolf

import isice.functional as F

RULES = {"ledoit_wolf": F.ledoit_wolf, "oas": F.oas, "schaefer_strimmer": F.schaefer_strimmer}


def features(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(shape[-2], shape[-2], generator=generator, dtype=torch.float64)
    return mix @ torch.randn(shape, generator=generator, dtype=torch.float64).relu() + 0.3


def schaefer_strimmer_loop(x):
    """Σ Var(r_ij)/Σ r_ij² of one feature set (D, N), pair by pair, as printed in the article."""
    D, n = x.shape
    z = (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)
    variances, squares = 0.0, 0.0
    for i in range(D):
        for j in range(D):
            if i != j:
                w = z[i] * z[j]
                variances += n / (n - 1) ** 3 * (w - w.mean()).square().sum()
                squares += (n / (n - 1) * w.mean()) ** 2
    return min(variances / squares, 1.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("rule", "oracle"), [(F.ledoit_wolf, LedoitWolf), (F.oas, OAS)])
def test_a_single_channel_is_not_shrunk(rule, oracle, dtype):
    """A scalar is its own target: the formula would divide one rounding error by another."""
    x = features(20, 1, 5).to(dtype).requires_grad_()
    assert [oracle().fit(image.detach().T.numpy()).shrinkage_ for image in x] == [0.0] * 20
    assert torch.equal(rule(x), torch.zeros(20, dtype=dtype))
    rule(x).sum().backward()
    assert torch.equal(x.grad, torch.zeros_like(x))


@pytest.mark.parametrize(("channels", "positions"), [(5, 40), (12, 6), (3, 2), (8, 400)])
@pytest.mark.parametrize(("rule", "oracle"), [(F.ledoit_wolf, LedoitWolf), (F.oas, OAS)])
def test_against_scikit_learn(rule, oracle, channels, positions):
    x = features(3, channels, positions)
    expected = [oracle().fit(image.T.numpy()).shrinkage_ for image in x]
    torch.testing.assert_close(rule(x), torch.tensor(expected, dtype=torch.float64), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("channels", "positions"), [(5, 40), (6, 5), (4, 200)])
def test_schaefer_strimmer_against_the_definition(channels, positions):
    x = features(3, channels, positions)
    expected = torch.stack([torch.as_tensor(schaefer_strimmer_loop(image)) for image in x])
    torch.testing.assert_close(F.schaefer_strimmer(x), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", RULES)
def test_invariances_and_shapes(name):
    rule, x = RULES[name], features(2, 6, 12)
    expected = rule(x)
    torch.testing.assert_close(rule(x.unflatten(-1, (3, 4))), expected)
    torch.testing.assert_close(rule(x[0]), expected[0])
    torch.testing.assert_close(rule(1e3 * x + 50), expected)
    torch.testing.assert_close(rule(x.float()), expected.float(), rtol=1e-4, atol=1e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert rule(x.bfloat16()).dtype == torch.float32


@pytest.mark.parametrize("name", RULES)
def test_gradcheck(name):
    x = features(2, 4, 15).requires_grad_()
    intensity = RULES[name](x)
    assert ((intensity > 0.01) & (intensity < 0.99)).all()  # inside, where there is a gradient to check
    assert torch.autograd.gradcheck(RULES[name], x)
    assert torch.autograd.gradcheck(lambda a: F.shrinkage_ridge(a, name), x)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_finite_without_variance(name, dtype):
    dead = features(2, 6, 9)
    dead[:, ::2] = 0
    one = torch.zeros(2, 6, 9, dtype=torch.float64)
    one[:, 0] = dead[:, 1]
    maps = [torch.zeros(2, 6, 9), torch.full((2, 6, 9), 0.7), features(2, 6, 1), features(2, 6, 2), dead, one]
    for x in [*maps, 1e-8 * maps[3], 1e4 * maps[3]]:
        x = x.to(dtype).requires_grad_()
        ridge = F.shrinkage_ridge(x, name)
        ridge.sum().backward()
        assert ridge.isfinite().all()
        assert (ridge > 0).all()
        assert x.grad.isfinite().all()


def test_ridge_of_an_intensity():
    x = features(2, 5, 30)
    intensity = F.oas(x)
    torch.testing.assert_close(F.shrinkage_ridge(x, "oas"), intensity / (1 - intensity))
    with pytest.raises(ValueError, match=r"expected rule to be one of 'ledoit_wolf', .*Did you mean 'oas'"):
        F.shrinkage_ridge(x, "oass")
