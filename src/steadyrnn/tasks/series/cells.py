"""Cells that were written as text, understood as numbers where they are."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from .number_text import is_number
from .table import MISSING, Column, shown

if TYPE_CHECKING:
    import polars as pl

__all__ = ["are_nearly_numbers", "column_of_texts", "not_a_number"]

_COMMA = re.compile(r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d*)?")


def column_of_texts(name: str, cells: "pl.Series") -> Column:
    """Return a column whose cells are texts.

    Spaces around a cell do not count. A cell is missing if it is one of ``MISSING``. If all others are ``true`` or ``false``,
    these are 1 and 0.

    Args:
        name: Of the column.
        cells: Of dtype String; null where nothing stands.
    """
    import polars as pl

    numbers = cells.cast(pl.Float64, strict=False)
    rows = (numbers.is_null() & cells.is_not_null()).arg_true()
    values = numbers.fill_null(float("nan")).to_numpy(writable=True)
    values[np.isnan(values)] = np.nan  # a NaN in the file may have any bits
    rest = cells.gather(rows).str.strip_chars()  # what is not a number as it stands: a few cells, or all
    again = rest.cast(pl.Float64, strict=False)
    places = rows.to_numpy().astype(np.int64)
    values[places] = again.fill_null(float("nan")).to_numpy()
    wrong = again.is_null() & ~rest.is_in(list(MISSING))
    others = rest.filter(wrong).str.to_lowercase()
    bad = places[wrong.to_numpy()]
    kind = "text" if len(bad) else "numbers"
    if len(bad) and np.isnan(values).all() and others.is_in(["true", "false"]).all():
        values[bad] = (others == "true").to_numpy()
        kind, bad = "booleans", bad[:0]
    return Column(name, kind, values, bad, lambda: _as_texts(cells))


def _as_texts(cells: "pl.Series") -> list[str | None]:
    """Return the texts of a column without spaces around them, None where a value is missing."""
    missing = set(MISSING)
    return [None if text is None or text in missing else text for text in cells.str.strip_chars().to_list()]


def not_a_number(text: str | None) -> str:
    """Return what is wrong with a cell that should be a number, and the way out.

    Example:
        >>> not_a_number("1,5")
        "must hold a number, but holds '1,5'. Write decimals with a point: 1.5."
    """
    held = "" if text is None else text
    if _THOUSANDS.fullmatch(held):
        advice = "Write numbers without commas between the digits, and decimals with a point."
    elif _COMMA.fullmatch(held):
        advice = f"Write decimals with a point: {held.replace(',', '.')}."
    elif len(held.split()) > 1 and all(map(is_number, held.split())):
        advice = "Separate columns by a comma, a semicolon or a tab, not by spaces."
    else:
        advice = "A missing value is an empty cell, NaN, nan, NA, null or ?."
    return f"must hold a number, but holds {shown(held)}. {advice}"


def are_nearly_numbers(texts: Iterable[str | None]) -> bool:
    """Say whether all texts are numbers in a form that is not read: with decimal commas, or several between spaces.

    Example:
        >>> are_nearly_numbers(["1,5", "2"]), are_nearly_numbers(["low", "1,5"])
        (True, False)
    """
    return all(text is None or _COMMA.fullmatch(text) or all(map(is_number, text.split())) for text in texts)
