"""From arrays to a task of which every part is known."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from steadyrnn.tasks.series.prepared import prepare_parts
from steadyrnn.tasks.series.problem import Problem, find_problem
from steadyrnn.tasks.series.records import RawTarget, SeriesSet
from steadyrnn.tasks.series.scaling import Scaling
from steadyrnn.tasks.series.settings import SeriesSettings
from steadyrnn.tasks.series.split import Segments, hold_out_end, hold_out_series
from steadyrnn.tasks.series.task import SeriesTask, task_from

__all__ = ["Learned", "channel_names", "make_set", "make_task", "make_task_alike", "whole"]


@dataclass(frozen=True)
class Learned:
    """What the first call of an estimator fixes, and later ones use again.

    Args:
        settings: How series are read.
        problem: What is asked.
        scaling: Of the channels.
        target_scaling: Of the numbers to predict.
        channels: Names of the channels.
    """

    settings: SeriesSettings
    problem: Problem
    scaling: Scaling
    target_scaling: Scaling
    channels: tuple[str, ...]


def channel_names(count: int) -> tuple[str, ...]:
    """Return the names of channels without names.

    Example:
        >>> channel_names(2)
        ('x0', 'x1')
    """
    return tuple(f"x{place}" for place in range(count))


def make_set(values: Sequence[NDArray[np.float64]], target: RawTarget | None) -> SeriesSet:
    """Return arrays (T_i, D) as one set of series."""
    lengths = torch.tensor([len(one) for one in values])
    stacked = torch.from_numpy(np.concatenate(values))
    return SeriesSet(stacked, lengths, channel_names(stacked.shape[1]), tuple(map(str, range(len(values)))), target)


def make_task(
    series: SeriesSet,
    settings: SeriesSettings,
    fraction: float,
    classes: tuple[str, ...] | None = None,
    class_weights: tuple[float, ...] | None = None,
) -> SeriesTask:
    """Return the task of some series, of which a fraction is held out for validation and none for a test.

    Args:
        series: All of them.
        settings: How they are read.
        fraction: For validation, from 0 and below 1.
        classes: All there are, in order.
        class_weights: What the loss of each class is multiplied by.
    """
    problem = find_problem(series, settings, classes, divided=True)
    if problem.kind == "forecasting":
        parts = hold_out_end(series, problem, fraction)
    else:
        parts = hold_out_series(series, _codes(series, classes), fraction, settings.seed)
    return task_from(prepare_parts(series, settings, problem, parts, class_weights=class_weights))


def make_task_alike(series: SeriesSet, learned: Learned, class_weights: tuple[float, ...] | None) -> SeriesTask:
    """Return the task of more series, which are prepared as those before; all of them are for training.

    Args:
        series: The series.
        learned: What was fixed before.
        class_weights: What the loss of each class is multiplied by.
    """
    every = whole(series)
    parts = {"train": every, "validation": every, "test": every}
    scalings = learned.scaling, learned.target_scaling
    return task_from(prepare_parts(series, learned.settings, learned.problem, parts, scalings, class_weights))


def whole(series: SeriesSet) -> Segments:
    """Return every series as one segment."""
    return Segments(series.starts, series.starts + series.lengths, torch.arange(series.count))


def _codes(series: SeriesSet, classes: tuple[str, ...] | None) -> Tensor | None:
    """Return the class of each series."""
    if classes is None or series.target is None or series.target.texts is None:
        return None
    place = {name: number for number, name in enumerate(classes)}
    return torch.tensor([place[text] for text in series.target.texts])
