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

Generated from the registry by `python docs/build.py methods`; do not edit.

A pooling maps a feature map (B, C, H, W) to vectors (B, out_features):

```text
isice.create_pooling("isqrt_cov(n_iter=5)", in_channels=256)         # the layer alone
isice.attach(timm_model, pooling="partial_correlation", reduce=256)  # in a timm model
isice train --pooling "isice(sparsity=0.001)" …                      # on the command line
```

Start with `partial_correlation`: it is the most accurate pooling of the
[CUB-200 records](../README.md#why) and costs little more than average pooling. With fewer positions
H·W than channels a covariance is singular. The ridge of this pooling makes that harmless; for most
others that invert a covariance, or take its root or logarithm, a network warns: reduce the channels
(`reduce=`) or enlarge the images. What each pooling costs: [benchmarks.md](benchmarks.md).

Output sizes are for C = {CHANNELS} and default options. Three words tell how well a definition is
known:

- **verified**: read in the authors' or another public implementation, which is named; only guards
  against rounding may differ, such as an ε or a floor for eigenvalues;
- **reconstructed**: part of the definition is not public, or differs on purpose; the assumptions
  are listed;
- **original**: the layer is defined by this package.

None says that published accuracies were reproduced.
"""


def describe(name: str) -> str:
    """Return the section of one pooling: what it computes, source, size, options."""
    cls = pooling_class(name)
    summary, _ = sections(cls)
    lines = [f"## {name}", "", f"`isice.pooling.{name}.{cls.__name__}`", "", summary.strip(), ""]
    lines += [f"- Source: {cls.reference}"]
    lines += [f"- Definition: {cls.fidelity}" + (f"; assumed: {cls.assumed}" if cls.assumed else "")]
    lines += [f"- Evidence: {cls.evidence}"]
    lines += [f"- Output: {size(name)}"]
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
    """Return the options as list items, as the class, its parents or its function document them."""
    items: dict[str, str] = {}
    for owner in cls.__mro__:
        described = [owner]
        described += [pydoc.locate(path) for path in re.findall(r"Options as in :func:`([\w.]+)`", owner.__doc__ or "")]
        for documented in described:
            items = {**arguments(sections(documented)[1]), **items}
    return [f"- `{name}`: {items[name]}" if name in items else f"- `{name}`" for name in cls.option_defaults()]


def arguments(text: str) -> dict[str, str]:
    """Parse an ``Args:`` block; a description may span several lines."""
    items = re.findall(r"^(\**\w+): (.*(?:\n +.*)*)", text, flags=re.MULTILINE)
    return {name: " ".join(description.split()) for name, description in items}


def size(name: str) -> str:
    """Return the output size in words."""
    layer = _layer(name)
    return f"{CLASSES} logits" if layer.needs_num_classes else f"{layer.out_features:,} features"


def _layer(name: str) -> Pooling:
    return create_pooling(name, CHANNELS, num_classes=CLASSES)


def pages() -> dict[Path, str]:
    """Return the whole page."""
    table = ["| pooling | computes | output | definition |", "|---|---|---|---|"]
    for name in list_poolings():
        cls = pooling_class(name)
        summary = markdown(sections(cls)[0].strip().splitlines()[0]).rstrip(".").replace("|", "\\|")
        table.append(f"| [{name}](#{name}) | {summary} | {size(name)} | {cls.fidelity} |")
    return {PAGE: "\n".join([HEADER, *table, "", *(describe(name) for name in list_poolings())])}
