"""Spec strings: ``"isice(n_iter=5)"`` ⇄ ``("isice", {"n_iter": 5})``."""

import ast
from collections.abc import Mapping
from typing import Any


def parse_spec(spec: str) -> tuple[str, dict[str, Any]]:
    """Splits a spec string into a name and its keyword arguments.

    Only literals are accepted as values, so a spec from a file or the command line cannot execute anything.

    Example:
        >>> parse_spec("isice(n_iter=5, sparsity=0.01)")
        ('isice', {'n_iter': 5, 'sparsity': 0.01})
    """
    problem = f"spec: expected 'name' or 'name(option=literal, …)', got {spec!r}"
    if not isinstance(spec, str):
        raise TypeError(f"{problem}; pass a string.")
    try:
        node = ast.parse(spec.strip(), mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"{problem}; it cannot be read: {error}.") from None
    if isinstance(node, ast.Name):
        return node.id, {}
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise ValueError(f"{problem}; the name must be a plain word.")
    if node.args:
        raise ValueError(f"{problem}; options are keyword-only, write name=value.")
    options: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise ValueError(f"{problem}; '**' has no meaning here.")
        try:
            options[keyword.arg] = ast.literal_eval(keyword.value)
        except ValueError:
            raise ValueError(
                f"{problem}; the value of {keyword.arg!r} is not a literal (put strings in quotes)."
            ) from None
    return node.func.id, options


def format_spec(name: str, options: Mapping[str, Any]) -> str:
    """Writes a spec string that :func:`parse_spec` reads back.

    Example:
        >>> format_spec("isice", {"n_iter": 5})
        'isice(n_iter=5)'
    """
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in options.items())})" if options else name
