"""Text wrapping by rendered width, for labels below figures."""

import re
from bisect import bisect_right
from functools import lru_cache

import matplotlib as mpl
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath


def wrap_text(text: str, width: float, *, size: float, weight: str = "normal", lines: int = 2) -> list[str]:
    """Wrap a text to at most ``lines`` lines of ``width``; "…" ends one that does not fit.

    Lines break after a space, an underscore, a hyphen or a comma if possible, else anywhere.
    ``width`` and the font ``size`` are in points.

    Example:
        >>> wrap_text("200.Common_Yellowthroat", 80, size=8.5)
        ['200.Common_', 'Yellowthroat']
    """
    font = FontProperties(size=size, weight=weight)
    with mpl.rc_context({"text.parse_math": False}):
        return _wrap(" ".join(text.split()), width, font, lines)


def _wrap(rest: str, width: float, font: FontProperties, lines: int) -> list[str]:
    found: list[str] = []
    while rest and len(found) < lines - 1:
        line = rest[: _line_end(rest, _fitting_characters(rest, width, font))]
        found.append(line.strip())
        rest = rest[len(line) :].strip()
    if rest:
        count = _fitting_characters(rest, width, font)
        found.append(rest if count == len(rest) else rest[: _fitting_characters(rest, width, font, "…")] + "…")
    return found


def _fitting_characters(text: str, width: float, font: FontProperties, end: str = "") -> int:
    """Count the leading characters that fit with ``end`` after them, at least one."""
    if _rendered_width(text + end, font) <= width:
        return len(text)
    return 1 + bisect_right(range(2, len(text)), width, key=lambda count: _rendered_width(text[:count] + end, font))


@lru_cache(maxsize=4096)
def _rendered_width(text: str, font: FontProperties) -> float:
    """Return the width in points; figures are drawn once per theme, with the same texts."""
    return float(TextPath((0, 0), text, prop=font).get_extents().width)


def _line_end(text: str, count: int) -> int:
    """Return where to break a line that has room for ``count`` characters."""
    if count == len(text):
        return count
    ends = [match.end() for match in re.finditer(r"[\s_\-,]", text[: count + 1])]
    return max((end for end in ends if end <= count), default=count)
