"""A table as people and other programs read it: CSV, LaTeX and JSON."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from steadyrnn.runs.files import write_atomically
from steadyrnn.runs.json_text import null_for_nonfinite, render

__all__ = ["number_text", "write_table"]


def write_table(folder: Path, header: Sequence[str], lines: Sequence[Sequence[str]], record: Mapping[str, Any]) -> None:
    """Write ``table.csv``, ``table.tex`` and ``table.json`` into a folder.

    Args:
        folder: Where the files are written; it exists.
        header: Names of columns.
        lines: The cells, as texts; what does not apply is empty.
        record: What the JSON file holds; NaN and infinity become null.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(lines)
    write_atomically(folder / "table.csv", text.getvalue().encode())
    write_atomically(folder / "table.tex", _latex(header, lines).encode())
    write_atomically(folder / "table.json", render(null_for_nonfinite(dict(record))).encode())


def number_text(value: float | None) -> str:
    """Return a number as a cell of a table: six digits, a whole number with all of them, empty for None.

    Example:
        >>> number_text(0.123456789), number_text(1234567), number_text(None)
        ('0.123457', '1234567', '')
    """
    return "" if value is None else str(value) if isinstance(value, int) else f"{value:.6g}"


def _latex(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return the table for LaTeX, in the style of booktabs; special characters are written out."""
    shown = [[_escape(cell) for cell in line] for line in (header, *lines)]
    body = [" & ".join(line) + r" \\" for line in shown]
    columns = "l" + "r" * (len(header) - 1)
    parts = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", body[0], r"\midrule", *body[1:], r"\bottomrule", r"\end{tabular}"]
    return "\n".join(parts) + "\n"


def _escape(text: str) -> str:
    r"""Return a text as LaTeX prints it.

    Example:
        >>> print(_escape("a_b & 5%"))
        a\_b \& 5\%
    """
    named = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return re.sub(r"[\\~^&%$#_{}]", lambda found: named.get(found[0], "\\" + found[0]), text)
