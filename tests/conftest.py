"""Runs before any test module is imported."""

import os

import pytest
import torch

# Without a GPU the kernels are tested by Triton's interpreter, which must be chosen
# before triton is imported.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the files that train first, so that parallel processes end together."""
    items.sort(key=lambda item: "/train/" not in item.path.as_posix() and "/kernels/" not in item.path.as_posix())


@pytest.fixture(scope="module")
def half_digits():
    """Train on every second image of the dataset digits, in this process."""
    from isice.data import DATASETS

    from ._half_digits import halve_digits

    whole = DATASETS["digits"]
    halve_digits()
    yield
    DATASETS["digits"] = whole
