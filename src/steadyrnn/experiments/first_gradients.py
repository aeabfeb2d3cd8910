"""Judges of what was measured during training: the gradient by the initial state, and singular values; free of torch."""

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from .base import Judgement

__all__ = [
    *("VANISHED", "collect_gradients", "collect_margins", "judge_early", "judge_explosion", "judge_gradients", "judge_kept"),
    *("judge_leaving", "judge_slower", "judge_steady"),
]

VANISHED = 2.0**-24
"""The unit roundoff of float32: what is smaller is lost beside a gradient of size 1."""

_EARLY = 5
"""The early part of a run is one over this of its measurements."""


def collect_gradients(cells: Mapping[str, Any], model: str) -> list[list[float]]:
    """Return the norms of dL/dh_0 that were measured, one list per seed; infinite where it was no number.

    Example:
        >>> measured = [{"step": 0, "value": {"mean": 0.5}}, {"step": 10, "value": {}}]
        >>> collect_gradients({"rnn/seed0": {"probes": {"gradient-h0": measured}}}, "rnn")
        [[0.5, inf]]
    """
    return [[_finite(record["value"].get("mean")) for record in run] for run in _collect(cells, model, "gradient-h0")]


def collect_margins(cells: Mapping[str, Any], model: str) -> list[list[float]]:
    """Return the largest distances of a singular value from 1 that were measured, one list per seed."""
    return [
        [max((_finite(one) for one in record["value"].values()), default=math.inf) for record in run]
        for run in _collect(cells, model, "margin")
    ]


def _collect(cells: Mapping[str, Any], model: str, probe: str) -> list[list[dict[str, Any]]]:
    start = f"{model}/seed"
    runs = {int(name.removeprefix(start)): cell["probes"] for name, cell in cells.items() if name.startswith(start)}
    return [runs[seed].get(probe, []) for seed in sorted(runs)]


def _find_lost(runs: Mapping[str, Sequence[Sequence[float]]], least: int = 1) -> Judgement | None:
    """Return the judgement of series with a run that diverged before so many measurements; None where all came so far."""
    for model, own in runs.items():
        lost = sum(len(run) < least for run in own)
        if lost:
            return Judgement("not seen", f"{lost} of {len(own)} runs of {model} diverged", seeds=len(own))
    return None


def _finite(value: float | None) -> float:
    return math.inf if value is None or not math.isfinite(value) else value


def judge_gradients(cells: Mapping[str, Any], alive: Sequence[str], vanished: Sequence[str] = ()) -> Judgement:
    """Judge that dL/dh_0 does not vanish in some series, and does in others.

    Of each run the median over its measurements counts, of a series the median over seeds. Vanished is below
    :data:`VANISHED`. One that is not finite has not vanished, but does not count as alive.

    Example:
        >>> runs = {"a/seed0": {"probes": {"gradient-h0": [{"step": 0, "value": {"mean": 1e-9}}]}}}
        >>> judge_gradients(runs, alive=[], vanished=["a"]).verdict
        'seen'
    """
    runs = {model: collect_gradients(cells, model) for model in (*alive, *vanished)}
    if lost := _find_lost(runs):
        return lost
    typical = {model: median(median(run) for run in own) for model, own in runs.items()}
    lives = all(VANISHED <= typical[model] < math.inf for model in alive)
    seen = lives and all(typical[model] < VANISHED for model in vanished)
    return _judge(seen, typical, len(next(iter(runs.values()))))


def judge_early(cells: Mapping[str, Any], model: str) -> Judgement:
    """Judge that dL/dh_0 has vanished in the median of the first fifth of the measurements, in the median over seeds."""
    runs = collect_gradients(cells, model)
    if lost := _find_lost({model: runs}):
        return lost
    early = median(median(run[: max(1, len(run) // _EARLY)]) for run in runs)
    return _judge(early < VANISHED, {f"{model}, first fifth": early}, len(runs))


def judge_explosion(cells: Mapping[str, Any], model: str, steady: Sequence[str], factor: float = 10.0) -> Judgement:
    """Judge that dL/dh_0 of a series, after the first fifth, is ``factor`` times above the largest of the steady ones.

    Of each run the largest measurement counts, of a series the median over seeds.
    """
    runs = {one: collect_gradients(cells, one) for one in (model, *steady)}
    if lost := _find_lost(runs):
        return lost
    later = median(max(run[len(run) // _EARLY :]) for run in runs[model])
    others = {one: median(max(run) for run in runs[one]) for one in steady}
    largest = max(others.values())
    seen = math.isfinite(largest) and later >= factor * largest
    return _judge(seen, {f"{model}, later": later, **others}, len(runs[model]))


def judge_steady(cells: Mapping[str, Any], steady: Sequence[str], others: Sequence[str]) -> Judgement:
    """Judge that dL/dh_0 of some series changes by a smaller factor during training than that of all others.

    The factor is largest over smallest measurement of a run, of a series the median over seeds; from 0 it is infinite.
    """
    runs = {model: collect_gradients(cells, model) for model in (*steady, *others)}
    if lost := _find_lost(runs):
        return lost
    factors = {model: median(_factor(run) for run in own) for model, own in runs.items()}
    seen = max(factors[model] for model in steady) < min(factors[model] for model in others)
    return _judge(seen, factors, len(runs[steady[0]]))


def _factor(run: Sequence[float]) -> float:
    return max(run) / min(run) if min(run) > 0 and math.isfinite(max(run)) else math.inf


def judge_leaving(cells: Mapping[str, Any], model: str, start: float, end: float) -> Judgement:
    """Judge that a network starts orthogonal and is not after a tenth of the run.

    Args:
        cells: Numbers by name.
        model: The series.
        start: The first margin is at most this in every seed.
        end: After a tenth of the measurements it is above this in every seed.
    """
    runs = collect_margins(cells, model)
    if lost := _find_lost({model: runs}, least=2):
        return lost
    first, tenth = max(run[0] for run in runs), min(run[max(1, len(run) // 10)] for run in runs)
    return _judge(first <= start and tenth > end, {f"{model} at first": first, "after a tenth": tenth}, len(runs))


def judge_kept(cells: Mapping[str, Any], radii: Mapping[str, float], rounding: float) -> Judgement:
    """Judge that the singular values of each series stay within its radius around 1, except for rounding."""
    runs = {model: collect_margins(cells, model) for model in radii}
    if lost := _find_lost(runs):
        return lost
    largest = {model: max(max(run) for run in own) for model, own in runs.items()}
    seen = all(largest[model] <= radius + rounding for model, radius in radii.items())
    return _judge(seen, largest, len(next(iter(runs.values()))))


def judge_slower(cells: Mapping[str, Any], slow: str, fast: Sequence[str], level: float, factor: float = 2.0) -> Judgement:
    """Judge that a series needs ``factor`` times the steps of others until the validation loss is below a level.

    Of a series the median over seeds counts; a run that never gets there needs infinitely many.
    """
    steps = {model: median(_reach(cell, level) for cell in _runs(cells, model)) for model in (slow, *fast)}
    slowest = max(steps[model] for model in fast)
    seen = math.isfinite(slowest) and steps[slow] >= factor * slowest
    text = "; ".join(f"{model} {f'{count:g} steps' if math.isfinite(count) else 'never'}" for model, count in steps.items())
    return Judgement("seen" if seen else "not seen", text, seeds=len(_runs(cells, slow)))


def _runs(cells: Mapping[str, Any], model: str) -> list[Any]:
    return [cell for name, cell in cells.items() if name.startswith(f"{model}/seed")]


def _reach(cell: Mapping[str, Any], level: float) -> float:
    return next((float(step) for step, loss in cell["curve"].get("validation loss", ()) if loss < level), math.inf)


def _judge(seen: bool, numbers: Mapping[str, float], seeds: int) -> Judgement:
    text = "; ".join(f"{name} {value:.2g}" for name, value in numbers.items())
    return Judgement("seen" if seen else "not seen", text, seeds=seeds)
