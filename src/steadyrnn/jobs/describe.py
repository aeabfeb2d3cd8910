"""What is understood of a user's own data, before anything is trained."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from steadyrnn.errors import ArgumentError, DataError
from steadyrnn.tasks.series.prepared import Prepared, has_few_held_out, join, prepare
from steadyrnn.tasks.series.read import read_series, read_test_series
from steadyrnn.tasks.series.records import SeriesSet
from steadyrnn.tasks.series.settings import SeriesSettings
from steadyrnn.tasks.series.split import PARTS
from steadyrnn.tasks.series.task import task_from

__all__ = ["Channel", "Description", "Span", "describe_data"]


@dataclass(frozen=True)
class Span:
    """Smallest, middle and largest of some numbers."""

    smallest: float
    median: float
    largest: float


@dataclass(frozen=True)
class Channel:
    """A channel as the file has it: values that are there, and how many are missing."""

    name: str
    missing: int
    mean: float
    deviation: float
    smallest: float
    largest: float


@dataclass(frozen=True)
class Description:
    """What is understood of some data.

    Args:
        files: Path, size and SHA-256 of what was read.
        series: How many series there are.
        steps: Steps of all of them.
        lengths: Of the series.
        intervals: Between successive times of a series; None without a column of times.
        channels: The channels.
        notes: How the file was read, and what is asked, a sentence each.
        kind: What is to be predicted; None where that is open.
        parts: Of training, validation and test: series or runs of steps, steps, examples, and the number of each class.
        interface: Numbers that a network reads per step and gives; None where it is open what is to be predicted.
        problem: Why no network can be trained yet; None if one can.
    """

    files: tuple[Mapping[str, Any], ...]
    series: int
    steps: int
    lengths: Span
    intervals: Span | None
    channels: tuple[Channel, ...]
    notes: tuple[str, ...]
    kind: str | None
    parts: Mapping[str, Mapping[str, Any]]
    interface: Mapping[str, Any] | None
    problem: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return the form that JSON holds."""
        return asdict(self)


def describe_data(settings: SeriesSettings) -> Description:
    r"""Read a file of series and say how it is understood; missing values are counted, not refused.

    Args:
        settings: As training would get them; the target may be left open.

    Raises:
        DataError: The file cannot be read.

    Example:
        >>> from pathlib import Path
        >>> _ = Path("walk.csv").write_text("x,y\n" + "".join(f"{n},{n * n}\n" for n in range(30)))
        >>> found = describe_data(SeriesSettings(data="walk.csv"))
        >>> found.series, found.steps, [channel.name for channel in found.channels]
        (1, 30, ['x', 'y'])
    """
    lenient = replace(settings, missing="mask") if settings.missing == "refuse" else settings
    series = read_series(lenient)
    test = None if settings.test_data is None else read_test_series(lenient)
    prepared, problem, parts, interface = None, None, dict[str, dict[str, Any]](), None
    missing = sum(int(found.values.isnan().sum()) for found in (series, test) if found is not None)
    try:
        used = lenient if missing else settings
        prepared = prepare(series, used, test)
        if has_few_held_out(prepared) and settings.validation == SeriesSettings().validation:  # as training would
            prepared = prepare(series, replace(used, refit=True), test)
        parts, interface = _describe_parts(prepared)
        if missing and settings.missing == "refuse":
            problem = f"{missing:,} values are missing. Give `--missing interpolate` or `--missing mask`, or fill them in."
    except (ArgumentError, DataError) as error:
        problem = str(error)
    every = series if test is None else join(series, test)
    reasons = series.notes if prepared is None else (*series.notes, *prepared.problem.reasons)
    return Description(
        tuple({"path": str(file.path), "size": file.size, "sha256": file.sha256} for file in every.files), every.count,
        len(every.values), _span(every.lengths), _intervals(every), _channels(every), tuple(reasons),
        None if prepared is None else prepared.problem.kind, parts, interface, problem,
    )  # fmt: skip


def _span(numbers: Tensor) -> Span:
    ordered = numbers.double().sort().values
    return Span(float(ordered[0]), float(ordered[len(ordered) // 2]), float(ordered[-1]))


def _intervals(series: SeriesSet) -> Span | None:
    """Return the times between successive steps of a series."""
    if series.times is None:
        return None
    first = torch.zeros(len(series.values), dtype=torch.bool)
    first[series.starts] = True
    between = series.times.diff()[~first[1:]]
    return _span(between) if len(between) else None


def _channels(series: SeriesSet) -> tuple[Channel, ...]:
    found = []
    for place, name in enumerate(series.channels):
        column = series.values[:, place]
        there = column[~column.isnan()]
        if not len(there):
            found.append(Channel(name, len(column), *(float("nan"),) * 4))
            continue
        deviation = float(there.std(correction=0))
        missing = len(column) - len(there)
        found.append(Channel(name, missing, float(there.mean()), deviation, float(there.min()), float(there.max())))
    return tuple(found)


def _describe_parts(prepared: Prepared) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Return what each part holds, and what a network reads and gives."""
    task, problem = task_from(prepared), prepared.problem
    parts: dict[str, dict[str, Any]] = {}
    for part in PARTS:
        segments = prepared.parts[part]
        parts[part] = {"runs": len(segments), "steps": int(segments.lengths.sum())}
        if task.examples:
            parts[part]["examples"] = len(task.examples[part])
        if problem.kind == "classification":
            places = segments.rows if problem.each else segments.series  # windows overlap: each step counts once
            counts = torch.bincount(prepared.flat.target[places], minlength=len(problem.outputs)).tolist()
            parts[part]["classes"] = dict(zip(problem.outputs, counts, strict=True))
    return parts, asdict(task.interface)
