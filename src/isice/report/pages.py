"""Self-contained HTML pages with embedded pictures, from the templates of this package."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from .theme import dark_variant, data_uri, narrow_variant


@dataclass(frozen=True)
class Picture:
    """A figure in a PNG file, with its dark variant beside it, and its caption."""

    name: str
    path: Path
    caption: str

    @property
    def leads(self) -> bool:
        """Whether the figure belongs above the table, as the summary of the report."""
        return self.name == "panels"

    @property
    def narrow(self) -> "Picture | None":
        """The version of the figure for phones, if there is one."""
        path = narrow_variant(self.path)
        return Picture(self.name, path, self.caption) if path.is_file() else None

    @property
    def light(self) -> str:
        """The figure for light pages, as a ``data:`` URI."""
        return data_uri(self.path)

    @property
    def dark(self) -> str:
        """The figure for dark pages, as a ``data:`` URI; the light one if there is no other."""
        dark = dark_variant(self.path)
        return data_uri(dark if dark.is_file() else self.path)


def render(template: str, **values: Any) -> str:
    """Render a template of this package."""
    environment = Environment(
        loader=PackageLoader("isice.report", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template(template).render(**values)
