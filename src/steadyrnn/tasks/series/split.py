"""Which steps are for training, for validation and for the test: by series, by group or by time."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from steadyrnn.errors import DataError

from ..hashing import Stream, permutation
from .problem import Problem
from .records import SeriesSet
from .settings import SeriesSettings

__all__ = ["PARTS", "Segments", "hold_out_end", "hold_out_series", "split_by_series", "split_by_time"]

PARTS = ("train", "validation", "test")
_FEWEST = 5
"""Series from which on a validation part says something."""


@dataclass(frozen=True)
class Segments:
    """Runs of successive steps, each of one series; steps of two parts never mix.

    Args:
        start: First row of each in the values of all series, (K,).
        stop: The row behind its last, (K,).
        series: Number of its series, (K,).
    """

    start: Tensor
    stop: Tensor
    series: Tensor

    @property
    def lengths(self) -> Tensor:
        """Steps of each, (K,)."""
        return self.stop - self.start

    @property
    def rows(self) -> Tensor:
        """All steps, in order, (S,)."""
        return torch.cat([torch.arange(a, b) for a, b in zip(self.start.tolist(), self.stop.tolist(), strict=True)])

    def __len__(self) -> int:
        return len(self.start)


def split_by_series(
    series: SeriesSet, problem: Problem, settings: SeriesSettings, labels: Tensor | None, given: int = 0
) -> dict[str, Segments]:
    """Return whole series for each part.

    Series of a group stay together. Otherwise each class is divided in the same proportions, as far as its series allow. What
    is drawn depends on ``settings.seed``, the names of groups and the order of series alone.

    Args:
        series: All of them, those of a test file last.
        problem: What is asked.
        settings: Fractions, and the seed.
        labels: Class of each series; None where there are none.
        given: How many of the last series are the test; 0 draws some.

    Raises:
        DataError: There are too few series, or groups, for three parts.
    """
    count = series.count - given
    fractions = {"test": 0.0 if given else settings.test, "validation": 0.0 if settings.refit else settings.validation}
    if series.groups is not None:
        chosen = _draw_groups(series.groups[:count], fractions, settings.seed)
    else:
        chosen = _draw(labels[:count] if labels is not None else torch.zeros(count), fractions, settings.seed)
    if given:
        chosen["test"] = [*range(count, series.count)]
    _refuse_shared_groups(series, chosen)
    if settings.refit:
        chosen["validation"] = chosen["train"]
    for part in PARTS:
        if not chosen[part]:
            what = "groups" if series.groups is not None else "series"
            raise DataError(f"There are too few {what} to hold some out: none is left for the {part} part. Give more of them.")
    starts = series.starts
    return {
        part: Segments(starts[rows], starts[rows] + series.lengths[rows], rows)
        for part in PARTS
        for rows in [torch.tensor(sorted(chosen[part]))]
    }


def _draw(labels: Tensor, fractions: Mapping[str, float], seed: int) -> dict[str, list[int]]:
    """Divide the members of each class; rounding never takes the last one from training, or leaves a part empty."""
    order = permutation(seed, Stream.SYSTEM, len(labels)).tolist()
    members: dict[float, list[int]] = defaultdict(list)
    for row in order:
        members[float(labels[row])].append(row)
    chosen: dict[str, list[int]] = {part: [] for part in PARTS}
    owed = dict.fromkeys(fractions, 0.0)
    for _, rows in sorted(members.items()):
        rest = [*rows]
        for part, fraction in fractions.items():  # what one class lost by rounding, the next gives
            owed[part] += fraction * len(rows)
            taken = min(max(0, round(owed[part])), max(0, len(rest) - 1))
            owed[part] -= taken
            chosen[part] += rest[:taken]
            rest = rest[taken:]
        chosen["train"] += rest
    for part in (part for part, fraction in fractions.items() if fraction and not chosen[part]):
        held = Counter(float(labels[row]) for row in chosen["train"])
        spare = max(chosen["train"], key=lambda row: held[float(labels[row])])
        if held[float(labels[spare])] > 1:
            chosen["train"].remove(spare)
            chosen[part].append(spare)
    return chosen


def _draw_groups(groups: Sequence[str], fractions: Mapping[str, float], seed: int) -> dict[str, list[int]]:
    """Fill the parts with whole groups, in a drawn order, until each has its share of the series."""
    members: dict[str, list[int]] = defaultdict(list)
    for row, group in enumerate(groups):
        members[group].append(row)
    names = sorted(members)
    waiting = [names[place] for place in permutation(seed, Stream.SYSTEM, len(names)).tolist()]
    chosen: dict[str, list[int]] = {part: [] for part in PARTS}
    kept = sum(map(bool, fractions.values()))  # one group each for the parts that follow
    for part, fraction in fractions.items():
        while fraction and len(waiting) > kept and len(chosen[part]) < fraction * len(groups):
            chosen[part] += members[waiting.pop()]
        kept -= bool(fraction)
    for name in waiting:
        chosen["train"] += members[name]
    return chosen


def _refuse_shared_groups(series: SeriesSet, chosen: Mapping[str, Sequence[int]]) -> None:
    """Refuse a test file that has a group of the others."""
    if series.groups is None:
        return
    found = {part: {series.groups[row] for row in rows} for part, rows in chosen.items()}
    shared = sorted(found["test"] & (found["train"] | found["validation"]))
    if shared:
        raise DataError(f"The group {shared[0]!r} is among the test series and among the others; it must not be in both.")


def split_by_time(series: SeriesSet, problem: Problem, settings: SeriesSettings, given: int = 0) -> dict[str, Segments]:
    """Return the steps before a first date for training, those before a second for validation, the rest for the test.

    With a column of times and several series, the dates are the same for all of them. Otherwise they are fractions of each
    series. A series with one target belongs to the part in which it lies as a whole; one across a date is left out.

    Args:
        series: All of them, those of a test file last.
        problem: What is asked.
        settings: Fractions.
        given: How many of the last series are the test.

    Raises:
        DataError: A part has no step.
    """
    count = series.count - given
    test = 0.0 if given else settings.test
    edges = _edges(series, count, 1 - test - settings.validation, 1 - test)
    starts, stops = series.starts, series.starts + series.lengths
    if given:  # the last date is of validation, too
        edges[:, 1] = stops[:count]
    pieces: dict[str, list[tuple[int, int, int]]] = {part: [] for part in PARTS}
    of_steps = problem.each or problem.kind == "forecasting"
    for row in range(count):
        start, stop = int(starts[row]), int(stops[row])
        cuts = [start, *(min(max(int(edge), start), stop) for edge in edges[row]), stop]
        for part, (a, b) in zip(PARTS, pairwise(cuts), strict=True):
            if b > a and (of_steps or (a, b) == (start, stop)):
                pieces[part].append((a, b, row))
    if given:
        pieces["test"] = [(int(starts[row]), int(stops[row]), row) for row in range(count, series.count)]
    for part in PARTS:
        if not pieces[part]:
            raise DataError(f"A split by time leaves nothing for the {part} part{_remedy(count, of_steps)}")
    return {part: Segments(*torch.tensor(rows).unbind(1)) for part, rows in pieces.items()}


def _remedy(count: int, of_steps: bool) -> str:
    """Return why a part may be empty, and what helps."""
    if of_steps:
        return ". Give more steps, or other fractions, `validation` and `test`."
    return f": none of the {count} series, which have one target each, lies in it as a whole. Give more series."


def _edges(series: SeriesSet, count: int, first: float, second: float) -> Tensor:
    """Return the rows at which validation and test begin, of each series, (N, 2)."""
    starts, lengths = series.starts[:count], series.lengths[:count]
    if series.times is None or count == 1:
        return torch.stack([starts + (fraction * lengths).round().long() for fraction in (first, second)], 1)
    rows = int(lengths.sum())
    times = series.times[:rows]
    ordered = times.sort().values
    dates = [ordered[min(round(fraction * rows), rows - 1)] for fraction in (first, second)]
    return torch.tensor(
        [
            [int(a) + int(torch.searchsorted(times[int(a) : int(a + n)], date)) for date in dates]
            for a, n in zip(starts, lengths, strict=True)
        ]
    )


def hold_out_series(series: SeriesSet, labels: Tensor | None, fraction: float, seed: int) -> dict[str, Segments]:
    """Return all series for training but a fraction of each class for validation, which serves as the test as well.

    Where that would be fewer than five series, all of them are in each part: a score of so few says nothing.

    Args:
        series: The series.
        labels: Class of each series; None where there are none.
        fraction: For validation, from 0 and below 1.
        seed: Numbers the drawn order.
    """
    count = series.count
    chosen = _draw(labels if labels is not None else torch.zeros(count), {"validation": fraction}, seed)
    if len(chosen["validation"]) < _FEWEST:
        chosen = {"train": [*range(count)], "validation": [*range(count)]}
    starts = series.starts
    train, held = (
        Segments(starts[rows], starts[rows] + series.lengths[rows], rows)
        for part in ("train", "validation")
        for rows in [torch.tensor(sorted(chosen[part]))]
    )
    return {"train": train, "validation": held, "test": held}


def hold_out_end(series: SeriesSet, problem: Problem, fraction: float) -> dict[str, Segments]:
    """Return all steps for training but a fraction at the end of each series for validation, which serves as the test as well.

    Windows of the validation part begin before its first step, so that its first forecast is of its first step. Where no end
    has a forecast, or no beginning a whole example, all steps are in each part.

    Args:
        series: The series.
        problem: A forecast.
        fraction: For validation, from 0 and below 1.
    """
    starts, lengths = series.starts, series.lengths
    stops, window = starts + lengths, problem.window or 1
    cut = stops - (fraction * lengths).round().long()
    begin = torch.maximum(starts, cut - window)
    rows = torch.arange(series.count)
    held, kept = stops - begin >= window + problem.horizon, cut > starts
    held &= cut < stops
    if not bool(held.any()) or int((cut - starts).max()) < window + problem.horizon:
        every = Segments(starts, stops, rows)
        return {"train": every, "validation": every, "test": every}
    train, ends = Segments(starts[kept], cut[kept], rows[kept]), Segments(begin[held], stops[held], rows[held])
    return {"train": train, "validation": ends, "test": ends}
