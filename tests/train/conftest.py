"""Fewer images for the tests that train."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def _half_of_the_digits(request):
    """Train on half of the digits, except in modules with ``WHOLE_DIGITS``."""
    if not getattr(request.module, "WHOLE_DIGITS", False):
        request.getfixturevalue("half_digits")
