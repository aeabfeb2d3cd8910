"""ARFF files of the UCR and UEA archives: a series per row, or one relational attribute whose rows are the dimensions."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from steadyrnn.errors import ArgumentError, DataError, suggestion

from .arff_grammar import Attribute, read_header, read_values, unquoted
from .channel_names import keep_channels, number_channels
from .files import Content
from .long_layout import read_long
from .number_text import parse_dimension, parse_numbers
from .reading import Reading, find_step
from .records import SeriesSet
from .roles import assign_roles, forecasts
from .rows_layout import read_rows
from .settings import SeriesSettings
from .table import MISSING, Column, Integers, Numbers, Table, check_size
from .targets import target_of_rows, texts_of, unique_texts_of
from .text_bytes import text_lines

__all__ = ["read_arff"]


def read_arff(content: Content, settings: SeriesSettings) -> Reading:
    """Return the series of an ARFF file, a row each. The target is the one that is named, or the last nominal attribute."""
    lines = text_lines(content)
    attributes, first = read_header(lines, content.path)
    relational = [attribute for attribute in attributes if attribute.kind == "relational"]
    if len(relational) > 1:
        raise DataError(f"{content.path} must have one relational attribute, but has {len(relational)}.")
    kept: list[int] = []
    rows: list[list[str]] = []
    for number, line in enumerate(lines[first:], first + 1):
        text = line.strip()
        if text and text[0] != "%":
            rows.append(read_values(text, f"{content.path}, line {number}"))
            kept.append(number)
            _check_width(rows[-1], attributes, f"{content.path}, line {number}")
    if not rows:
        raise DataError(f"{content.path}, line {first} must have rows behind @data, but has none.")
    check_size(len(rows), len(attributes), content.path)
    columns = [
        _column(attribute, [row[place] for row in rows], kept, content)
        for place, attribute in enumerate(attributes)
        if attribute.kind != "relational"
    ]
    settings = _with_target(settings, attributes)
    if relational:
        place = attributes.index(relational[0])
        bags = [row[place] for row in rows]
        return _read_relational(content, settings, relational[0], bags, columns, np.array(kept))
    table = Table(content.source, columns, np.array(kept))
    return (read_long if settings.layout == "long" else read_rows)(table, settings)


def _check_width(row: Sequence[str], attributes: Sequence[Attribute], where: str) -> None:
    if len(row) != len(attributes):
        raise DataError(f"{where} must have {len(attributes)} values, one per attribute, but has {len(row)}.")


def _with_target(settings: SeriesSettings, attributes: Sequence[Attribute]) -> SeriesSettings:
    """Return settings that name the target: the last nominal attribute, if none is named and the task is not to forecast."""
    nominal = [attribute.name for attribute in attributes if attribute.kind == "nominal"]
    if settings.target is not None or forecasts(settings) or not nominal:
        return settings
    return replace(settings, target=nominal[-1])


def _column(attribute: Attribute, cells: Sequence[str], lines: Sequence[int], content: Content) -> Column:
    """Return the cells of one attribute, which are of its type."""
    if attribute.kind == "numbers":
        numbers = parse_numbers(cells)
        if isinstance(numbers, int):
            raise DataError(
                f"{content.path}, line {lines[numbers]}, column {attribute.name!r} must hold a finite number, but holds "
                f"{cells[numbers][:40]!r}. A missing value is ?."
            )
        values = np.array(numbers)
        texts: list[str | None] = [None if cell in MISSING else cell for cell in cells]
        return Column(attribute.name, "numbers", values, np.zeros(0, np.int64), lambda: texts)
    texts = [None if cell in {"?", ""} else unquoted(cell) for cell in cells]
    for line, text in zip(lines, texts, strict=True):
        if attribute.kind == "nominal" and text is not None and text not in attribute.values:
            raise DataError(
                f"{content.path}, line {line}, column {attribute.name!r} must hold a value that its @attribute names, but "
                f"holds {text[:40]!r}. {suggestion(text, attribute.values)}"
            )
    wrong = np.flatnonzero([text is not None for text in texts])
    return Column(attribute.name, "strings", np.full(len(cells), np.nan), wrong, lambda: texts)


def _read_relational(
    content: Content, settings: SeriesSettings, attribute: Attribute, bags: list[str], columns: list[Column], lines: Integers
) -> Reading:
    """Return the series of a relational attribute, whose rows are the dimensions."""
    if settings.time is not None:
        raise ArgumentError("`time` names a column of times, but here a row is a whole series. Leave it out.")
    parts: list[Numbers] = []
    for line, bag in zip(lines.tolist(), bags, strict=True):
        parts.append(_dimensions(bag, attribute, f"{content.path}, line {line}, column {attribute.name!r}"))
        if parts[-1].shape[1] != parts[0].shape[1]:
            raise DataError(
                f"{content.path}, line {line}, column {attribute.name!r} must have {parts[0].shape[1]} dimensions, as line "
                f"{lines[0]} has, but has {parts[-1].shape[1]}."
            )
    table = Table(content.source, columns or [_nothing(len(bags))], lines)
    named = settings if not forecasts(settings) else replace(settings, target=None)
    roles = assign_roles(table, named, channels=False)
    count = parts[0].shape[1]
    check_size(sum(map(len, parts)), count, content.path)
    target = target_of_rows(table, roles.target)
    numbered = tuple(map(str, range(1, len(bags) + 1)))
    lengths = torch.tensor([len(part) for part in parts])
    series = SeriesSet(
        torch.from_numpy(np.concatenate(parts)),
        lengths,
        number_channels(count),
        numbered if roles.series is None else tuple(unique_texts_of(table, roles.series)),
        None if target is None else replace(target, each=False),
        groups=None if roles.group is None else tuple(texts_of(table, roles.group, "the name of a group")),
        files=(content.source,),
    )
    series = keep_channels(series, settings, content.path, settings.channels)

    def place(row: int, channel: int) -> str:
        which, step = find_step(row, lengths)
        name = f"column {attribute.name!r}, channel {series.channels[channel]!r}, value {step + 1}"
        return f"{content.path}, line {lines[which]}, {name}"

    return Reading(series, place)


def _dimensions(bag: str, attribute: Attribute, where: str) -> Numbers:
    """Return the series of one row, (T, D); steps at its end at which every dimension is missing are cut off."""
    channels = []
    for place, text in enumerate(unquoted_rows(bag), 1):
        fields = text.split(",")
        if len(fields) != attribute.length:
            raise DataError(f"{where}, dimension {place} must have {attribute.length} values, but has {len(fields)}.")
        channels.append(parse_dimension(fields, f"{where}, dimension {place}"))
    values = np.array(channels).T
    there = np.flatnonzero(~np.isnan(values).all(1))
    if not len(there):
        raise DataError(f"{where} must hold a series, but every value of it is missing.")
    return values[: there[-1] + 1]


def unquoted_rows(bag: str) -> list[str]:
    r"""Return the rows of a relational value: a text in quotes, with ``\n`` between rows.

    Example:
        >>> unquoted_rows(r"'1,2\n3,4'")
        ['1,2', '3,4']
    """
    inner = bag[1:-1] if len(bag) > 1 and bag[0] in "'\"" and bag[-1] == bag[0] else bag
    return inner.removesuffix("\\n").split("\\n")


def _nothing(rows: int) -> Column:
    """Return a column for a table that would have none."""
    return Column("", "numbers", np.full(rows, np.nan), np.zeros(0, np.int64), lambda: [None] * rows)
