"""Names of columns that say which channel and which step they are: x_0, x_1, ..., y_0, y_1, ..."""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from steadyrnn.errors import DataError

from .number_text import is_number

__all__ = ["SEVERAL", "are_numbered", "are_steps", "order_steps"]

SEVERAL = 8
"""Columns from which on numbered ones look like the steps of a channel."""

_NAME = re.compile(r"(.*?)[ _.:\-]?(\d{1,9})")
_NAME_IN_BRACKETS = re.compile(r"(.*?)[\[(](\d{1,9})[\])]")
_LAG = re.compile(r".*-\d{1,9}")
_DECIMAL = re.compile(r"\D*?(\d{1,9}\.\d{1,9})")
_MOMENT = re.compile(r"\D*?(\d{4}-\d{2}(?:-\d{2})?(?:[ T_]\d{1,2}:\d{2}(?::\d{2})?)?|\d{1,2}:\d{2}(?::\d{2})?)")
_WORDS = {"", "t", "time", "timestep", "step", "lag", "sample", "year", "month", "week", "day", "hour", "minute", "second"}
"""What the name of a channel is if it names the steps and no channel."""
_STEP_DECIMAL = re.compile(rf"(?i:{'|'.join(sorted(_WORDS))})[ _]?\d{{1,9}}\.\d{{1,9}}")
_ONLY = "value"


def are_numbered(names: Sequence[str]) -> bool:
    """Say whether all names end with a number, such as x_0, x1 or 7.

    Example:
        >>> are_numbered(["x_0", "x_1"]), are_numbered(["mean", "x_1"])
        (True, False)
    """
    return all(map(_parse, names))


def are_steps(names: Sequence[str]) -> bool:
    """Say whether columns are surely steps: named t0, t1, ... or by times, or eight or more of each of several channels.

    Names such as x0, x1, ... may as well be those of channels.

    Example:
        >>> are_steps(["t1", "t2"]), are_steps(["ch1", "ch2"]), are_steps(["00:00", "00:15"])
        (True, False, True)
    """
    parsed = [_parse(name) for name in names]
    if _read_moments(names) is not None or all(is_number(name) or _STEP_DECIMAL.fullmatch(name) for name in names):
        return True
    channels = [parts[0].strip(" _").lower() for parts in parsed if parts is not None]
    if len(channels) < len(names):
        return False
    counts = {channels.count(channel) for channel in {*channels}}
    return {*channels} <= _WORDS or (len({*channels}) > 1 and len(counts) == 1 and min(counts) >= SEVERAL)


def order_steps(names: Sequence[str], path: Path) -> tuple[list[str], list[list[int]]]:
    """Return the channels, and of each the places of its columns in the order of the steps.

    Columns whose names all end with a number are ordered by it; what stands before it is the channel, if there are several.
    Columns without a number are the steps of one channel, as they stand. Names that are numbers, dates or times as a whole,
    such as 0.5, 2024-01 or 00:15, also with the same text before them, are ordered by these. The largest lag is the earliest
    step, for names such as lag3, and t-3, t-2, t-1 if they stand in this order.

    Args:
        names: Of the columns that are steps.
        path: The file, named in errors.

    Example:
        >>> order_steps(["x_1", "x_0", "y_0", "y_1"], Path("a.csv"))
        (['x', 'y'], [[1, 0], [2, 3]])
    """
    if all(map(is_number, names)):  # such as wavelengths, 1100.5
        return [_ONLY], [sorted(range(len(names)), key=lambda place: float(names[place]))]
    moments = _read_moments(names)
    if moments is not None:
        return [_ONLY], [_sort_by(moments, names, path)]
    parsed = [_parse(name) for name in names]
    unnumbered = [name for name, parts in zip(names, parsed, strict=True) if parts is None]
    if len(unnumbered) == len(names):
        return [_ONLY], [[*range(len(names))]]
    if unnumbered:
        numbered = next(name for name, parts in zip(names, parsed, strict=True) if parts is not None)
        raise DataError(
            f"{path} must have a number in the name of each column that is a step, as {numbered!r} has, but {unnumbered[0]!r} "
            "has none. Give it a role (`target`, `series`, `group`) or remove it."
        )
    steps: dict[str, dict[int, int]] = {}
    for place, parts in enumerate(parsed):
        if parts is not None and steps.setdefault(parts[0], {}).setdefault(parts[1], place) != place:
            other = names[steps[parts[0]][parts[1]]]
            raise DataError(f"{path} must name each step once, but columns {other!r} and {names[place]!r} are the same step.")
    decimals = _read_decimals(names, steps)
    if decimals is not None:
        return [_ONLY], [_sort_by(decimals, names, path)]
    (first, wanted), *rest = steps.items()
    for channel, own in rest:
        if own.keys() != wanted.keys():
            step = min(own.keys() ^ wanted.keys())
            has, lacks = (channel, first) if step in own else (first, channel)
            raise DataError(
                f"{path} must have the same steps of each channel, but step {step} is there of {has!r} and not of {lacks!r}."
            )
    channels = [*steps] if rest else [_ONLY]
    return channels, [
        [own[step] for step in sorted(own, reverse=_are_lags(names, channel, own))] for channel, own in steps.items()
    ]


def _parse(name: str) -> tuple[str, int] | None:
    """Return what stands before the number at the end of a name, and the number."""
    match = _NAME_IN_BRACKETS.fullmatch(name) or _NAME.fullmatch(name)
    return None if match is None else (match[1], int(match[2]))


def _read_moments(names: Sequence[str]) -> list[tuple[float, ...]] | None:
    """Return the date or the time that each name is, all behind the same text; None where they are no such names."""
    found = [_MOMENT.fullmatch(name) for name in names]
    moments = [match[1] for match in found if match is not None]
    if len(moments) < len(names) or len({name.removesuffix(moment) for name, moment in zip(names, moments, strict=True)}) > 1:
        return None
    read = [tuple(map(float, re.findall(r"\d+", moment))) for moment in moments]
    return read if len({len(fields) for fields in read}) == 1 else None


def _read_decimals(names: Sequence[str], steps: Mapping[str, Mapping[int, int]]) -> list[tuple[float, ...]] | None:
    """Return the decimal number that each name ends with; None where it is rather a channel, a point and a step."""
    found = [_DECIMAL.fullmatch(name) for name in names]
    numbers = [match[1] for match in found if match is not None]
    if len(numbers) < len(names) or len({name.removesuffix(number) for name, number in zip(names, numbers, strict=True)}) > 1:
        return None
    return None if min(map(len, steps.values())) >= SEVERAL else [(float(number),) for number in numbers]


def _sort_by(keys: Sequence[tuple[float, ...]], names: Sequence[str], path: Path) -> list[int]:
    """Return the places of columns in the order of their keys, which must differ."""
    order = sorted(range(len(keys)), key=lambda place: keys[place])
    for place, after in pairwise(order):
        if keys[place] == keys[after]:
            raise DataError(
                f"{path} must name each step once, but columns {names[place]!r} and {names[after]!r} are the same step."
            )
    return order


def _are_lags(names: Sequence[str], channel: str, steps: Mapping[int, int]) -> bool:
    """Say whether the numbers of a channel are lags: they are called so, or stand behind a minus, from the largest down."""
    if channel.strip(" _").lower() == "lag":
        return True
    falls = [*steps] == sorted(steps, reverse=True)
    return len(steps) > 1 and falls and all(_LAG.fullmatch(names[place]) for place in steps.values())
