"""Series split, filled and scaled for a network, and what must be known to treat other series alike."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from steadyrnn.errors import DataError

from .examples import Flat
from .listed_names import split_names
from .problem import Problem, class_codes, find_problem
from .records import RawTarget, SeriesSet
from .scaling import Scaling, check_range, fill_missing, fit_scaling
from .settings import SeriesSettings
from .split import PARTS, Segments, split_by_series, split_by_time
from .targets import match_target

__all__ = ["Prepared", "has_few_held_out", "join", "prepare", "prepare_as", "prepare_parts"]


_FEWEST_HELD_OUT = 10


@dataclass(frozen=True)
class Prepared:
    """Series for a network.

    Args:
        series: All of them, those of a test file last.
        settings: As the user gave them.
        problem: What is asked.
        parts: Steps of training, validation and test.
        scaling: Of the channels.
        target_scaling: Of the numbers to predict; of classes nothing is scaled.
        flat: Scaled values and targets.
        class_weights: What the loss of each class is multiplied by; None: as the settings say.
    """

    series: SeriesSet
    settings: SeriesSettings
    problem: Problem
    parts: dict[str, Segments]
    scaling: Scaling
    target_scaling: Scaling
    flat: Flat
    class_weights: tuple[float, ...] | None = None

    @property
    def columns(self) -> list[int]:
        """Places of the channels to forecast."""
        return [self.series.channels.index(name) for name in _forecast_names(self.series, self.settings)]

    def facts(self) -> dict[str, Any]:
        """Return as JSON what was read, how it is divided, and how a series is prepared for the network."""
        problem, series = self.problem, self.series
        return {
            "files": [{"path": str(file.path), "size": file.size, "sha256": file.sha256} for file in series.files],
            "series": series.count,
            "parts": {part: {"runs": len(found), "steps": int(found.lengths.sum())} for part, found in self.parts.items()},
            "preparation": {
                **{"channels": [*series.channels], "scaling": self.scaling.to_dict(), "missing": self.settings.missing},
                **{"kind": problem.kind, "each": problem.each, "outputs": [*problem.outputs], "horizon": problem.horizon},
                **{"window": problem.window, "patch": problem.patch, "bptt": problem.bptt},
                "target_scaling": None if problem.kind == "classification" else self.target_scaling.to_dict(),
            },
            "reasons": [*series.notes, *problem.reasons],
        }


def prepare(series: SeriesSet, settings: SeriesSettings, test: SeriesSet | None = None) -> Prepared:
    """Split, fill and scale some series; statistics are those of the training part alone.

    Args:
        series: As they were read.
        settings: What is to be predicted, and how.
        test: Test series; None holds some out.
    """
    given = 0 if test is None else test.count
    problem = find_problem(series, settings)
    every = series if test is None else join(series, test)
    if problem.by_time:
        parts = split_by_time(every, problem, settings, given)
    else:
        classes = problem.kind == "classification" and not problem.each
        parts = split_by_series(every, problem, settings, _targets(every, problem, settings) if classes else None, given)
    said = (*_left_out(every, problem, parts), *_unseen(every, problem, settings, parts["train"]))
    return prepare_parts(every, settings, replace(problem, reasons=(*problem.reasons, *said)), parts)


def has_few_held_out(prepared: Prepared) -> bool:
    """Say whether fewer than 10 series are held out for validation, which tell networks apart by chance.

    It is better to train on them, with ``refit``. A split by time always holds some steps out.
    """
    if prepared.problem.by_time or prepared.settings.refit:
        return False
    return len(prepared.parts["validation"]) < _FEWEST_HELD_OUT


def prepare_parts(
    every: SeriesSet,
    settings: SeriesSettings,
    problem: Problem,
    parts: dict[str, Segments],
    scalings: tuple[Scaling, Scaling] | None = None,
    class_weights: tuple[float, ...] | None = None,
) -> Prepared:
    """Fill and scale series of which it is known what is for training.

    Args:
        every: All of them.
        settings: How they are scaled, and what becomes of missing values.
        problem: What is asked.
        parts: Training, validation and test.
        scalings: Of the channels and of the numbers to predict; None takes those of the training part.
        class_weights: See :class:`Prepared`.
    """
    target, used = _targets(every, problem, settings), _rows_of(parts["train"], len(every.values))
    scaling = fit_scaling(every.values, used, settings.scale, every.channels) if scalings is None else scalings[0]
    values = fill_missing(every, parts, scaling, settings.missing, problem.kind != "forecasting")
    if problem.kind == "classification":
        flat = Flat.of(values, target.long())
        return Prepared(every, settings, problem, parts, scaling, Scaling((), ()), flat, class_weights)
    if problem.kind == "forecasting":
        chosen = [every.channels.index(name) for name in _forecast_names(every, settings)]
        own = Scaling(tuple(scaling.mean[at] for at in chosen), tuple(scaling.deviation[at] for at in chosen))
        future = own.apply(every.values[:, chosen]).float()  # one that is missing stays so, and does not count
        return Prepared(every, settings, problem, parts, scaling, own, Flat.of(values, future))
    if scalings is None:
        counted = used if problem.each else _series_of(parts["train"], every.count)
        own = fit_scaling(target, counted, settings.scale, problem.outputs)
    else:
        own = scalings[1]
    scaled = own.apply(target).float()
    check_range(scaled, problem.outputs, "target")
    return Prepared(every, settings, problem, parts, scaling, own, Flat.of(values, scaled))


def prepare_as(series: SeriesSet, settings: SeriesSettings, preparation: Mapping[str, Any]) -> Prepared:
    """Prepare other series as those that a network was trained on: with its scaling, its classes and its way of reading.

    Nothing is held out: each part has all series.

    Args:
        series: As they were read.
        settings: Those that the network was trained with.
        preparation: What :meth:`Prepared.facts` noted.

    Raises:
        DataError: Channels or classes are not those of the network, or what was noted is damaged.
    """
    try:
        problem = Problem(
            str(preparation["kind"]), bool(preparation["each"]), tuple(map(str, preparation["outputs"])),
            int(preparation["horizon"]), preparation["window"], preparation["window"] or 1, preparation["bptt"],
            int(preparation["patch"]),
        )  # fmt: skip
        channels, scaling = tuple(preparation["channels"]), Scaling.from_dict(preparation["scaling"])
        noted = preparation["target_scaling"]
        own = Scaling((), ()) if noted is None else Scaling.from_dict(noted)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"What the run notes of its data is damaged: {error}.") from error
    if series.channels != channels:
        raise _wrong_channels(settings.test_data or "The series", channels, series.channels)
    series = match_target(series, problem.each)
    whole = Segments(series.starts, series.starts + series.lengths, torch.arange(series.count))
    parts = dict.fromkeys(PARTS, whole)
    return prepare_parts(series, settings, problem, parts, (scaling, own))


def join(first: SeriesSet, second: SeriesSet) -> SeriesSet:
    """Return the series of both, which must have the same channels and targets of the same kind.

    Raises:
        DataError: They do not.
    """
    if first.channels != second.channels:
        raise _wrong_channels(second.files[0].path if second.files else "The test series", first.channels, second.channels)
    if first.target is not None:
        second = match_target(second, first.target.each)
    target = _join_targets(first.target, second.target)
    both_times = first.times is not None and second.times is not None
    both_groups = first.groups is not None and second.groups is not None
    return SeriesSet(
        torch.cat([first.values, second.values]), torch.cat([first.lengths, second.lengths]), first.channels,
        (*first.names, *second.names), target,
        torch.cat([first.times, second.times]) if both_times else None,  # type: ignore[list-item]
        (*first.groups, *second.groups) if both_groups else None,  # type: ignore[misc]
        (*first.files, *second.files), first.notes,
    )  # fmt: skip


def _wrong_channels(where: object, wanted: Sequence[str], found: Sequence[str]) -> DataError:
    """Return the error about series whose channels are not those of the training."""
    missing = [name for name in wanted if name not in found]
    more = [name for name in found if name not in wanted]
    said = [f"{more[0]!r}"] if more else []
    said += [f"no {missing[0]!r}"] if missing else []
    how = f"has {' and '.join(said)}" if said else "has them in another order"
    return DataError(f"{where} must have the channels of the training series, {', '.join(wanted[:20])}, but {how}.")


def _join_targets(first: RawTarget | None, second: RawTarget | None) -> RawTarget | None:
    if first is None or second is None:
        if first is not second:
            raise DataError("The test series and the others must both have a target, but only one of them has.")
        return None
    if (first.names, first.each, first.texts is None) != (second.names, second.each, second.texts is None):
        raise DataError(
            f"The test series must have the target of the others, {', '.join(first.names)}, of the same kind, but do not."
        )
    texts = None if first.texts is None or second.texts is None else (*first.texts, *second.texts)
    numbers = None if first.numbers is None or second.numbers is None else torch.cat([first.numbers, second.numbers])
    return replace(first, texts=texts, numbers=numbers)


def _targets(every: SeriesSet, problem: Problem, settings: SeriesSettings) -> Tensor:
    """Return the targets as numbers: those of classes, or those to predict; of a forecast none."""
    target = every.target
    if problem.kind == "forecasting" or target is None:
        return torch.zeros(0)
    if problem.kind == "regression":
        if target.numbers is None:
            raise DataError(f"The target {', '.join(target.names)} must hold numbers, as in training, but holds text.")
        return target.numbers
    return class_codes(target, problem.outputs, f"`{settings.test_data or settings.data}`")


def _left_out(series: SeriesSet, problem: Problem, parts: Mapping[str, Segments]) -> list[str]:
    """Return what no part reads, a sentence each."""
    found = list[str]()
    lost = series.count - len(torch.cat([part.series for part in parts.values()]).unique())
    if lost:
        found.append(f"{lost:,} series across the dates of the split are left out")
    if problem.kind == "forecasting":
        needed = (problem.window or 1) + problem.horizon
        for name, part in parts.items():
            short = int((part.lengths < needed).sum())
            if short:
                found.append(
                    f"{short:,} of {len(part):,} runs of the {name} part are shorter than {needed:,} steps and left out"
                )
    return found


def _unseen(series: SeriesSet, problem: Problem, settings: SeriesSettings, train: Segments) -> list[str]:
    """Say which classes never come in training, so that no network can learn them."""
    if problem.kind != "classification":
        return []
    seen = _rows_of(train, len(series.values)) if problem.each else _series_of(train, series.count)
    counts = torch.bincount(_targets(series, problem, settings)[seen].long(), minlength=len(problem.outputs)).tolist()
    missing = [name for name, count in zip(problem.outputs, counts, strict=True) if count == 0]
    return [f"no network can learn these classes, which never come in training: {', '.join(missing[:20])}"] if missing else []


def _rows_of(segments: Segments, count: int) -> Tensor:
    """Return which of all rows lie in some segments, (S,)."""
    change = torch.zeros(count + 1, dtype=torch.int64)
    change.index_add_(0, segments.start, torch.ones_like(segments.start))
    change.index_add_(0, segments.stop, -torch.ones_like(segments.stop))
    return change[:-1].cumsum(0) > 0


def _series_of(segments: Segments, count: int) -> Tensor:
    """Return which of all series have a segment, (N,)."""
    found = torch.zeros(count, dtype=torch.bool)
    found[segments.series] = True
    return found


def _forecast_names(series: SeriesSet, settings: SeriesSettings) -> tuple[str, ...]:
    return tuple(split_names(settings.target, series.channels)) or series.channels
