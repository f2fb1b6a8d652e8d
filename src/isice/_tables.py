"""Nested tables and their dotted keys."""

from collections.abc import Mapping
from typing import Any


def flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Convert nested tables to dotted keys.

    Example:
        >>> flatten({"optim": {"lr": 0.1}, "seed": 0})
        {'optim.lr': 0.1, 'seed': 0}
    """
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def nest(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Convert dotted keys to nested tables, the inverse of :func:`flatten`."""
    nested: dict[str, Any] = {}
    for key, value in settings.items():
        *tables, last = key.split(".")
        at = nested
        for table in tables:
            at = at.setdefault(table, {})
        at[last] = value
    return nested
