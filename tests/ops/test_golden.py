"""Values and gradients against golden arrays: the algorithms at 1e-10, published code at 1e-6."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

import isice.functional as F

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = ["b2_d8_3x3", "b2_d16_4x4", "b1_d64_7x7"]
ISICE_KEY = re.compile(r"(?:ISICE_(?P<first>\w+?)|SICE)_N(?P<n>\d+)_lam(?P<lam>[\d.]+)_(?:eta|lr)(?P<eta>[\d.]+)_full")


def relative_error(value, expected):
    return float((value - expected).norm() / expected.norm())


def check(arrays, key, transform, tolerance, gradient_tolerance):
    x = torch.from_numpy(arrays["x"]).requires_grad_()
    matrix = transform(F.covariance(x))
    (F.vectorize(matrix) * torch.from_numpy(arrays["W_vec"])).sum().backward()
    assert relative_error(matrix.detach(), torch.from_numpy(arrays[f"{key}_full"])) <= tolerance
    assert relative_error(x.grad, torch.from_numpy(arrays[f"{key}_grad"])) <= gradient_tolerance


def isice_keys(arrays):
    found = [(key.removesuffix("_full"), match) for key in arrays.files if (match := ISICE_KEY.fullmatch(key))]
    return [(key, match) for key, match in found if match["first"] != "sigma"]


@pytest.mark.parametrize("case", CASES)
def test_paper(case):
    arrays = np.load(GOLDEN / f"paper_{case}.npz")
    check(arrays, "PRECISION_Ns7", F.newton_schulz_inverse, 1e-10, 1e-10)
    check(arrays, "ISQRT_Ns5_times_sqrt_trace", F.newton_schulz_sqrt, 1e-10, 1e-10)
    keys = isice_keys(arrays)
    assert len(keys) >= 7
    for key, match in keys:
        options = {"sparsity": float(match["lam"]), "step_size": float(match["eta"]), "n_iter": int(match["n"])}
        options["first_gradient"] = {"inv": "inverse", "printed": "printed"}[match["first"]]
        check(arrays, key, lambda cov, o=options: F.isice(cov, normalize="trace", **o), 1e-10, 1e-10)


@pytest.mark.parametrize("case", CASES)
def test_published_code(case):
    arrays = np.load(GOLDEN / f"official_{case}.npz")
    check(arrays, "COV", F.newton_schulz_sqrt, 1e-6, 1e-6)
    check(arrays, "INVCOV", F.newton_schulz_inverse, 1e-6, 1e-6)
    keys = isice_keys(arrays)
    assert len(keys) >= 4
    for key, match in keys:
        options = {"sparsity": float(match["lam"]), "step_size": float(match["eta"]), "n_iter": int(match["n"])}
        check(arrays, key, lambda cov, o=options: F.isice(cov, preset="official", **o), 1e-6, 1e-6)


def test_vectorized_order_is_that_of_the_published_code():
    arrays = np.load(GOLDEN / "official_b2_d8_3x3.npz")
    np.testing.assert_array_equal(F.vectorize(torch.from_numpy(arrays["COV_full"])).numpy(), arrays["COV_vec"])
