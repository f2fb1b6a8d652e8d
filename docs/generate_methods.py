"""docs/methods.md: every pooling of the registry, with its source, output size and options."""

import inspect
import pydoc
import re
import textwrap
from pathlib import Path
from typing import Any

from isice.pooling import Pooling, create_pooling, list_poolings, pooling_class

PAGE = Path(__file__).resolve().parent / "methods.md"
CHANNELS, CLASSES = 256, 1000

HEADER = f"""# Methods

<!-- Generated from the registry by `python docs/build.py methods`; do not edit. -->

All poolings and their options; [choosing.md](choosing.md) helps to choose one,
[benchmarks.md](benchmarks.md) says what it costs. A pooling maps a feature map (B, C, H, W) to
vectors (B, out_features):

```text
# the layer alone, in a timm model, and on the command line
isice.create_pooling("isqrt_cov(n_iter=5)", in_channels=256)
isice.attach(timm_model, pooling="partial_correlation", reduce=256)
isice train --pooling "isice(sparsity=0.001)" …
```

The numbers of features are for C = {CHANNELS} and default options; the
[glossary](glossary.md#symbols) has the symbols. Three words tell how well a definition is known:

- **verified**: read in the authors' or another public implementation, which is named; only guards
  against rounding may differ, such as an ε or a floor for eigenvalues;
- **reconstructed**: part of the definition is not public, or differs on purpose; the assumptions
  are listed;
- **original**: the layer is defined by this package.

None says that published accuracies were reproduced.
"""


def describe(name: str) -> str:
    """Return the section of one pooling: what it computes, source, options."""
    cls = pooling_class(name)
    summary, _ = sections(cls)
    lines = [f"## {name}", "", f"`isice.pooling.{name}.{cls.__name__}`", "", summary.strip(), ""]
    lines += [f"- Source: {cls.reference}"]
    lines += [f"- Definition: {cls.fidelity}" + (f"; assumed: {cls.assumed}" if cls.assumed else "")]
    lines += [f"- Evidence: {cls.evidence}"]
    defaults = cls.option_defaults()
    if defaults:
        lines += [f"- Default: `{_layer(name).spec}`", "", *options(cls)]
    return "\n".join(_wrapped(line) for line in markdown("\n".join(lines)).strip().splitlines()) + "\n"


def _wrapped(line: str) -> str:
    """Wrap a list item at 100 characters, but not inside words."""
    if not line.startswith("- "):
        return line
    return textwrap.fill(line, 100, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def markdown(text: str) -> str:
    """Convert docstring markup to Markdown: ``code`` and :role:`name` become `code` and `name`."""
    return re.sub(r":\w+:`[~.]?([^`]+)`", r"`\1`", text.replace("``", "`"))


def sections(documented: Any) -> tuple[str, str]:
    """Split a Google docstring into the text before ``Args:`` and the arguments."""
    text = inspect.cleandoc(documented.__doc__ or "")
    summary, _, arguments = re.split(r"\n(?:Returns|Raises|Example|Attributes):", text)[0].partition("Args:")
    return summary, inspect.cleandoc("\n" + arguments)


def options(cls: type[Pooling]) -> list[str]:
    """Return the options as list items, as the class, its parents or its function document them.

    Those of a parent that is a pooling itself (``**options``) are described in its section.
    """
    items: dict[str, str] = {}
    for owner in cls.__mro__:
        described = [owner]
        described += [pydoc.locate(path) for path in re.findall(r"Options as in :func:`([\w.]+)`", owner.__doc__ or "")]
        for documented in described:
            items = {**arguments(sections(documented)[1]), **items}
        if "**options" in items:
            break
    return [f"- `{name}`: {items[name]}" for name in (*cls.option_defaults(), "**options") if name in items]


def arguments(text: str) -> dict[str, str]:
    """Parse an ``Args:`` block; a description may span several lines."""
    items = re.findall(r"^(\**\w+): (.*(?:\n +.*)*)", text, flags=re.MULTILINE)
    return {name: " ".join(description.split()) for name, description in items}


def size(name: str) -> str:
    """Return the number of output features, or of logits."""
    layer = _layer(name)
    return f"{CLASSES:,} logits" if layer.needs_num_classes else f"{layer.out_features:,}"


def _layer(name: str) -> Pooling:
    return create_pooling(name, CHANNELS, num_classes=CLASSES)


def pages() -> dict[Path, str]:
    """Return the whole page."""
    table = ["| pooling | computes | features | definition |", "|---|---|--:|---|"]
    for name in list_poolings():
        cls = pooling_class(name)
        summary = markdown(sections(cls)[0].strip().splitlines()[0]).rstrip(".").replace("|", "\\|")
        table.append(f"| [{name}](#{name}) | {summary} | {size(name)} | {cls.fidelity} |")
    return {PAGE: "\n".join([HEADER, *table, "", *(describe(name) for name in list_poolings())])}
