"""What a command prints: tables for people, or one JSON object for a machine."""

import io
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from steadyrnn.errors import printable

__all__ = ["Output", "plain", "short"]


class Output:
    """Prints on stdout for people, unless a machine reads it: then one JSON object and nothing else.

    What a terminal would obey is written out: names and values may come from somebody else's files.

    Args:
        as_json: Whether a machine reads stdout.
        quiet: Whether people want nothing but the path of what was written.
    """

    def __init__(self, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json, self.quiet = as_json, quiet

    def note(self, text: str) -> None:
        """Say something on the way; on stderr where a machine reads stdout, not at all where people want quiet."""
        if not self.quiet:
            print(printable(text), file=sys.stderr if self.as_json else sys.stdout)

    def text(self, text: str) -> None:
        """Print a result for people, unless they want quiet."""
        if not self.as_json and not self.quiet:
            print(printable(text))

    def path(self, path: str | Path, text: str | None = None) -> None:
        """Print where the result was written: in words, or the path alone where people want quiet."""
        if not self.as_json:
            print(printable(str(path) if self.quiet or text is None else text))

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table for people; numbers stand to the right."""
        if self.as_json or self.quiet:
            return
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_header=any(columns))
        for index, column in enumerate(columns):
            numbers = index > 0 and all(_is_number(row[index]) for row in rows)
            table.add_column(column, justify="right" if numbers else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text(printable(cell)) for cell in row))
        terminal = sys.stdout is not None and sys.stdout.isatty()
        console = Console(file=sys.stdout or io.StringIO(), width=None if terminal else 110)
        console.on_broken_pipe = _raise  # type: ignore[method-assign]  # rich would end the program with status 1
        console.print(Text(printable(title), style="bold"), soft_wrap=True)
        console.print(table)

    def result(self, value: Mapping[str, Any]) -> None:
        """Print the JSON object, where a machine reads."""
        if self.as_json:
            print(json.dumps(plain(value), allow_nan=False))


def _raise() -> None:
    """Raise the error that is being handled."""
    raise


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it: numbers that are not finite become null, paths and others their text.

    Example:
        >>> plain({"a": (1.0, float("inf"))})
        {'a': [1.0, None]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def short(value: Any) -> str:
    """Return a number as a person wants to read it.

    Example:
        >>> short(0.123456), short(12345), short(None)
        ('0.1235', '12,345', '-')
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _is_number(cell: str) -> bool:
    return cell in ("", "-") or cell[0].isdigit() or (cell[0] in "+-<" and len(cell) > 1 and cell[1].isdigit())
