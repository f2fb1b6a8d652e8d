"""Writes docs/methods.md, the list of all pooling heads, from the registry.

Usage: python docs/generate_methods.py
"""

import inspect
import pydoc
import re
from pathlib import Path
from typing import Any

from isice.pooling import Pooling, create_pooling, list_poolings, pooling_class

PAGE = Path(__file__).resolve().parent / "methods.md"
CHANNELS, CLASSES = 256, 1000

HEADER = f"""# Pooling heads

Generated from the registry by `python docs/generate_methods.py`; do not edit.

Every head maps features (B, C, H, W) to (B, out_features) and is made by
`create_pooling("name(option=value)", in_channels=C)`. Sizes below are for C = {CHANNELS} and the default options;
a head that is itself the classifier returns one logit per class ({CLASSES} here).

*Verified*: the definition was checked against the authors' or another public implementation. *Reconstructed*: a part of
it could not be read anywhere, or differs on purpose; what was assumed is said. Neither is a claim that published
accuracies were reproduced.
"""


def describe(name: str) -> str:
    """The section of one head: what it computes, source, size, options."""
    cls = pooling_class(name)
    summary, _ = sections(cls)
    lines = [f"## {name}", "", f"`isice.pooling.{name}.{cls.__name__}`", "", summary.strip(), ""]
    lines += [f"- Source: {cls.reference}"]
    lines += [f"- Fidelity: {cls.fidelity}" + (f"; assumed: {cls.assumed}" if cls.assumed else "")]
    lines += [f"- Output: {size(name)}"]
    defaults = cls.option_defaults()
    if defaults:
        lines += [f"- Default: `{_layer(name).spec}`", "", *options(cls)]
    return markdown("\n".join(lines)).strip() + "\n"


def markdown(text: str) -> str:
    """Docstring markup as Markdown: ``code`` and :role:`name` become `code` and `name`."""
    return re.sub(r":\w+:`[~.]?([^`]+)`", r"`\1`", text.replace("``", "`"))


def sections(documented: Any) -> tuple[str, str]:
    """The text of a Google docstring up to ``Args:``, and the arguments up to the next section."""
    text = inspect.cleandoc(documented.__doc__ or "")
    summary, _, arguments = re.split(r"\n(?:Returns|Raises|Example|Attributes):", text)[0].partition("Args:")
    return summary, inspect.cleandoc("\n" + arguments)


def options(cls: type[Pooling]) -> list[str]:
    """The options of a head as list items, described by it, by its parents or by the function it names."""
    items: dict[str, str] = {}
    for owner in cls.__mro__:
        described = [owner]
        described += [pydoc.locate(path) for path in re.findall(r"Options as in :func:`([\w.]+)`", owner.__doc__ or "")]
        for documented in described:
            items = {**arguments(sections(documented)[1]), **items}
    return [f"- `{name}`: {items[name]}" if name in items else f"- `{name}`" for name in cls.option_names()]


def arguments(text: str) -> dict[str, str]:
    """The names and descriptions in an ``Args:`` block; a description may run over several lines."""
    items = re.findall(r"^(\**\w+): (.*(?:\n +.*)*)", text, flags=re.MULTILINE)
    return {name: " ".join(description.split()) for name, description in items}


def size(name: str) -> str:
    """The output size in words."""
    layer = _layer(name)
    return f"logits of {CLASSES} classes" if layer.needs_num_classes else f"{layer.out_features:,} features"


def _layer(name: str) -> Pooling:
    return create_pooling(name, CHANNELS, num_classes=CLASSES)


def render() -> str:
    """The whole page."""
    table = ["| head | output | fidelity | source |", "|---|---|---|---|"]
    for name in list_poolings():
        cls = pooling_class(name)
        table.append(f"| [{name}](#{name}) | {size(name)} | {cls.fidelity} | {cls.reference} |")
    return "\n".join([HEADER, *table, "", *(describe(name) for name in list_poolings())])


def main() -> None:
    PAGE.write_text(render(), encoding="utf-8")
    print(f"wrote docs/{PAGE.name}")


if __name__ == "__main__":
    main()
