import pytest
import torch

import isice.functional as F
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
    assert use_kernels("test", None, torch.eye(16)) is False
    assert use_kernels("test", "auto", torch.eye(16)) is False
