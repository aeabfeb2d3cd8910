"""Numbers that are written as text, for formats that Python reads line by line."""

import math
from collections.abc import Sequence

from steadyrnn.errors import DataError

from .table import MISSING

__all__ = ["is_number", "parse_dimension", "parse_numbers"]

_MISSING = frozenset(MISSING)


def is_number(text: str) -> bool:
    """Say whether a text is a number; Python's own forms, such as 1_000 and digits of other scripts, are not.

    Example:
        >>> is_number(" 1.5e3"), is_number("1_000"), is_number("n/a")
        (True, False, False)
    """
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text and text.isascii()


def parse_numbers(fields: Sequence[str]) -> list[float] | int:
    """Return numbers, NaN where one is missing; or the place of the first field that is not a finite number.

    Example:
        >>> parse_numbers(["1", " 2.5", "?"]), parse_numbers(["1", "two"])
        ([1.0, 2.5, nan], 1)
    """
    numbers = []
    for place, field in enumerate(fields):
        text = field.strip()
        if text in _MISSING:
            numbers.append(math.nan)
        elif is_number(text) and math.isfinite(number := float(text)):
            numbers.append(number)
        else:
            return place
    return numbers


def parse_dimension(fields: Sequence[str], where: str) -> list[float]:
    """Return the numbers of a channel, NaN where one is missing.

    Args:
        fields: As they stand in the file.
        where: What errors begin with: file, line and dimension.

    Raises:
        DataError: One is not a finite number.

    Example:
        >>> parse_dimension(["1", "?"], "a.ts, line 3, dimension 1")
        [1.0, nan]
    """
    numbers = parse_numbers(fields)
    if isinstance(numbers, int):
        found = fields[numbers].strip()[:40]
        raise DataError(f"{where}, value {numbers + 1} must be a finite number, but is {found!r}. A missing value is ? or NaN.")
    return numbers
