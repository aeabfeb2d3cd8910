"""Series of numbers over training: taken from records, averaged over seeds, thinned for a picture."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .numbers import finite

__all__ = ["POINTS", "Line", "Series", "average", "extract", "interpolate", "thin"]

POINTS = 400

Series = list[tuple[float, float]]
"""Points ``(x, y)`` of increasing x, all finite."""


@dataclass(frozen=True)
class Line:
    """The mean of some seeds, with the lowest and the highest of them, at each x; all of one length.

    Args:
        x: Where, increasing.
        mean: The mean over the seeds that reach so far.
        low: The lowest of them.
        high: The highest of them.
        seeds: How many series the line was made from.
    """

    x: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]
    seeds: int


def extract(records: Iterable[Mapping[str, Any]], kind: str, key: str) -> Series:
    """Return ``(step, value)`` of the records of one kind that have a finite value; of a step that occurs twice the later.

    Example:
        >>> extract([{"kind": "train", "step": 5, "loss": 0.5}, {"kind": "train", "step": 9, "loss": None}], "train", "loss")
        [(5.0, 0.5)]
    """
    points: dict[float, float] = {}
    for record in records:
        step, value = finite(record.get("step")), finite(record.get(key))
        if record.get("kind") == kind and step is not None and value is not None:
            points[step] = value
    return sorted(points.items())


def interpolate(series: Series, x: float) -> float | None:
    """Return the value at ``x`` on the straight line between neighbours, None outside the series."""
    place = bisect_left(series, (x, float("-inf")))
    if place < len(series) and series[place][0] == x:
        return series[place][1]
    if place in (0, len(series)):
        return None
    (x0, y0), (x1, y1) = series[place - 1], series[place]
    share = (x - x0) / (x1 - x0)
    return (1 - share) * y0 + share * y1


def average(several: Sequence[Series]) -> Line | None:
    """Return the mean of several seeds' series and their range, None where all are empty.

    The points are those of any of them; a series counts from its first to its last point, so that a seed that stopped early
    neither ends the line nor goes on in it.
    """
    several = [series for series in several if series]
    if not several:
        return None
    line = Line([], [], [], [], len(several))
    for x in sorted({x for series in several for x, _ in series}):
        values = [value for series in several if (value := interpolate(series, x)) is not None]
        middle = sum(value / len(values) for value in values)  # whose sum cannot overflow
        line.x.append(x)
        line.low.append(min(values))
        line.high.append(max(values))
        line.mean.append(min(max(middle, line.low[-1]), line.high[-1]))
    return line


def thin(line: Line, points: int = POINTS) -> Line:
    """Return a line of about ``points`` points at most that keeps its ends and every extreme.

    The line is cut into pieces of equal number of points; of each those points stay where the mean is least and greatest, the
    low end least and the high end greatest.
    """
    length = len(line.x)
    if length <= points:
        return line
    pieces = max(1, points // 4)
    keep = {0, length - 1}
    for piece in range(pieces):
        inside = range(piece * length // pieces, (piece + 1) * length // pieces)
        keep |= {min(inside, key=line.mean.__getitem__), max(inside, key=line.mean.__getitem__)}
        keep |= {min(inside, key=line.low.__getitem__), max(inside, key=line.high.__getitem__)}
    kept = sorted(keep)
    x, middle, low, high = ([values[i] for i in kept] for values in (line.x, line.mean, line.low, line.high))
    return Line(x, middle, low, high, line.seeds)
