"""Numbers that are written as text, for formats that Python reads line by line."""

import math
from collections.abc import Sequence

from .table import MISSING

__all__ = ["is_number", "parse_numbers"]

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
