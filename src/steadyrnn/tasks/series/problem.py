"""What is asked of some series: classes, numbers or the future, of each series, of each step or of windows."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from steadyrnn.errors import ArgumentError, DataError, not_among

from ..reshape import features_per_step
from .listed_names import split_names
from .records import RawTarget, SeriesSet
from .settings import SeriesSettings

__all__ = ["KINDS", "Problem", "check_words", "class_codes", "find_problem"]

KINDS = ("classification", "regression", "forecasting")
_FEW, _MANY, _OFTEN = 20, 200, 5
"""Whole numbers are classes, unless the user says otherwise, if there are at most 20 different ones, or at most 200 and each
comes five times on average."""
_STEPS = {"classification": 128, "regression": 128, "forecasting": 64}
"""Steps up to which a network reads series of several channels, or windows, one by one."""
_WINDOW = 200
_SHORT = 0.1
"""Share of the series that may be too short for a usual window and what is to be forecast."""


@dataclass(frozen=True)
class Problem:
    """What is to be predicted from what.

    Args:
        kind: Of :data:`KINDS`.
        each: Whether every step has a target; else the last step of a series or window answers.
        outputs: Names of the classes, or of the numbers to predict, in the order of the network's outputs.
        horizon: Steps to forecast, 0 for the other kinds.
        window: Steps of a window; None reads whole series.
        stride: Steps from one training window to the next.
        bptt: Steps of truncated backpropagation; None where the state is not carried along.
        patch: Steps that are read at once.
        by_time: Whether parts are split by time; else by series.
        reasons: How this came about, a sentence each.
    """

    kind: str
    each: bool
    outputs: tuple[str, ...]
    horizon: int = 0
    window: int | None = None
    stride: int = 1
    bptt: int | None = None
    patch: int = 1
    by_time: bool = False
    reasons: tuple[str, ...] = ()


def find_problem(
    series: SeriesSet, settings: SeriesSettings, classes: tuple[str, ...] | None = None, divided: bool = False
) -> Problem:
    """Return what the settings ask of some series; what they leave open is chosen, with a reason.

    Args:
        series: As they were read.
        settings: As the user gave them.
        classes: All classes there are, in order; None: those of the target.
        divided: Whether training, validation and test are known already; else the settings say how they are split.

    Raises:
        ArgumentError: Settings contradict each other or the series.
        DataError: There is one class only, or nothing to predict.
    """
    check_words(settings)
    problem = _find_kind(series, settings, classes)
    if not divided:
        problem = _find_split(series, settings, problem)
    problem = _find_reading(series, settings, problem)
    return _find_patch(series, settings, problem)


def class_codes(target: RawTarget, classes: tuple[str, ...], where: str) -> Tensor:
    """Return the number of each label among the classes, int64.

    Raises:
        DataError: A label is not among them; ``where`` says of what.
    """
    place = {name: number for number, name in enumerate(classes)}
    labels = _labels(target)
    unknown = next((label for label in labels if label not in place), None)
    if unknown is not None:
        raise DataError(f"{where} has the class {unknown!r}, but the network knows {', '.join(classes[:20])} only.")
    return torch.tensor([place[label] for label in labels])


def _labels(target: RawTarget) -> list[str]:
    """Return a target as texts; whole numbers are written as such."""
    if target.texts is not None:
        return [*target.texts]
    numbers: Tensor = torch.zeros(0, 1) if target.numbers is None else target.numbers
    return [_number_word(value) for value in numbers[:, 0].tolist()]


def _number_word(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def check_words(settings: SeriesSettings) -> None:
    """Refuse words that are not known, and numbers out of range."""
    words = {
        "kind": ("auto", *KINDS), "split": ("auto", "series", "time"), "missing": ("refuse", "interpolate", "mask"),
        "scale": ("standard", "none"), "weights": ("none", "balanced"), "layout": ("auto", "long", "rows"),
        "parallel": ("none", "ranks"),
    }  # fmt: skip
    for name, known in words.items():
        if getattr(settings, name) not in known:
            raise ArgumentError(not_among(name, getattr(settings, name), known))
    for name in ("horizon", "window", "stride", "bptt", "patch"):
        value = getattr(settings, name)
        if value is not None and value < 1:
            raise ArgumentError(f"`{name}` must be at least 1, but is {value}.")
    for name in ("validation", "test"):
        value = getattr(settings, name)
        if not 0 < value < 1:
            raise ArgumentError(f"`{name}` must be a fraction between 0 and 1, but is {value}.")
    if settings.validation + settings.test >= 1:
        total = settings.validation + settings.test
        raise ArgumentError(f"`validation` and `test` must leave something to train on, but their sum is {total:g}.")


def _find_kind(series: SeriesSet, settings: SeriesSettings, known: tuple[str, ...] | None) -> Problem:
    kind, target = settings.kind, series.target
    if kind == "forecasting" or (kind == "auto" and settings.horizon is not None):
        return _forecasting(series, settings)
    if settings.horizon is not None:
        raise ArgumentError(f"`horizon` belongs to forecasting, but `kind` is {kind!r}. Leave one of them out.")
    if target is None:
        raise ArgumentError(
            "`target` must name the columns to predict, but is not given. There are "
            f"{_listed(series.channels)}. To forecast the series themselves give `horizon`, the number of steps."
        )
    whole = target.numbers is not None and bool((target.numbers == target.numbers.round()).all())
    values = [] if target.numbers is None else target.numbers.unique(dim=0).tolist()
    if kind == "auto":
        often = target.numbers is not None and len(target.numbers) >= _OFTEN * len(values) and len(values) <= _MANY
        few = whole and len(target.names) == 1 and (len(values) <= _FEW or often)
        kind = "classification" if few or target.texts is not None else "regression"
    if kind == "regression":
        if settings.weights != "none":
            raise ArgumentError("`weights` belongs to classification, but the target is read as numbers (`kind` regression).")
        return _regression(target)
    if target.texts is None and not (whole and len(target.names) == 1):
        raise ArgumentError(
            f"`kind` is 'classification', but the target {_listed(target.names)} holds numbers that are not whole, or several "
            "columns. Use `kind` 'regression'."
        )
    return _classification(target, len(values), known)


def _classification(target: RawTarget, distinct: int, known: tuple[str, ...] | None) -> Problem:
    names = {*_labels(target)} if known is None else {*known}
    classes = known or tuple(sorted(names) if target.texts is not None else sorted(names, key=float))
    if len(classes) < 2:
        raise DataError(f"The target {target.names[0]!r} has one class only, {classes[0]!r}: there is nothing to tell apart.")
    what = "text" if target.texts is not None else f"{distinct} different whole numbers"
    where = "every step" if target.each else "each series"
    reason = f"classification: the target {target.names[0]!r} holds {what}, one for {where}"
    return Problem("classification", target.each, classes, reasons=(reason,))


def _regression(target: RawTarget) -> Problem:
    if target.numbers is None:
        raise ArgumentError(f"`kind` is 'regression', but the target {target.names[0]!r} holds text. Use 'classification'.")
    where = "every step" if target.each else "each series"
    return Problem(
        "regression", target.each, target.names, reasons=(f"regression: {_listed(target.names)} as numbers of {where}",)
    )


def _forecasting(series: SeriesSet, settings: SeriesSettings) -> Problem:
    horizon = 1 if settings.horizon is None else settings.horizon
    wanted = tuple(split_names(settings.target, series.channels)) or series.channels
    unknown = next((name for name in wanted if name not in series.channels), None)
    if unknown is not None:
        raise ArgumentError(not_among("target", unknown, series.channels))
    if settings.weights != "none":
        raise ArgumentError("`weights` belongs to classification, but the task is to forecast.")
    reason = f"forecasting: the next {_count(horizon, 'step')} of {_listed(wanted)}"
    outputs = wanted if horizon == 1 else tuple(f"{name}+{step}" for step in range(1, horizon + 1) for name in wanted)
    return Problem("forecasting", False, outputs, horizon, reasons=(reason,))


def _find_split(series: SeriesSet, settings: SeriesSettings, problem: Problem) -> Problem:
    several = series.count >= (3 if settings.test_data is None else 2)
    of_steps = problem.each or problem.kind == "forecasting"
    if series.groups is not None and settings.split == "time":
        raise ArgumentError("`group` and a split by time cannot both be given: groups would be divided.")
    by_time = settings.split == "time" or (settings.split == "auto" and series.groups is None and (of_steps or not several))
    if not by_time and not several:
        raise ArgumentError(f"`split` is by series, but there are {series.count}. Use `split` 'time'.")
    if by_time and not of_steps and series.times is None:
        why = "one target for each series" if several else f"only {_count(series.count, 'series')}, with one target"
        raise ArgumentError(f"A split by time needs the column of times, `time`, where there is {why}.")
    if by_time and settings.refit:
        raise ArgumentError("`refit` needs a split by series; a split by time holds the validation part out.")
    how = "by time: training, then validation, then test" if by_time else "by series"
    if settings.refit:
        how += "; none is held out for validation, whose scores are those of the training series"
    if series.groups is not None:
        how += f", with whole groups ({len({*series.groups})} of them)"
    return replace(problem, by_time=by_time, reasons=(*problem.reasons, f"split {how}"))


def _find_reading(series: SeriesSet, settings: SeriesSettings, problem: Problem) -> Problem:
    """Choose between whole series, windows and truncated backpropagation."""
    of_steps = problem.each or problem.kind == "forecasting"
    if settings.bptt is not None:
        if not of_steps:
            raise ArgumentError("`bptt` needs a target at every step, or a forecast, but each series has one target.")
        if settings.window is not None or settings.stride is not None:
            raise ArgumentError("`bptt` and `window` (or `stride`) cannot both be given: long series are read in one way.")
        reason = f"state carried along the series, gradients through {settings.bptt} steps"
        return replace(problem, each=True, bptt=settings.bptt, reasons=(*problem.reasons, reason))
    if not of_steps:
        for name in ("window", "stride"):
            if getattr(settings, name) is not None:
                raise ArgumentError(f"`{name}` needs a target at every step, or a forecast, but each series has one target.")
        return problem
    held_out = min(settings.validation, 1.0 if settings.test_data is not None else settings.test) if problem.by_time else 1.0
    forecast = problem.kind == "forecasting"  # shorter runs are left out there; elsewhere they are shorter windows
    length = series.lengths.double().quantile(_SHORT) if forecast else series.lengths.max()
    available = max(2, int(float(length) * held_out))
    ahead = min(max(8 * problem.horizon, 32), 512, max(1, available // 2 - problem.horizon))
    usual = ahead if forecast else min(_WINDOW, available)
    window = usual if settings.window is None else settings.window
    stride = settings.stride or max(1, window // (10 if forecast else 2))
    reason = f"windows of {_count(window, 'step')}, one every {_count(stride, 'step')} in training"
    return replace(problem, window=window, stride=stride, reasons=(*problem.reasons, reason))


def _find_patch(series: SeriesSet, settings: SeriesSettings, problem: Problem) -> Problem:
    """Choose how many steps are read at once."""
    if problem.each:
        if settings.patch not in (None, 1):
            raise ArgumentError("`patch` must be 1 where every step has a target.")
        return problem
    length = problem.window or int(series.lengths.double().median())
    if settings.patch is not None:
        patch = settings.patch
    elif len(series.channels) == 1 and problem.window is None:
        even = int(series.lengths.min()) == int(series.lengths.max())
        patch = features_per_step(length) if even else 1
        patch = patch if patch > 1 else max(1, round(length**0.5 / 2))
    else:
        patch = -(-length // _STEPS[problem.kind])
    if patch > length:
        raise ArgumentError(f"`patch` must be at most {length}, the usual length of a series, but is {patch}.")
    reasons = problem.reasons if patch == 1 else (*problem.reasons, f"the network reads {patch} steps at once")
    return replace(problem, patch=patch, reasons=reasons)


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names[:8])) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 or what == "series" else "s")
