"""Whether a row of a table is a step or a series."""

from collections.abc import Sequence

from steadyrnn.errors import ArgumentError, not_among

from .roles import assign_roles, forecasts
from .settings import SeriesSettings
from .step_names import SEVERAL, are_numbered, are_steps
from .table import Table

__all__ = ["choose_layout"]


def choose_layout(table: Table, settings: SeriesSettings) -> tuple[str, str | None]:
    """Return ``long`` or ``rows``, and a note that says why if the settings do not say which."""
    if settings.layout in {"long", "rows"}:
        return settings.layout, None
    if settings.layout != "auto":
        raise ArgumentError(not_among("layout", settings.layout, ["auto", "long", "rows"]))
    layout, why = _guess(table, settings)
    what = {"long": "a step", "rows": "a series"}[layout]
    return layout, f"Each row is read as {what} (`layout` {layout}), since {why}."


def _guess(table: Table, settings: SeriesSettings) -> tuple[str, str]:
    for argument in ("series", "time"):
        if getattr(settings, argument) is not None:
            return "long", f"`{argument}` is named"
    if forecasts(settings):
        return "long", "the task is to forecast"
    if settings.target is not None and not settings.header:
        return "rows", "the file names no columns and there is a target"
    if settings.target is None:
        return "long", "there is no target"
    roles = assign_roles(table, settings, channels=False)
    names = [column.name for column in roles.others(table) if column.holds_numbers]
    numbered = [name for name in names if are_numbered([name])]
    if len(numbered) < SEVERAL:
        return "long", "the columns are not numbered as steps are"
    if len(numbered) == len(names) and are_steps(names):
        return "rows", "the columns of numbers are numbered as steps are"
    raise ArgumentError(_say_both(table, names, numbered))


def _say_both(table: Table, names: Sequence[str], numbered: Sequence[str]) -> str:
    """Return why the columns may be steps, or channels, and what to do."""
    other = next((name for name in names if name not in {*numbered}), None)
    but = "" if other is None else f", and {other!r} is none of them"
    return (
        f"`layout` must be given for {table.source.path}: its columns {numbered[0]!r}, {numbered[1]!r}, ... may be the steps "
        f"of a series in each row, or {len(numbered)} channels{but}. Use `rows` if a row is a whole series. Use `long` if a "
        "row is one step; then `series` names the column that tells the series apart, if there are several."
    )
