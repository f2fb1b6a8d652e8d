"""Escape names and messages, so that Markdown and terminals do not interpret them."""

import re

# Characters with a meaning inside a line of GitHub's Markdown.
_MARKDOWN = re.compile(r"([\\`*\[\]|$~]|(?<![^\W_])_|_(?![^\W_]))")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def escape_markdown(text: str) -> str:
    r"""Escape a text for use within a line or table cell of Markdown, not at the start of a line.

    Example:
        >>> escape_markdown("<b>isqrt_cov</b> | [x](y)")
        '&lt;b>isqrt_cov&lt;/b> \\| \\[x\\](y)'
    """
    line = " ".join(escape_control(text).split())
    return _MARKDOWN.sub(r"\\\1", line).replace("&", "&amp;").replace("<", "&lt;")


def code_span(text: str) -> str:
    """Return a text as inline code in Markdown, whatever backticks it contains.

    Example:
        >>> code_span("a `b`")
        '`` a `b` ``'
    """
    line = " ".join(escape_control(text).split())
    longest = max((len(run) for run in re.findall("`+", line)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {line} {fence}" if longest else f"`{line}`"


def escape_control(text: str) -> str:
    r"""Replace control characters by visible escapes, so that a terminal does not execute them.

    Example:
        >>> escape_control("a\x1b[31mb")
        'a\\x1b[31mb'
    """
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
