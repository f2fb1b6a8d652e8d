"""Names cut into lines that fit below a picture, measured as they are drawn."""

import re

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath


def fitted(text: str, width: float, *, size: float, weight: str = "normal", lines: int = 2) -> list[str]:
    """Cuts a text into at most ``lines`` lines no wider than ``width``; "…" ends what has no room.

    Lines end after a space, an underscore, a hyphen or a comma where there is one, else anywhere.

    Args:
        text: A name, such as that of a class.
        width: Points.
        size: Font size in points.
        weight: Font weight.
        lines: The most lines.

    Example:
        >>> fitted("200.Common_Yellowthroat", 80, size=8.5)
        ['200.Common_', 'Yellowthroat']
    """
    font = FontProperties(size=size, weight=weight)
    found: list[str] = []
    rest = text.strip()
    while rest and len(found) < lines - 1:
        line = rest[: _break(rest, _room(rest, width, font))]
        found.append(line.strip())
        rest = rest[len(line) :].strip()
    if rest:
        room = _room(rest, width, font)
        found.append(rest if room == len(rest) else rest[: _room(rest, width, font, "…")] + "…")
    return found


def _room(text: str, width: float, font: FontProperties, end: str = "") -> int:
    """How many of the first characters fit, with ``end`` after them; at least one, so that cutting goes on."""
    count = len(text)
    while count > 1 and TextPath((0, 0), text[:count] + end, prop=font).get_extents().width > width:
        count -= 1
    return count


def _break(text: str, room: int) -> int:
    """Where to end a line that has room for so many characters."""
    if room == len(text):
        return room
    ends = [match.end() for match in re.finditer(r"[\s_\-,]", text[: room + 1])]
    return max((end for end in ends if end <= room), default=room)
