"""A table: named columns of equal length, each cell a number, missing, or something else."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steadyrnn.errors import DataError

from .records import SourceFile

__all__ = ["MISSING", "Column", "Integers", "Numbers", "Table", "check_names", "check_size", "shown"]

Numbers = NDArray[np.float64]
Integers = NDArray[np.int64]

MISSING = ("", "NaN", "nan", "NA", "null", "?")
"""Texts that stand for a missing value."""

_MOST_COLUMNS = 100_000
_MOST_VALUES = 1 << 31


@dataclass(frozen=True)
class Column:
    """A column.

    Args:
        name: In the file.
        kind: What its cells are, in a word: ``numbers``, ``booleans``, ``text``, ``dates``; ``strings`` if the file says
            that they are text; or a type that is not read.
        numbers: float64 (R,); NaN where a cell is missing or is not a number. A boolean is 0 or 1.
        wrong: Rows whose cells are neither numbers nor missing, ascending.
        texts: Returns all cells as texts; None where missing.
        seconds: Of dates with a type: seconds since 1970, float64 (R,).
    """

    name: str
    kind: str
    numbers: Numbers
    wrong: Integers
    texts: Callable[[], list[str | None]]
    seconds: Numbers | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no cell holds anything."""
        return not len(self.wrong) and bool(np.isnan(self.numbers).all())

    @property
    def holds_numbers(self) -> bool:
        """Whether every cell that is not missing is a number, and there is one."""
        return not len(self.wrong) and not self.is_empty

    @property
    def is_mixed(self) -> bool:
        """Whether most cells are numbers, but not all: mostly a fault in the file."""
        return 0 < len(self.wrong) < int((~np.isnan(self.numbers)).sum())


@dataclass(frozen=True)
class Table:
    """Columns of a file.

    Args:
        source: The file.
        columns: In the order of the file; names are unique.
        lines: Line of the file at which each row begins, (R,); None where the file has no lines, and rows count from 1.
        named: Whether the file names the columns; else they are called 1, 2, 3, ...
    """

    source: SourceFile
    columns: Sequence[Column]
    lines: Integers | None = None
    named: bool = True

    @property
    def rows(self) -> int:
        """R."""
        return len(self.columns[0].numbers)

    def place(self, row: int) -> str:
        """Return where a row is, in words."""
        return f"row {row + 1}" if self.lines is None else f"line {self.lines[row]}"

    def fault(self, row: int, column: str | None, problem: str) -> DataError:
        """Return the error about a row or a cell: file, line, column, and what is wrong."""
        cell = "" if column is None else f", column {column!r}"
        return DataError(f"{self.source.path}, {self.place(row)}{cell} {problem}")


def shown(text: object) -> str:
    """Return a cell as an error shows it, cut if it is long.

    Example:
        >>> shown("n/a"), shown("a" * 50)
        ("'n/a'", "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...'")
    """
    said = str(text)
    return repr(said if len(said) <= 40 else f"{said[:30]}...")


def check_names(names: Sequence[str], where: str) -> None:
    """Refuse columns without a name, and two of the same name.

    Args:
        names: Of the columns.
        where: File and line of the names.
    """
    if len(names) > _MOST_COLUMNS:
        raise DataError(f"{where} must have at most {_MOST_COLUMNS:,} columns, but has {len(names):,}.")
    if "" in names:
        raise DataError(
            f"{where}, column {names.index('') + 1} of {len(names)} must have a name, but has none. Name it; of pandas, "
            "`to_csv(index=False)` writes no column without a name."
        )
    if len(set(names)) < len(names):
        first: dict[str, int] = {}
        for place, name in enumerate(names, 1):
            if first.setdefault(name, place) != place:
                raise DataError(f"{where} must name each column once, but columns {first[name]} and {place} are both {name!r}.")


def check_size(rows: int, columns: int, where: object) -> None:
    """Refuse a table that is too large, before memory is taken for it."""
    if columns > _MOST_COLUMNS:
        raise DataError(f"{where} must have at most {_MOST_COLUMNS:,} columns, but has {columns:,}.")
    if rows * columns > _MOST_VALUES:
        raise DataError(
            f"{where} must have at most {_MOST_VALUES:,} values, but has {rows:,} rows of {columns:,} columns. "
            "Read a part of it."
        )
