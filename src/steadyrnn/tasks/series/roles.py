"""What each column of a table is: target, name of the series, time, group, or channel."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np

from steadyrnn.errors import ArgumentError, DataError

from .cells import are_nearly_numbers, not_a_number
from .listed_names import first_repeated, split_names
from .settings import SeriesSettings
from .table import Column, Table

__all__ = [
    "Roles",
    "assign_roles",
    "check_finite",
    "check_numbers",
    "choose_channels",
    "forecasts",
    "number_columns",
]

_INDEX = "__index_level_"  # of pandas' rows, in Parquet


@dataclass(frozen=True)
class Roles:
    """The columns that settings name.

    Args:
        target: What is to be predicted, or forecast.
        series: Name of the series.
        time: Time of the row.
        group: Group of the series.
        channels: Those that are named; empty if none are.
    """

    target: tuple[Column, ...]
    series: Column | None
    time: Column | None
    group: Column | None
    channels: tuple[Column, ...]

    def others(self, table: Table) -> list[Column]:
        """Return the columns that have no role by name, in the order of the file."""
        taken = {column.name for column in (*self.target, self.series, self.time, self.group) if column is not None}
        return [column for column in table.columns if column.name not in taken]


def forecasts(settings: SeriesSettings) -> bool:
    """Say whether the task is to forecast; then the target columns are channels.

    Example:
        >>> forecasts(SeriesSettings(horizon=3)), forecasts(SeriesSettings(target="y"))
        (True, False)
    """
    return settings.kind == "forecasting" or settings.horizon is not None


def assign_roles(table: Table, settings: SeriesSettings, channels: bool = True) -> Roles:
    """Return the columns that settings name, each in one role.

    Args:
        table: The columns.
        settings: The names.
        channels: Whether ``channels`` names columns; if a row is a series, it does not.
    """
    by_name = {column.name: column for column in table.columns}
    roles: dict[str, str] = {}

    def find(argument: str) -> tuple[Column, ...]:
        names = split_names(getattr(settings, argument), by_name)
        for name in names:
            if name not in by_name:
                raise DataError(
                    f"{table.source.path} has no column {name!r}, which `{argument}` names. {_suggest(name, table)}"
                )
            if roles.setdefault(name, argument) != argument and not (forecasts(settings) and argument == "channels"):
                raise ArgumentError(f"`{roles[name]}` and `{argument}` both name the column {name!r}. A column has one role.")
        if (twice := first_repeated(names)) is not None:
            raise ArgumentError(f"`{argument}` names the column {twice!r} twice.")
        return tuple(by_name[name] for name in names)

    one = {argument: find(argument) for argument in ("target", "series", "time", "group")}
    for argument in ("series", "time", "group"):
        if len(one[argument]) > 1:
            raise ArgumentError(f"`{argument}` must name one column, but names {len(one[argument])}.")
    single = {argument: next(iter(one[argument]), None) for argument in ("series", "time", "group")}
    return Roles(one["target"], single["series"], single["time"], single["group"], find("channels") if channels else ())


def choose_channels(table: Table, settings: SeriesSettings, roles: Roles) -> tuple[list[Column], list[str]]:
    """Return the columns that are channels, every cell of which is a number or missing, and notes on those left out.

    To forecast, the target columns are channels too.
    """
    chosen = [*roles.channels]
    notes: list[str] = []
    if not chosen:
        chosen, notes = number_columns(table, roles.others(table))
    if forecasts(settings):
        named = {column.name for column in chosen}
        chosen += [column for column in roles.target if column.name not in named]
        if not roles.channels:  # in the order of the file
            places = {column.name: place for place, column in enumerate(table.columns)}
            chosen.sort(key=lambda column: places[column.name])
    if not chosen:
        raise DataError(
            f"{table.source.path} must have a column of numbers to read, besides those with another role, but has none."
        )
    for column in chosen:
        check_numbers(table, column)
    return chosen, notes


def number_columns(
    table: Table, columns: Sequence[Column], empty: Callable[[str], bool] = lambda name: False
) -> tuple[list[Column], list[str]]:
    """Return the columns that hold numbers, and a note on each other one.

    Args:
        table: That the columns are in.
        columns: Those without another role.
        empty: Says by its name whether a column without any value is kept.
    """
    kept, notes = [], []
    for column in columns:
        if (column.holds_numbers or (column.is_empty and empty(column.name))) and not column.name.startswith(_INDEX):
            kept.append(column)
        elif column.is_mixed or (column.kind == "text" and are_nearly_numbers(column.texts())):
            raise _wrong_cell(table, column, " To leave the column out, name those to read in `channels`.")
        elif column.kind.startswith(("List", "Array", "Struct")):
            raise DataError(
                f"{table.source.path}, column {column.name!r} must hold one value per row, but is of type {column.kind}. Write "
                "a row per step, or name the columns to read in `channels`."
            )
        else:
            what = "no value" if column.is_empty else "row numbers of pandas" if column.holds_numbers else column.kind
            notes.append(f"Column {column.name!r} holds {what} and is not read.")
    return kept, notes


def check_numbers(table: Table, column: Column) -> None:
    """Refuse a column that holds anything but finite numbers and missing values, or nothing at all."""
    if len(column.wrong):
        if column.seconds is not None or column.kind.endswith(")"):
            raise DataError(f"{table.source.path}, column {column.name!r} must hold numbers, but holds {column.kind}.")
        raise _wrong_cell(table, column)
    if column.is_empty:
        raise DataError(f"{table.source.path}, column {column.name!r} must hold numbers, but holds no value.")
    check_finite(table, column)


def check_finite(table: Table, column: Column) -> None:
    """Refuse infinite numbers, by line and column."""
    infinite = np.flatnonzero(np.isinf(column.numbers))
    if len(infinite):
        raise table.fault(
            int(infinite[0]), column.name, "must hold a finite number, but holds an infinite one, or one above 1.8e308. Leave "
            "the cell empty if it is missing.",
        )  # fmt: skip


def _wrong_cell(table: Table, column: Column, more: str = "") -> DataError:
    row = int(column.wrong[0])
    return table.fault(row, column.name, not_a_number(column.texts()[row]) + more)


def _suggest(name: str, table: Table) -> str:
    """Return a sentence on the columns that there are."""
    names = [column.name for column in table.columns]
    near = get_close_matches(name, names, 1)
    if near:
        return f"Did you mean {near[0]!r}?"
    listed = ", ".join(names[:20]) + (f", ... ({len(names):,} columns)" if len(names) > 20 else "")
    return f"Columns are {listed}." + ("" if table.named else " They are numbered, since `header` is False.")
