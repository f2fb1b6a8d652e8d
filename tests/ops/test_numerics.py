"""The precision in which operations compute."""

import pytest
import torch

from isice.ops import _numerics


@pytest.mark.parametrize("mode", ["highest", "high"])
def test_an_exact_product_leaves_the_mode_as_it_was(mode):
    a, b = torch.randn(2, 3, 4), torch.randn(2, 4, 5)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(mode)
    try:
        found = _numerics._exact_product(a, b)
        assert torch.get_float32_matmul_precision() == mode
    finally:
        torch.set_float32_matmul_precision(before)
    torch.testing.assert_close(found, a @ b)


def test_the_mode_during_an_exact_product(monkeypatch):
    chosen = []
    monkeypatch.setattr(torch, "set_float32_matmul_precision", chosen.append)
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    _numerics._exact_product(torch.ones(1, 2, 2), torch.ones(1, 2, 2))
    assert chosen == ["highest", "high"]


def test_the_fake_product_has_the_right_shape():
    with torch._subclasses.FakeTensorMode():
        assert _numerics._exact_product(torch.empty(2, 3, 4), torch.empty(2, 4, 5)).shape == (2, 3, 5)
