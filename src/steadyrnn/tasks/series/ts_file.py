"""Files of sktime and aeon (.ts): a series per line, dimensions between colons, the class or target last."""

from dataclasses import dataclass, field

import numpy as np
import torch

from steadyrnn.errors import ArgumentError, DataError, suggestion

from .channel_names import keep_channels, number_channels
from .files import Content
from .number_text import parse_dimension, parse_numbers
from .reading import Reading, find_step
from .records import RawTarget, SeriesSet
from .roles import forecasts
from .settings import SeriesSettings
from .table import Numbers, check_size
from .text_bytes import text_lines

__all__ = ["read_ts"]

_TAGS = (
    "@problemname", "@timestamps", "@missing", "@univariate", "@dimension", "@dimensions", "@equallength", "@serieslength",
    "@classlabel", "@targetlabel", "@data",
)  # fmt: skip


@dataclass
class _Header:
    """What the lines before ``@data`` say."""

    dimensions: int | None = None
    length: int | None = None
    target: str | None = None  # "class" or "target"
    labels: tuple[str, ...] = ()
    seen: set[str] = field(default_factory=set)


def read_ts(content: Content, settings: SeriesSettings) -> Reading:
    """Return the series of a ``.ts`` file.

    What the header says of sizes is only compared with what the lines hold. The target is the class (a text) or the target (a
    number) at the end of each line.
    """
    for argument in ("series", "time", "group"):
        if getattr(settings, argument) is not None:
            raise ArgumentError(f"`{argument}` names a column, but a .ts file has no columns. Leave it out, or write CSV.")
    lines = text_lines(content)
    header, first = _read_header(lines, content)
    parts: list[Numbers] = []
    places: list[int] = []
    labels: list[str] = []
    for number, line in enumerate(lines[first:], first + 1):
        if not line.strip() or line.startswith(("#", "%")):
            continue
        where = f"{content.path}, line {number}"
        *dimensions, label = line.split(":") if header.target else (*line.split(":"), "")
        parts.append(_series(dimensions, header, where))
        labels.append(_label(label.strip(), header, where) if header.target else "")
        places.append(number)
    if not parts:
        raise DataError(f"{content.path}, line {first} must have series behind @data, but has none.")
    return _reading(content, settings, header, parts, places, labels)


def _read_header(lines: list[str], content: Content) -> tuple[_Header, int]:
    """Return what the header says, and the number of lines up to and with ``@data``."""
    header = _Header()
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or line.startswith(("#", "%")):
            continue
        where, tag = f"{content.path}, line {number}", words[0].lower()
        if tag not in _TAGS:
            raise DataError(f"{where} must have a tag of the format .ts, but has {words[0][:40]!r}. {suggestion(tag, _TAGS)}")
        if tag in header.seen:
            raise DataError(f"{where} must not repeat {words[0]}.")
        header.seen.add(tag)
        if tag == "@data":
            return header, number
        _read_tag(header, tag, words[1:], where)
    raise DataError(f"{content.path} must have a line @data, but has none. It is cut off, or not of the format .ts.")


def _read_tag(header: _Header, tag: str, words: list[str], where: str) -> None:
    """Note what one line of the header says."""
    said = words[0].lower() if words else ""
    if tag == "@timestamps" and said == "true":
        raise DataError(
            f"{where} must say @timeStamps false: series with time stamps are not read. Write CSV, with a column of times."
        )
    if tag == "@univariate" and said == "true":
        header.dimensions = 1
    if tag in {"@dimension", "@dimensions"}:
        header.dimensions = _integer(said, where)
    if tag == "@serieslength":
        header.length = _integer(said, where)
    if tag in {"@classlabel", "@targetlabel"} and said == "true":
        if header.target is not None:
            raise DataError(f"{where} must not announce a second target: there are classes or targets, not both.")
        header.target = tag[1:-5]
        header.labels = tuple(words[1:]) if tag == "@classlabel" else ()


def _integer(text: str, where: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < len(text) < 10 and int(text)):
        raise DataError(f"{where} must have a number from 1 on, but has {text[:40]!r}.")
    return int(text)


def _series(dimensions: list[str], header: _Header, where: str) -> Numbers:
    """Return the series of a line, (T, D)."""
    if header.dimensions is None:
        header.dimensions = len(dimensions)
    if len(dimensions) != header.dimensions:
        label = f" and a {header.target}" if header.target else ""
        raise DataError(
            f"{where} must have {header.dimensions} dimension{'s' * (header.dimensions > 1)}{label} between colons, but has "
            f"{len(dimensions)} of the former."
        )
    channels = []
    for place, text in enumerate(dimensions, 1):
        if "(" in text:
            raise DataError(
                f"{where}, dimension {place} has time stamps, which are not read. Write CSV, with a column of times."
            )
        channels.append(parse_dimension(text.split(","), f"{where}, dimension {place}"))
    steps = header.length or len(channels[0])
    for place, numbers in enumerate(channels, 1):
        if len(numbers) != steps:
            whose = "@seriesLength says" if header.length else "dimension 1 has"
            raise DataError(f"{where}, dimension {place} must have {steps} values, as {whose}, but has {len(numbers)}.")
    return np.array(channels).T


def _label(text: str, header: _Header, where: str) -> str:
    """Return the class or target at the end of a line."""
    if text in {"", "?"}:
        raise DataError(f"{where} must end with a {header.target} behind a colon, but has none.")
    if header.labels and text not in header.labels:
        raise DataError(
            f"{where} must end with a class that @classLabel names, but has {text[:40]!r}. {suggestion(text, header.labels)}"
        )
    return text


def _reading(
    content: Content, settings: SeriesSettings, header: _Header, parts: list[Numbers], places: list[int], labels: list[str]
) -> Reading:
    """Return the series with their target."""
    check_size(sum(map(len, parts)), parts[0].shape[1], content.path)
    target = None if header.target is None or forecasts(settings) else _target(header.target, labels, places, content)
    if settings.target is not None and not forecasts(settings) and settings.target != header.target:
        there = f"it is called {header.target!r} and read anyway" if header.target else "this file has none"
        raise DataError(f"{content.path} has no target {settings.target!r}, which `target` names: {there}. Leave `target` out.")
    lengths = torch.tensor([len(part) for part in parts])
    names = tuple(map(str, range(1, len(parts) + 1)))
    series = SeriesSet(
        torch.from_numpy(np.concatenate(parts)),
        lengths,
        number_channels(parts[0].shape[1]),
        names,
        target,
        files=(content.source,),
    )
    series = keep_channels(series, settings, content.path, settings.channels)

    def place(row: int, channel: int) -> str:
        which, step = find_step(row, lengths)
        return f"{content.path}, line {places[which]}, channel {series.channels[channel]!r}, value {step + 1}"

    return Reading(series, place)


def _target(name: str, labels: list[str], places: list[int], content: Content) -> RawTarget:
    if name == "class":
        return RawTarget((name,), texts=tuple(labels))
    numbers = parse_numbers(labels)
    if isinstance(numbers, int):
        raise DataError(
            f"{content.path}, line {places[numbers]} must end with a number, the target, but has {labels[numbers][:40]!r}."
        )
    return RawTarget((name,), numbers=torch.tensor(numbers, dtype=torch.float64)[:, None])
