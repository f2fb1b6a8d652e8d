"""Griffe extension: read the docstrings of this package as Markdown with Google sections."""

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^Example:$", re.MULTILINE)
_ROLE = re.compile(r":\w+:`~?([^`]+)`")


class Docstrings(griffe.Extension):
    """Make ``Example:`` a section of examples, and roles (``:func:`name```) plain code."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        """Rewrite one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = _ROLE.sub(r"`\1`", _EXAMPLE.sub("Examples:", obj.docstring.value))
