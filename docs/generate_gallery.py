"""Writes docs/gallery.md from the examples: their essays and, with --draw, their pictures in docs/gallery/.

Usage: python docs/generate_gallery.py [--draw] [name ...]
"""

import argparse
import ast
import os
import subprocess
import sys
import time
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "gallery.md"
PICTURES = ROOT / "docs" / "gallery"
HEADER = """# Gallery

One script, one picture, one idea. Each runs in less than half a minute without a GPU and needs no downloads:
`python examples/plot_confounding.py figure.png`. This page and its pictures are made by `make docs`.
"""

# The order in which the ideas build on each other; an example that is not named comes last.
ORDER = (
    "confounding",
    "hidden_pairs",
    "what_heads_see",
    "structure_estimation",
    "wine_graph",
    "newton_schulz",
    "spectrum_and_sparsity",
    "output_scale",
    "heat_maps",
    "channel_graph",
)


def examples() -> list[str]:
    """The names of all examples, in the order of the page."""
    names = sorted(path.stem.removeprefix("plot_") for path in (ROOT / "examples").glob("plot_*.py"))
    return sorted(names, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))


def script(name: str) -> Path:
    """The file of an example."""
    return ROOT / "examples" / f"plot_{name}.py"


def essay(name: str) -> tuple[str, str]:
    """Title and text of an example: the docstring of its module, without the usage."""
    text = ast.get_docstring(ast.parse(script(name).read_text(encoding="utf-8"))) or ""
    title, _, rest = text.partition("\n")
    return title.strip(), rest.partition("\nUsage:")[0].strip()


def render() -> str:
    """The whole page."""
    parts = [HEADER]
    for name in examples():
        title, text = essay(name)
        parts.append(f"## {title}\n\n![{title}](gallery/{name}.png)\n\n{text}\n")
        parts.append(f"[examples/plot_{name}.py](../examples/plot_{name}.py)\n")
    return "\n".join(parts)


def draw(name: str) -> bool:
    """Runs one example into docs/gallery; returns whether it worked."""
    picture = PICTURES / f"{name}.png"
    started = time.perf_counter()
    environment = {**os.environ, "MPLBACKEND": "Agg"}
    command = [sys.executable, str(script(name)), str(picture)]
    if subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode:
        return False
    shrink(picture)
    print(f"drew docs/gallery/{name}.png in {time.perf_counter() - started:.0f} s", flush=True)
    return True


def shrink(picture: Path) -> None:
    """Stores a picture anew without its transparency, compressed as well as PNG can."""
    with Image.open(picture) as image:
        opaque = image.convert("RGB")
    opaque.save(picture, optimize=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draw", action="store_true", help="draw the pictures too")
    parser.add_argument("names", nargs="*", help="only these, such as confounding; all by default")
    arguments = parser.parse_args()
    failed = []
    if arguments.draw:
        PICTURES.mkdir(exist_ok=True)
        failed = [name for name in arguments.names or examples() if not draw(name)]
    PAGE.write_text(render(), encoding="utf-8")
    print(f"wrote docs/{PAGE.name}")
    if failed:
        print(f"gallery: these examples failed: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
