"""The grammar of delimited text: which delimiter, how many fields on which line, checked before anything is parsed."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from steadyrnn.errors import DataError

from .table import Integers

__all__ = ["find_delimiter", "plain_lines", "quoted_rows"]

_DELIMITERS = "\t;,"
_NAMES = {"\t": "a tab", ";": "a semicolon", ",": "a comma"}


def find_delimiter(data: bytes) -> str:
    r"""Return the delimiter of a file: tab, semicolon or comma, whichever the first line has outside quotes.

    If it has several, the one counts that the second line has as often; of several such ones the first of these three, since
    a comma may be in numbers.

    Example:
        >>> find_delimiter(b"time;x, in m\n0;1,5\n"), find_delimiter(b"x")
        (';', ',')
    """
    first, second = (_outside_quotes(line) for line in [*data[: 1 << 20].split(b"\n", 2)[:2], b""][:2])
    there = [delimiter for delimiter in _DELIMITERS if delimiter.encode() in first]
    same = [delimiter for delimiter in there if first.count(delimiter.encode()) == second.count(delimiter.encode())]
    return next(iter([*same, *there]), ",")


def _outside_quotes(line: bytes) -> bytes:
    return b"".join(line.split(b'"')[::2])


def plain_lines(data: bytes, delimiter: str, path: Path) -> tuple[bytes, Integers]:
    """Return a file without quotes as its lines that are not blank, LF at the end of each, and their numbers, (R,).

    Every line has as many fields as the first. Blank lines are left out; in a file of one column, one before the last value
    is an empty cell.

    Args:
        data: The file.
        delimiter: Between fields.
        path: Named in errors.
    """
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    data = data.rstrip(b"\n") + b"\n"
    letters = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(letters == ord("\n"))
    lines: Integers = np.arange(1, len(ends) + 1)
    fields: Integers = np.diff(np.searchsorted(np.flatnonzero(letters == ord(delimiter)), ends), prepend=0) + 1
    blank = np.diff(ends, prepend=-1) == 1
    width = int(fields[~blank][0])
    if blank.any() and (width > 1 or blank[0]):
        kept = ~blank if width > 1 else np.arange(len(blank)) >= int(np.argmin(blank))
        data = b"".join(line for line, keep in zip(data.splitlines(keepends=True), kept.tolist(), strict=True) if keep)
        lines, fields = lines[kept], fields[kept]
    wrong = np.flatnonzero(fields != width)
    if len(wrong):
        raise _ragged(path, int(lines[wrong[0]]), int(fields[wrong[0]]), (int(lines[0]), width), delimiter)
    return data, lines


def quoted_rows(data: bytes, delimiter: str, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a file with quotes, each with the number of its first line.

    Args:
        data: The file.
        delimiter: Between fields.
        path: Named in errors.
    """
    reader = csv.reader(io.TextIOWrapper(io.BytesIO(data), "utf-8", newline=""), delimiter=delimiter, strict=True)
    head: tuple[int, int] | None = None
    blank: list[int] = []
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise DataError(f"{path}, line {line} {_explain(error)}") from None
        if not row:
            blank.append(line)
            continue
        head = head or (line, len(row))
        if len(row) != head[1]:
            raise _ragged(path, line, len(row), head, delimiter)
        if head[1] == 1 and line != head[0]:
            yield from ((empty, [""]) for empty in blank if empty > head[0])
        blank.clear()
        yield line, row


def _explain(error: csv.Error) -> str:
    """Return what is wrong with a row that cannot be parsed, and the way out."""
    if "unexpected end of data" in str(error):
        return 'must end each quoted field with a quote, but one that begins here does not end. Write a quote inside as "".'
    if "field larger" in str(error):
        return "must have fields of at most 131,072 characters, but one is longer: a quote may be missing."
    return f'must have a delimiter after a closing quote, but has other text ({error}). Write a quote inside as "".'


def _ragged(path: Path, line: int, found: int, head: tuple[int, int], delimiter: str) -> DataError:
    """Return the error for a line with another number of fields than the first."""
    said = f"{path}, line {line} must have {head[1]} field{'s' * (head[1] != 1)}, as line {head[0]} has, but has {found}."
    return DataError(f"{said} Fields end at {_NAMES[delimiter]}; one that contains it must be in quotes.")
