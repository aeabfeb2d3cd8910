"""A folder of files, each of which is a series."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from steadyrnn.errors import ArgumentError, DataError

from .files import read_content
from .folder_files import Found, find_files
from .formats import FORMATS, Format
from .reading import Reading, find_step
from .records import RawTarget, SeriesSet
from .roles import forecasts
from .settings import SeriesSettings
from .table import check_size
from .targets import reduce_target

__all__ = ["read_folder"]


def read_folder(folder: Path, settings: SeriesSettings) -> Reading:
    """Return the series of the files of a folder, one each, by the names of the files.

    If they are in subfolders, and no column is the target, the name of the subfolder is. All files have the same columns.
    """
    _check_settings(settings)
    found = find_files(folder, lambda path: path.suffix.lower() in FORMATS)
    form = _one_format(folder, found)
    own = replace(settings, layout="long")
    readings = [form.read(read_content(path), own) for path in found.files]
    for path, reading in zip(found.files, readings, strict=True):
        _check_agreement(path, reading.series, found.files[0], readings[0].series)
    series = _joined(readings, found, settings)

    def place(row: int, channel: int) -> str:
        which, step = find_step(row, series.lengths)
        return readings[which].place(step, channel)

    return Reading(series, place)


def _check_settings(settings: SeriesSettings) -> None:
    if settings.series is not None:
        raise ArgumentError("`series` names a column of one file, but in a folder each file is a series. Leave it out.")
    if settings.layout == "rows":
        raise ArgumentError("`layout` must be `long` or `auto` for a folder, in which each file is a series, but is 'rows'.")


def _one_format(folder: Path, found: Found) -> Format:
    """Return the format of all files."""
    first = found.files[0]
    form = FORMATS[first.suffix.lower()]
    for path in found.files:
        if FORMATS[path.suffix.lower()] is not form:
            raise DataError(
                f"{folder} must hold files of one format, but {first.relative_to(folder)} is {form.name} and "
                f"{path.relative_to(folder)} is {FORMATS[path.suffix.lower()].name}."
            )
    if not form.in_folder:
        raise DataError(
            f"{folder} must hold CSV, Parquet or .npy files, a series each, but holds {first.relative_to(folder)}. A file of "
            "this format holds many series: name the file itself."
        )
    return form


def _check_agreement(path: Path, series: SeriesSet, first: Path, wanted: SeriesSet) -> None:
    """Refuse a file that differs from the first one in what it holds."""
    if series.count != 1:
        raise DataError(f"{path} must hold one series, as each file of a folder, but holds {series.count}.")
    if series.channels != wanted.channels:
        missing = [name for name in wanted.channels if name not in series.channels]
        more = [name for name in series.channels if name not in wanted.channels]
        how = f"has no {missing[0]!r}" if missing else f"has {more[0]!r} too" if more else "has them in another order"
        note = next((f" {note}" for note in series.notes if missing and repr(missing[0]) in note), "")
        raise DataError(
            f"{path} must have the channels of {first}, {', '.join(wanted.channels[:20])}, but {how}.{note} Name those to read "
            "in `channels`."
        )
    kinds = [None if one.target is None else one.target.texts is None for one in (series, wanted)]
    if kinds[0] != kinds[1]:
        of = {True: "numbers", False: "texts", None: "nothing"}
        raise DataError(f"{path} must have a target of {of[kinds[1]]}, as {first} has, but has one of {of[kinds[0]]}.")


def _joined(readings: Sequence[Reading], found: Found, settings: SeriesSettings) -> SeriesSet:
    """Return the series of all files, one after another."""
    parts = [reading.series for reading in readings]
    check_size(sum(len(part.values) for part in parts), len(parts[0].channels), found.files[0].parent)
    lengths = torch.cat([part.lengths for part in parts])
    notes = dict.fromkeys([*found.notes, *(note for part in parts for note in part.notes)])
    times, groups = [part.times for part in parts], [part.groups for part in parts]
    return SeriesSet(
        torch.cat([part.values for part in parts]),
        lengths,
        parts[0].channels,
        _names(found),
        _target([part.target for part in parts], found, lengths, settings),
        None if times[0] is None else torch.cat([time for time in times if time is not None]),
        None if groups[0] is None else tuple(group for own in groups if own is not None for group in own),
        tuple(file for part in parts for file in part.files),
        tuple(notes),
    )


def _names(found: Found) -> tuple[str, ...]:
    """Return the names of the series: of the files, without suffix where these differ."""
    folders = [""] * len(found.files) if found.classes is None else [f"{name}/" for name in found.classes]
    short = [folder + path.stem for folder, path in zip(folders, found.files, strict=True)]
    whole = [folder + path.name for folder, path in zip(folders, found.files, strict=True)]
    return tuple(short if len(set(short)) == len(short) else whole)


def _target(
    targets: Sequence[RawTarget | None], found: Found, lengths: torch.Tensor, settings: SeriesSettings
) -> RawTarget | None:
    """Return the target of all series: columns of the files, or the subfolders' names."""
    present = [target for target in targets if target is not None]
    if not present:
        named = found.classes is not None and settings.target is None and not forecasts(settings)
        return RawTarget(("folder",), texts=found.classes) if named else None
    texts = None if present[0].texts is None else tuple(text for target in present for text in target.texts or ())
    numbers = None if texts is not None else torch.cat([target.numbers for target in present if target.numbers is not None])
    steps = RawTarget(present[0].names, texts, numbers, each=True)
    return reduce_target(steps, np.arange(int(lengths.sum())), lengths.numpy())
