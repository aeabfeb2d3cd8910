"""CSV files: delimited text with or without quotes, into a table."""

import itertools
from typing import TYPE_CHECKING

import numpy as np

from steadyrnn.errors import DataError

from .cells import column_of_texts
from .delimited import find_delimiter, plain_lines, quoted_rows
from .files import Content
from .number_text import is_number
from .polars_extra import require_polars
from .table import Integers, Table, check_names, check_size
from .text_bytes import text_bytes

if TYPE_CHECKING:
    import polars as pl

__all__ = ["read_csv_table"]

_CHUNK = 65536  # rows that are Python's texts at the same time


def read_csv_table(content: Content, header: bool) -> Table:
    """Return the columns of a CSV file.

    The delimiter is a tab, a semicolon or a comma. Line ends are LF, CR LF or CR. Fields may be in quotes, and then contain
    delimiters, line ends and, doubled, quotes. Every row must have as many fields as the first.

    Args:
        content: The file.
        header: Whether the first line names the columns; else they are called 1, 2, 3, ...
    """
    require_polars(content.path)
    data = text_bytes(content)
    delimiter = find_delimiter(data.lstrip(b"\r\n"))
    names, lines, cells = (_quoted if b'"' in data else _plain)(content, data, delimiter, header)
    if not len(lines):
        raise DataError(
            f"{content.path} must hold rows behind its first line, but has none. `header` says whether that names columns."
        )
    columns = [column_of_texts(name, texts) for name, texts in zip(names, cells, strict=True)]
    return Table(content.source, columns, lines, named=header)


def _plain(content: Content, data: bytes, delimiter: str, header: bool) -> tuple[list[str], Integers, list["pl.Series"]]:
    """Return names, line of each row and columns of a file without quotes: fields end at delimiters and nowhere else."""
    import polars as pl

    data, lines = plain_lines(data, delimiter, content.path)
    first, _, rest = data.partition(b"\n")
    names = _names(first.decode().split(delimiter), int(lines[0]), content, header)
    body, lines = (rest, lines[1:]) if header else (data, lines)
    check_size(len(lines), len(names), content.path)
    if not len(lines):
        return names, lines, [pl.Series(dtype=pl.String) for _ in names]
    if len(names) == 1:  # polars would skip an empty cell
        return names, lines, [pl.Series(body.decode().split("\n")[:-1], dtype=pl.String)]
    types = {f"column_{place}": pl.String for place in range(len(names))}
    frame = pl.read_csv(body, has_header=False, separator=delimiter, quote_char=None, schema=types, glob=False)
    if frame.shape != (len(lines), len(names)):
        raise DataError(f"{content.path} must have {len(lines)} rows of {len(names)} fields, but was read as {frame.shape}.")
    return names, lines, frame.get_columns()


def _quoted(content: Content, data: bytes, delimiter: str, header: bool) -> tuple[list[str], Integers, list["pl.Series"]]:
    """Return names, line of each row and columns of a file with quotes."""
    import polars as pl

    rows = quoted_rows(data, delimiter, content.path)
    line, first = next(rows)
    names = _names(first, line, content, header)
    if not header:
        rows = itertools.chain([(line, first)], rows)
    lines: list[int] = []
    chunks = [[pl.Series(dtype=pl.String)] for _ in names]
    while chunk := list(itertools.islice(rows, max(1, _CHUNK // len(names)))):
        lines += [line for line, _ in chunk]
        for parts, cells in zip(chunks, zip(*(row for _, row in chunk), strict=True), strict=True):
            parts.append(pl.Series(cells, dtype=pl.String))
        check_size(len(lines), len(names), content.path)
    return names, np.array(lines, np.int64), [pl.concat(parts) for parts in chunks]


def _names(first: list[str], line: int, content: Content, header: bool) -> list[str]:
    """Return the names of the columns."""
    if not header:
        return [str(place) for place in range(1, len(first) + 1)]
    names = [name.strip() for name in first]
    where = f"{content.path}, line {line}"
    if all(map(is_number, names)) and not _are_counted(names):
        raise DataError(
            f"{where} must name the columns, but holds numbers only. For a file without names say `header=False` "
            "(`--header false`)."
        )
    check_names(names, where)
    return names


def _are_counted(names: list[str]) -> bool:
    """Say whether names are 0, 1, 2, ... or 1, 2, 3, ..., as programs name columns; other numbers are data."""
    return any(names == [str(place) for place in range(first, first + len(names))] for first in (0, 1))
