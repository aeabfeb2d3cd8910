"""Templates of this package, rendered into self-contained pages."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from steadyrnn.errors import RunError, printable
from steadyrnn.runs.output_file import write_output

from .markup import Markup

__all__ = ["render_page", "write_page"]

_FOLDER = Path(__file__).parent


def write_page(text: str, out: str | Path) -> Path:
    """Write a page and return its path; an older file is replaced as a whole, a pipe or device written into."""
    write_output(Path(out), printable(text).encode())  # it may go to a terminal, and JSON can name half a character
    return Path(out)


def render_page(template: str, values: Mapping[str, Any]) -> str:
    """Return a page: a template of this package with the style of all pages.

    Args:
        template: Its file.
        values: What it shows, by name.

    Raises:
        RunError: jinja2 is missing.
    """
    try:
        import jinja2
    except ImportError as error:
        raise RunError("A report needs jinja2, which is not installed: `pip install steadyrnn[report]`.") from error
    style = Markup((_FOLDER / "style.css").read_text(encoding="utf-8"))
    text: str = _load(jinja2, template).render(style=style, **values)
    return text


@cache
def _load(jinja2: Any, template: str) -> Any:
    """Return a template, compiled; it may include others."""
    options = {"autoescape": True, "undefined": jinja2.StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    return jinja2.Environment(loader=jinja2.FileSystemLoader(_FOLDER), **options).get_template(template)
