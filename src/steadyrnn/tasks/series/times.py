"""Columns of times: numbers, or dates in ISO 8601, which become seconds since 1970."""

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np

from steadyrnn.errors import DataError

from .roles import check_finite
from .table import Column, Numbers, Table, shown

__all__ = ["read_times"]

_START = datetime(1970, 1, 1)
_START_UTC = _START.replace(tzinfo=UTC)


def read_times(table: Table, column: Column) -> Numbers:
    """Return the time of each row, float64 (R,): numbers as they are, dates in seconds since 1970.

    A date has the form 2024-01-31, 2024-01-31T12:30:00 or 2024-01-31 12:30:00+01:00. Without a zone it is in UTC, so that
    the result does not depend on the machine. Dates of one file have a zone, or none has.
    """
    times = column.numbers if column.seconds is None else column.seconds
    if column.seconds is None and len(column.wrong):
        times = _read_dates(table, column)
    check_finite(table, column)
    missing = np.flatnonzero(np.isnan(times))
    if len(missing):
        raise table.fault(int(missing[0]), column.name, "must hold a time, but is empty. Each row must have its time.")
    return times


def _read_dates(table: Table, column: Column) -> Numbers:
    """Return the seconds of dates that are written as text."""
    texts = column.texts()
    seconds = np.full(len(texts), np.nan)
    if column.is_mixed:
        raise _not_a_time(table, column, texts, int(column.wrong[0]))
    if not np.isnan(column.numbers).all():
        raise _not_a_time(table, column, texts, int(np.flatnonzero(~np.isnan(column.numbers))[0]))
    zoned: bool | None = None
    for row in column.wrong.tolist():
        time = _parse(texts[row])
        if time is None:
            raise _not_a_time(table, column, texts, row)
        if zoned is None:
            zoned = time.tzinfo is not None
        if zoned != (time.tzinfo is not None):
            wanted, found = ("a zone", "no zone") if zoned else ("no zone", "a zone")
            problem = f"must hold a time with {wanted}, as those above, but {shown(texts[row])} has {found}."
            raise table.fault(row, column.name, problem)
        seconds[row] = (time - (_START_UTC if zoned else _START)).total_seconds()
    return seconds


def _parse(text: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(text or "")
    except ValueError:
        return None


def _not_a_time(table: Table, column: Column, texts: Sequence[str | None], row: int) -> DataError:
    if column.kind.endswith(")"):  # a nested type
        return DataError(f"{table.source.path}, column {column.name!r} must hold a time per row, but is of type {column.kind}.")
    return table.fault(
        row, column.name, f"must hold a time, a number or a date such as 2024-01-31 12:30:00, but holds {shown(texts[row])}. "
        "All times of a file must be of one kind.",
    )  # fmt: skip
