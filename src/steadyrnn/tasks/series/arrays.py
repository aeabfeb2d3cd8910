"""Series from arrays of NumPy: one array of values, and others for target, lengths, names and groups."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch

from steadyrnn.errors import ArgumentError, DataError

from .array_file import StoredArray, stored_array, stored_arrays
from .array_target import target_of_array, texts_of_array
from .channel_names import keep_channels, number_channels
from .files import Content
from .listed_names import first_repeated
from .reading import Reading, find_step
from .records import SeriesSet
from .roles import forecasts
from .settings import SeriesSettings
from .table import Integers, Numbers, check_size

__all__ = ["read_npy", "read_npz"]

_VALUES = ("X", "x", "data", "values")
_LENGTHS = "lengths"


def read_npy(content: Content, settings: SeriesSettings) -> Reading:
    """Return the series of one array: (T,) and (T, D) are one series, (N, T, D) are N."""
    if settings.target is not None and not forecasts(settings):
        raise ArgumentError(
            f"`target` is {settings.target!r}, but {content.path} holds one array and no target. Save values and target "
            "together: `np.savez('data.npz', X=values, y=target)`, and name the target `y`."
        )
    _refuse_columns(settings, ("series", "time", "group"), ".npy")
    stored = stored_array(content)
    values = _numbers(stored, {1: "T,", 2: "T, D", 3: "N, T, D"})
    one = values.ndim < 3
    values = values.reshape(1, len(values), -1) if one else values
    names = (content.path.stem,) if one else _numbered(len(values))
    series = SeriesSet(*_packed(values, np.full(len(values), values.shape[1])), number_channels(values.shape[2]), names)
    return _finish(series, content, settings, str(content.path), settings.channels)


def read_npz(content: Content, settings: SeriesSettings) -> Reading:
    """Return the series of an archive: values (N, T) or (N, T, D), and further arrays that settings name."""
    _refuse_columns(settings, ("time",), ".npz")
    arrays = stored_arrays(content)
    named = {argument: getattr(settings, argument) for argument in ("target", "series", "group", "channels")}
    if forecasts(settings):
        named["target"] = None  # it names channels then
    for argument, name in named.items():
        if name is not None and name not in arrays:
            raise DataError(f"{content.path} has no array {name!r}, which `{argument}` names. There are {', '.join(arrays)}.")
    taken = [name for name in named.values() if name is not None]
    if len(set(taken)) < len(taken):
        raise ArgumentError(
            f"`target`, `series`, `group` and `channels` must name different arrays, but are {', '.join(taken)}."
        )
    name = named["channels"] or _find_values(arrays, taken, content)
    values = _numbers(arrays[name], {2: "N, T", 3: "N, T, D"})
    values = values[:, :, None] if values.ndim == 2 else values
    count = len(values)
    lengths = _lengths(arrays, {*taken, name}, values.shape)
    series = SeriesSet(
        *_packed(values, lengths),
        number_channels(values.shape[2]),
        _numbered(count)
        if named["series"] is None
        else _unique(texts_of_array(arrays[named["series"]], count), arrays[named["series"]]),
        None
        if named["target"] is None
        else target_of_array(arrays[named["target"]], named["target"], lengths, values.shape[1]),
        groups=None if named["group"] is None else texts_of_array(arrays[named["group"]], count),
        notes=tuple(f"Array {other!r} is not read." for other in arrays if other not in {*taken, name, _LENGTHS}),
    )
    return _finish(series, content, settings, arrays[name].where, None)


def _refuse_columns(settings: SeriesSettings, arguments: tuple[str, ...], suffix: str) -> None:
    for argument in arguments:
        if getattr(settings, argument) is not None:
            raise ArgumentError(
                f"`{argument}` names a column, but a {suffix} file has none for it. Leave it out, or write CSV."
            )


def _find_values(arrays: Mapping[str, StoredArray], taken: list[str], content: Content) -> str:
    """Return the name of the array that holds the values."""
    for name in _VALUES:
        if name in arrays and name not in taken:
            return name
    others = [name for name in arrays if name not in taken and name != _LENGTHS]
    if len(others) != 1:
        there = f"there are {', '.join(others)}" if others else "there is no array besides"
        raise DataError(
            f"{content.path} must hold the values in an array called {', '.join(_VALUES)}, or in its only array, but {there}. "
            "Name it in `channels`."
        )
    return others[0]


def _numbers(stored: StoredArray, dimensions: Mapping[int, str]) -> Numbers:
    """Return values as float64, none of which is infinite.

    Args:
        stored: The array.
        dimensions: The shapes that it may have, by how many dimensions they are.
    """
    if stored.dtype.kind not in "biuf":
        raise DataError(f"{stored.where} must hold numbers, but is of dtype {stored.dtype}.")
    if len(stored.shape) not in dimensions:
        wanted = " or ".join(f"({words})" for words in dimensions.values())
        raise DataError(f"{stored.where} must have the shape {wanted}, but has {stored.shape}.")
    if 0 in stored.shape:
        raise DataError(f"{stored.where} must hold values, but has the shape {stored.shape}.")
    check_size(int(np.prod(stored.shape[:-1])), stored.shape[-1] if len(stored.shape) == 3 else 1, stored.where)
    values = stored.read().astype(np.float64)
    if bool(np.isinf(values).any()):
        place = ", ".join(str(index) for index in np.argwhere(np.isinf(values))[0])
        raise DataError(f"{stored.where} must hold finite numbers, but [{place}] is infinite. NaN stands for a missing value.")
    values[np.isnan(values)] = np.nan
    return values


def _lengths(arrays: Mapping[str, StoredArray], taken: set[str], shape: tuple[int, ...]) -> Integers:
    """Return the steps of each series: all, or what the array ``lengths`` says."""
    if _LENGTHS not in arrays or _LENGTHS in taken:
        return np.full(shape[0], shape[1])
    stored = arrays[_LENGTHS]
    if stored.shape != shape[:1] or stored.dtype.kind not in "iu":
        raise DataError(f"{stored.where} must hold {shape[0]} integers, but has shape {stored.shape} and dtype {stored.dtype}.")
    lengths = stored.read()
    wrong = np.flatnonzero((lengths < 1) | (lengths > shape[1]))  # type: ignore[operator]
    if len(wrong):
        raise DataError(f"{stored.where} must hold lengths from 1 to {shape[1]}, but [{wrong[0]}] is {lengths[wrong[0]]}.")
    return lengths.astype(np.int64)


def _packed(values: Numbers, lengths: Integers) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the steps of all series one after another, (S, D), and the lengths (N,)."""
    kept = np.arange(values.shape[1]) < lengths[:, None]  # (N, T)
    return torch.from_numpy(np.ascontiguousarray(values[kept])), torch.from_numpy(lengths)


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(map(str, range(1, count + 1)))


def _unique(names: tuple[str, ...], stored: StoredArray) -> tuple[str, ...]:
    if (twice := first_repeated(names)) is not None:
        raise DataError(f"{stored.where} must name each series once, but {twice!r} is there twice.")
    return names


def _finish(series: SeriesSet, content: Content, settings: SeriesSettings, where: str, channels: str | None) -> Reading:
    """Return the reading of a set without files: the chosen channels, and where each value is, counted from 0 as in NumPy."""
    series = replace(keep_channels(series, settings, content.path, channels), files=(content.source,))

    def place(row: int, channel: int) -> str:
        which, step = find_step(row, series.lengths)
        return (
            f"{where}, series {series.names[which]!r}, step {step}, channel {series.channels[channel]!r} (steps count from 0)"
        )

    return Reading(series, place)
