"""Series from whatever a user names: a file of a known format, or a folder of files."""

from dataclasses import replace

from steadyrnn.errors import ArgumentError

from .files import named_path, read_content
from .folder import read_folder
from .formats import find_format
from .missing import check_missing
from .records import SeriesSet
from .settings import SeriesSettings
from .targets import check_varied

__all__ = ["read_all", "read_series", "read_test_series"]


def read_series(settings: SeriesSettings) -> SeriesSet:
    """Return the series to learn from, as they are: nothing is filled in, scaled or divided.

    Args:
        settings: Which file, and what its columns are.
    """
    series = read_all(settings)
    if series.target is not None:
        check_varied(series.target, settings.data)
    return series


def read_test_series(settings: SeriesSettings) -> SeriesSet:
    """Return the series of ``settings.test_data``, in which a target may be the same everywhere."""
    if settings.test_data is None:
        raise ArgumentError("`test_data` must name a file or a folder, but is None.")
    return read_all(replace(settings, data=settings.test_data))


def read_all(settings: SeriesSettings) -> SeriesSet:
    """Return the series of a file or folder, whatever its target is."""
    path = named_path(settings.data)
    reading = read_folder(path, settings) if path.is_dir() else find_format(path).read(read_content(path), settings)
    check_missing(reading, settings)
    return reading.series
