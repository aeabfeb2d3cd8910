"""Channels of files that do not name them, and the choice among channels."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from steadyrnn.errors import ArgumentError, DataError

from .listed_names import first_repeated, split_names
from .records import SeriesSet
from .roles import forecasts
from .settings import SeriesSettings

__all__ = ["keep_channels", "number_channels", "select_channels"]


def number_channels(count: int) -> tuple[str, ...]:
    """Return names for channels that have none.

    Example:
        >>> number_channels(1), number_channels(2)
        (('value',), ('1', '2'))
    """
    return ("value",) if count == 1 else tuple(map(str, range(1, count + 1)))


def select_channels(named: str | None, channels: Sequence[str], path: Path) -> list[str]:
    """Return the channels that a setting names, in its order; all where it names none.

    Args:
        named: Names between commas.
        channels: Those that there are.
        path: The file, named in errors.
    """
    wanted = split_names(named, channels) or [*channels]
    if unknown := [name for name in wanted if name not in channels]:
        raise DataError(
            f"{path} has no channel {unknown[0]!r}, which `channels` names. Channels are {', '.join(channels[:20])}."
        )
    if (twice := first_repeated(wanted)) is not None:
        raise ArgumentError(f"`channels` names the channel {twice!r} twice.")
    return wanted


def keep_channels(series: SeriesSet, settings: SeriesSettings, path: Path, named: str | None) -> SeriesSet:
    """Return series with the channels that settings name; to forecast, the targets are among them.

    Args:
        series: With all channels.
        settings: Whose ``target`` names what to forecast.
        path: The file, named in errors.
        named: The channels to keep, between commas; None keeps all.
    """
    wanted = select_channels(named, series.channels, path)
    if forecasts(settings):
        for name in split_names(settings.target, series.channels):
            if name not in series.channels:
                raise DataError(
                    f"{path} has no channel {name!r}, which `target` names. Channels are {', '.join(series.channels[:20])}."
                )
            wanted += [name] * (name not in wanted)
    if wanted == [*series.channels]:
        return series
    places = [series.channels.index(name) for name in wanted]
    return replace(series, values=series.values[:, places].contiguous(), channels=tuple(wanted))
