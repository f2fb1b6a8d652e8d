"""Every public function of the facade refuses what it cannot take: who, what was expected, what was got.

A function made of another may let that one speak: ``tensor_sketch`` fails as ``tensor_sketches``.
"""

import inspect

import pytest
import torch

import isice.functional as F

# Functions that accept any float tensor, or none, as their first argument.
ANY_SHAPE = {"l2_normalize", "modulation", "modulation_penalty", "signed_sqrt", "unvectorize"}
FIRST_IS_MATRIX = ("cov", "matrix", "precision")


def call(name, first):
    """Calls a function with ``first`` and plausible further arguments."""
    others = {"modulate": lambda nabla: (nabla.new_ones(1), nabla.new_ones(1)), "p": 0.5, "n_out": 4, "blocks": 1}
    arguments = [first]
    for parameter in list(inspect.signature(getattr(F, name)).parameters.values())[1:]:
        if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            numbers = {"sparsity": 0.1, "similarity": 0.1, "trace_penalty": 0.1, "sparsities": [0.1, 0.2], "theta": 1.0}
            numbers |= {"ridge": 1.0, "rule": "oas"}
            arguments.append(others.get(parameter.name, numbers.get(parameter.name, torch.ones(3, 3))))
    return getattr(F, name)(*arguments)


@pytest.mark.parametrize("name", sorted(set(F.__all__) - {"modulation", "modulation_penalty"}))
@pytest.mark.parametrize("wrong", ["a string", [[1.0]], None])
def test_not_a_tensor(name, wrong):
    with pytest.raises(TypeError, match=rf"^\w+: expected a torch\.Tensor, got {type(wrong).__name__}"):
        call(name, wrong)


@pytest.mark.parametrize("name", sorted(set(F.__all__) - {"modulation", "modulation_penalty"}))
def test_not_floating_point(name):
    with pytest.raises(TypeError, match=r"^\w+: expected a floating-point tensor, got torch\.int64"):
        call(name, torch.ones(2, 3, 3, dtype=torch.int64))


@pytest.mark.parametrize("name", sorted(set(F.__all__) - ANY_SHAPE))
def test_wrong_shape(name):
    first = next(iter(inspect.signature(getattr(F, name)).parameters))
    wrong = torch.ones(2, 3, 4) if first in FIRST_IS_MATRIX else torch.ones(())
    with pytest.raises(ValueError, match=rf"^\w+: expected .*, got \({'2, 3, 4' if wrong.ndim else ''}\)"):
        call(name, wrong)
