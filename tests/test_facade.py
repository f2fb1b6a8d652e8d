"""The facade has every public operation; each rejects bad input: who, expected, got.

An operation that calls another may leave the check to it: ``tensor_sketch``
fails as ``tensor_sketches``.
"""

import importlib
import inspect
import pkgutil

import pytest
import torch

import isice.functional as F
import isice.ops

# Functions of public modules that only other modules of isice use.
INTERNAL = {
    "checked_scale",
    "decay",
    "differentiable_vjp",
    "factor_product",
    "factor_product_derivative",
    "flat_features",
    "isice_options",
    "eigh_in_threads",
    "newton_inverse",
    "newton_schulz_value",
    "newton_schulz_vjp",
    "newton_steps",
    "preset_options",
    "solve_path",
    "update",
}
# Operations that accept any float tensor, or none, as their first argument.
NO_TENSOR = {"modulation", "modulation_penalty", "random_hashes", "random_normal", "random_signs"}
ANY_SHAPE = NO_TENSOR | {"l2_normalize", "signed_sqrt", "unvectorize"}
FIRST_IS_MATRIX = ("cov", "matrix", "precision")


def public_operations():
    """Return the functions that the public modules of ``isice.ops`` define."""
    for found in pkgutil.iter_modules(isice.ops.__path__):
        if not found.name.startswith("_"):
            module = importlib.import_module(f"isice.ops.{found.name}")
            for name, function in inspect.getmembers(module, inspect.isfunction):
                if function.__module__ == module.__name__ and not name.startswith("_"):
                    yield name, function


def test_every_public_operation_is_in_the_facade():
    operations = {name: f for name, f in public_operations() if not name.endswith("_reference")}
    missing = sorted(set(operations) - INTERNAL - set(F.__all__))
    assert not missing, "add to functional.py, or give a private name"
    assert set(operations) >= INTERNAL | set(F.__all__), "remove what no longer exists"
    assert all(getattr(F, name) is operations[name] for name in F.__all__)


def test_every_public_operation_has_an_example():
    assert [name for name in F.__all__ if ">>>" not in (getattr(F, name).__doc__ or "")] == []


def call(name, first):
    """Call an operation with ``first`` and plausible further arguments."""
    others = {"modulate": lambda nabla: (nabla.new_ones(1), nabla.new_ones(1)), "p": 0.5, "n_out": 4, "blocks": 1}
    arguments = [first]
    for parameter in list(inspect.signature(getattr(F, name)).parameters.values())[1:]:
        if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            numbers = {"sparsity": 0.1, "similarity": 0.1, "trace_penalty": 0.1, "sparsities": [0.1, 0.2], "theta": 1.0}
            numbers |= {"ridge": 1.0, "rule": "oas", "n_clusters": 2}
            arguments.append(others.get(parameter.name, numbers.get(parameter.name, torch.ones(3, 3))))
    return getattr(F, name)(*arguments)


@pytest.mark.parametrize("name", sorted(set(F.__all__) - NO_TENSOR))
@pytest.mark.parametrize("wrong", ["a string", [[1.0]], None])
def test_not_a_tensor(name, wrong):
    with pytest.raises(TypeError, match=rf"^\w+: expected a torch\.Tensor, got {type(wrong).__name__}"):
        call(name, wrong)


@pytest.mark.parametrize("name", sorted(set(F.__all__) - NO_TENSOR))
def test_not_floating_point(name):
    with pytest.raises(TypeError, match=r"^\w+: expected a floating-point tensor, got torch\.int64"):
        call(name, torch.ones(2, 3, 3, dtype=torch.int64))


@pytest.mark.parametrize("name", sorted(set(F.__all__) - ANY_SHAPE))
def test_wrong_shape(name):
    first = next(iter(inspect.signature(getattr(F, name)).parameters))
    wrong = torch.ones(2, 3, 4) if first in FIRST_IS_MATRIX else torch.ones(())
    with pytest.raises(ValueError, match=rf"^\w+: expected .*, got \({'2, 3, 4' if wrong.ndim else ''}\)"):
        call(name, wrong)
