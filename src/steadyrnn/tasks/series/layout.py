"""Whether a row of a table is a step or a series."""

from steadyrnn.errors import ArgumentError, not_among

from .roles import assign_roles, forecasts
from .settings import SeriesSettings
from .step_names import are_numbered
from .table import Table

__all__ = ["choose_layout"]

_FEWEST = 8


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
    if _has_steps(table, settings):
        return "rows", "the columns of numbers are numbered as steps are"
    return "long", "the columns are not numbered as steps are" if settings.target is not None else "there is no target"


def _has_steps(table: Table, settings: SeriesSettings) -> bool:
    """Say whether there is a target and eight columns of numbers or more, all with numbered names."""
    if settings.target is None:
        return False
    roles = assign_roles(table, settings, channels=False)
    names = [column.name for column in roles.others(table) if column.holds_numbers]
    return len(names) >= _FEWEST and are_numbered(names)
