"""Spec strings such as ``"isice(n_iter=5)"``, and sums of them: ``"isqrt_cov + 2 * gap"``."""

import ast
from collections.abc import Mapping
from typing import Any


def parse_spec(spec: str) -> tuple[str, dict[str, Any]]:
    """Split a spec string into a name and keyword arguments.

    Only literals are accepted as values, so a spec cannot execute code.

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
        reason = error.msg if isinstance(error, SyntaxError) else error
        raise ValueError(f"{problem}; it cannot be parsed: {reason}.") from None
    if isinstance(node, ast.Name):
        return node.id, {}
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise ValueError(f"{problem}; the name must be an identifier.")
    if node.args:
        raise ValueError(f"{problem}; options are keyword-only, write name=value.")
    options: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise ValueError(f"{problem}; '**' is not supported.")
        try:
            options[keyword.arg] = ast.literal_eval(keyword.value)
        except ValueError:
            raise ValueError(
                f"{problem}; the value of {keyword.arg!r} is not a literal (put strings in quotes)."
            ) from None
    return node.func.id, options


def split_sum(spec: str) -> list[tuple[float, str]]:
    """Split a sum of specs into factors and specs; a single spec is a sum of one.

    Example:
        >>> split_sum("isqrt_cov + 2 * gap")
        [(1.0, 'isqrt_cov'), (2.0, 'gap')]
    """
    try:
        node = ast.parse(spec.strip(), mode="eval").body
    except (SyntaxError, ValueError, AttributeError):
        return [(1.0, spec)]  # parse_spec raises the error
    terms = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        terms.append(node.right)
        node = node.left
    return [_factor_and_spec(term, spec) for term in [node, *reversed(terms)]]


def _factor_and_spec(node: ast.expr, spec: str) -> tuple[float, str]:
    if not isinstance(node, ast.BinOp):
        return 1.0, ast.unparse(node)
    number = node.left.value if isinstance(node.left, ast.Constant) else None
    if not isinstance(node.op, ast.Mult) or isinstance(number, bool) or not isinstance(number, int | float):
        raise ValueError(f"spec: expected a sum such as 'isqrt_cov + 2 * gap', got {spec!r}; write 'number * name'.")
    return float(number), ast.unparse(node.right)


def spec_name(spec: str) -> str:
    """Return the name of a spec without its options; of a sum, the names joined by ``+``.

    Example:
        >>> spec_name("isqrt_cov(n_iter=3) + 2 * gap")
        'isqrt_cov+gap'
    """
    return "+".join(parse_spec(part)[0] for _, part in split_sum(spec))


def format_spec(name: str, options: Mapping[str, Any]) -> str:
    """Format a spec string, the inverse of :func:`parse_spec`.

    Example:
        >>> format_spec("isice", {"n_iter": 5})
        'isice(n_iter=5)'
    """
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in options.items())})" if options else name
