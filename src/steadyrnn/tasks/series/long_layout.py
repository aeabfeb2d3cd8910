"""Tables with a row per step."""

from collections.abc import Sequence

import numpy as np
import torch

from .reading import Reading
from .records import RawTarget, SeriesSet
from .roles import Roles, assign_roles, choose_channels, forecasts
from .settings import SeriesSettings
from .table import Column, Integers, Numbers, Table
from .targets import find_changes, reduce_target, target_of_rows, texts_of
from .times import read_times

__all__ = ["read_long"]


def read_long(table: Table, settings: SeriesSettings) -> Reading:
    """Return the series of a table whose rows are steps.

    Series keep the order in which they first appear, steps that of their times, or of the file where there are none.
    """
    roles = assign_roles(table, settings)
    channels, notes = choose_channels(table, settings, roles)
    names, order, lengths = _sort_rows(table, roles)
    times = None
    if roles.time is not None:
        order, times = _sort_times(table, roles.time, names, order, lengths)
    target = None if forecasts(settings) else target_of_rows(table, roles.target)
    if target is not None:
        notes += _changes(table, target, names, order, lengths)
    values = np.stack([column.numbers[order] for column in channels], axis=1)  # (S, D)
    series = SeriesSet(
        torch.from_numpy(values),
        torch.from_numpy(lengths),
        tuple(column.name for column in channels),
        tuple(names),
        None if target is None else reduce_target(target, order, lengths),
        None if times is None else torch.from_numpy(times),
        None if roles.group is None else _groups(table, roles.group, names, order, lengths),
        (table.source,),
        tuple(notes),
    )
    return Reading(series, lambda row, channel: _place(table, int(order[row]), channels[channel].name))


def _changes(table: Table, target: RawTarget, names: Sequence[str], order: Integers, lengths: Integers) -> list[str]:
    """Say where a target changes that is constant within most series: one wrong cell makes it a target of every step."""
    steps = find_changes(target, order, lengths)
    where = np.searchsorted(np.cumsum(lengths), steps, side="right")
    changing = len(np.unique(where))
    if not 0 < changing <= len(lengths) // 2:
        return []
    place = table.place(int(order[steps[0]]))
    return [
        f"Every step has its own target, since {', '.join(map(repr, target.names))} changes within {changing:,} of "
        f"{len(lengths):,} series: first in series {names[where[0]]!r}, {place}."
    ]


def _place(table: Table, row: int, column: str) -> str:
    return f"{table.source.path}, {table.place(row)}, column {column!r}"


def _sort_rows(table: Table, roles: Roles) -> tuple[list[str], Integers, Integers]:
    """Return the names of the series, the row of each step (S,), in the file's order within a series, and the lengths (N,)."""
    if roles.series is None:
        return [table.source.path.stem], np.arange(table.rows), np.array([table.rows])
    codes: dict[str, int] = {}
    of_row = np.array([codes.setdefault(text, len(codes)) for text in texts_of(table, roles.series, "the name of a series")])
    return [*codes], np.argsort(of_row, kind="stable"), np.bincount(of_row).astype(np.int64)


def _sort_times(
    table: Table, column: Column, names: Sequence[str], order: Integers, lengths: Integers
) -> tuple[Integers, Numbers]:
    """Return the rows of all steps in the order of time within each series, and their times; no time comes twice."""
    times = read_times(table, column)
    of_step = np.repeat(np.arange(len(lengths)), lengths)
    order = order[np.lexsort((times[order], of_step))]
    sorted_times = times[order]
    same = np.flatnonzero((sorted_times[1:] == sorted_times[:-1]) & (of_step[1:] == of_step[:-1]))
    if len(same):
        first, second = sorted(order[same[0] : same[0] + 2].tolist())
        whose = "" if len(names) == 1 else f" of series {names[of_step[same[0]]]!r}"
        raise table.fault(
            second, column.name, f"must hold another time than {table.place(first)}{whose}, but holds the same. "
            + ("Name the column of the series in `series`, if there are several." if not whose else "Keep one of them."),
        )  # fmt: skip
    return order, sorted_times


def _groups(table: Table, column: Column, names: Sequence[str], order: Integers, lengths: Integers) -> tuple[str, ...]:
    """Return the group of each series, which must be the same in all its rows."""
    texts = texts_of(table, column, "the name of a group")
    groups = []
    for name, rows in zip(names, np.split(order, np.cumsum(lengths)[:-1]), strict=True):
        first = int(rows.min())
        groups.append(texts[first])
        if other := [row for row in rows.tolist() if texts[row] != texts[first]]:
            raise table.fault(
                min(other), column.name, f"must hold one group for series {name!r}, but holds {texts[min(other)]!r}, and "
                f"{texts[first]!r} in {table.place(first)}.",
            )  # fmt: skip
    return tuple(groups)
