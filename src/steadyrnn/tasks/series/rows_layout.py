"""Tables with a row per series."""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from steadyrnn.errors import ArgumentError, DataError

from .channel_names import select_channels
from .reading import Reading
from .records import RawTarget, SeriesSet
from .roles import Roles, assign_roles, check_finite, forecasts, number_columns
from .settings import SeriesSettings
from .step_names import are_numbered, order_steps
from .table import Column, Numbers, Table
from .targets import target_of_rows, texts_of, unique_texts_of

__all__ = ["read_rows"]


def read_rows(table: Table, settings: SeriesSettings) -> Reading:
    """Return the series of a table whose rows are series.

    All number columns without another role are steps. Missing cells at the end of a row shorten its series; with several
    channels, those where all are missing.
    """
    if settings.time is not None:
        raise ArgumentError(
            "`time` names a column of times, but a row is a whole series with `layout` rows. Use `layout` long."
        )
    roles = assign_roles(table, settings, channels=False)
    if forecasts(settings) and roles.target:
        raise ArgumentError(
            "`target` names channels to forecast, but with `layout` rows columns are steps. Leave it out, or use `layout` long."
        )
    others = roles.others(table)
    numbered = any(are_numbered([column.name]) for column in others)  # then an empty column is a step only if it is, too
    columns, notes = number_columns(table, others, lambda name: not numbered or are_numbered([name]))
    channels, grid = _grid(table, columns, settings)
    if len(channels) > 1:
        notes.append(f"Each row has {len(channels)} channels of {len(grid[0])} steps: {', '.join(channels[:20])}.")
    cells = np.stack([np.stack([column.numbers for column in line]) for line in grid])  # (D, T, N)
    cells = np.ascontiguousarray(cells.transpose(2, 1, 0))  # (N, T, D)
    kept = _kept_steps(table, cells)
    names = [str(row) for row in range(1, table.rows + 1)] if roles.series is None else unique_texts_of(table, roles.series)
    series = SeriesSet(
        torch.from_numpy(cells[kept]),
        torch.from_numpy(kept.sum(1)),
        tuple(channels),
        tuple(names),
        _target(table, roles),
        groups=None if roles.group is None else tuple(texts_of(table, roles.group, "the name of a group")),
        files=(table.source,),
        notes=tuple(notes),
    )
    places = np.argwhere(kept)  # (S, 2): row and step
    return Reading(
        series,
        lambda row, channel: (
            f"{table.source.path}, {table.place(places[row][0])}, column {grid[channel][places[row][1]].name!r}"
        ),
    )


def _grid(table: Table, columns: list[Column], settings: SeriesSettings) -> tuple[list[str], list[list[Column]]]:
    """Return the names of the channels, and of each channel the columns in the order of the steps."""
    path = table.source.path
    if not columns:
        raise DataError(
            f"{path} must have columns of numbers that are steps, but has none. For a row per step use `layout` long."
        )
    for column in columns:
        check_finite(table, column)
    channels, places = order_steps([column.name for column in columns], path)
    wanted = select_channels(settings.channels, channels, path)
    return wanted, [[columns[place] for place in places[channels.index(name)]] for name in wanted]


def _kept_steps(table: Table, cells: Numbers) -> NDArray[np.bool_]:
    """Return which steps belong to the series: up to the last at which any channel has a value, bool (N, T)."""
    there = ~np.isnan(cells).all(2)  # (N, T)
    kept: NDArray[np.bool_] = np.flip(np.logical_or.accumulate(np.flip(there, 1), axis=1), 1)
    empty = np.flatnonzero(~kept.any(1))
    if len(empty):
        raise table.fault(int(empty[0]), None, "must hold a series, but every cell of it is empty. Remove the line.")
    return kept


def _target(table: Table, roles: Roles) -> RawTarget | None:
    target = target_of_rows(table, roles.target)
    return None if target is None else replace(target, each=False)
