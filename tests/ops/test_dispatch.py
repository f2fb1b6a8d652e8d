from unittest import mock

import pytest
import torch

import isice.functional as F
from isice.ops import _dispatch
from isice.ops._dispatch import use_kernels

FUNCTIONS = [F.isice, F.newton_schulz_inverse, F.newton_schulz_sqrt, F.newton_schulz_inverse_sqrt]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_backend_asked_for_by_name_is_used_or_is_an_error(function):
    cov = torch.eye(16)
    torch.testing.assert_close(function(cov, backend="torch"), function(cov), rtol=0, atol=0)
    name = function.__name__
    with pytest.raises(RuntimeError, match=f"{name}: expected to run on Triton kernels, but the tensor is on cpu"):
        function(cov, backend="triton")
    with pytest.raises(
        ValueError, match=rf"{name}: expected backend to be one of .*, got 'tritn'\. Did you mean 'triton'"
    ):
        function(cov, backend="tritn")


def test_auto_on_a_cpu_is_torch():
    assert use_kernels("test", None, torch.eye(16), 5) is False
    assert use_kernels("test", "auto", torch.eye(16), 5) is False


def test_kernels_apply_within_their_limits(monkeypatch):
    monkeypatch.setattr(_dispatch, "kernels_missing", lambda: "")
    on_gpu = lambda size, dtype=torch.float32: mock.Mock(  # noqa: E731
        device=torch.device("cuda"), dtype=dtype, shape=(2, size, size)
    )
    assert use_kernels("test", None, on_gpu(8), 12)
    assert use_kernels("test", "triton", on_gpu(1024), 1)
    for matrix, n_steps, reason in (
        (on_gpu(7), 5, "D = 7, kernels take 8 to 1024"),
        (on_gpu(16, torch.float64), 5, "the dtype is torch.float64"),
        (on_gpu(16), 13, "13 Newton-Schulz steps are asked for, kernels take at most 12"),
    ):
        assert not use_kernels("test", "auto", matrix, n_steps)
        with pytest.raises(RuntimeError, match=f"expected to run on Triton kernels, but {reason}"):
            use_kernels("test", "triton", matrix, n_steps)


def test_kernels_do_not_apply_under_torch_func():
    found = []
    torch.func.vmap(lambda x: found.append(use_kernels_here()) or x)(torch.rand(2))
    assert found == [False]
    assert use_kernels_here()


def test_operations_do_not_need_the_private_query_of_torch_func(monkeypatch):
    matrices = torch.eye(3).expand(2, 3, 3) + 0.1
    expected = torch.stack([F.isice(matrix) for matrix in matrices])
    monkeypatch.delattr(torch._C._functorch, "maybe_current_level")
    assert torch.allclose(torch.func.vmap(F.isice)(matrices), expected)


def use_kernels_here():
    return _dispatch.choose_kernels("test", None, "")


def test_the_printed_first_gradient_is_computed_by_pytorch(monkeypatch):
    monkeypatch.setattr(_dispatch, "kernels_missing", lambda: "")
    with pytest.raises(RuntimeError, match="but first_gradient='printed' is computed by PyTorch"):
        F.isice(torch.eye(16), first_gradient="printed", backend="triton")
