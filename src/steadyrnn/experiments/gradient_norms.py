"""Judges of derivatives between states while a network trains, and their pictures: Figure 4 of Lin and Wang; free of torch."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, pstdev
from typing import Any

from .base import Judgement, judge_numbers
from .curves import Axis, Line, Mark, Panel

__all__ = [
    *("draw_norms", "judge_band", "judge_constant_norm", "judge_dead_units", "judge_decay", "judge_fluctuation"),
    *("judge_larger_norms", "predict_band"),
]

_LABELS = {"rnn": "RNN", "urnn": "uRNN"}

_ROUNDING = 1e-4
"""Share by which a norm may miss a bound: a float32 weight is orthogonal up to some 2e-6, and 50 factors add up."""


def predict_band(width: int, slope: float, lag: int) -> dict[str, float]:
    """Return the bounds of the Frobenius norm of dx_t/dx_1 in a network with an orthogonal weight.

    A product of ``lag`` orthogonal matrices and diagonal ones with entries from ``slope`` to 1, in absolute value, has singular
    values from slope^lag to 1, so its norm is from sqrt(width) slope^lag to sqrt(width).

    Example:
        >>> predict_band(100, 1.0, 29)
        {'low': 10.0, 'high': 10.0}
    """
    return {"low": math.sqrt(width) * slope**lag, "high": math.sqrt(width)}


def judge_constant_norm(cells: Mapping[str, Any], model: str, band: str, deviation: float) -> Judgement:
    """Judge that the norm is the predicted one in every batch at every time: the difference is of the order of ``deviation``.

    Args:
        cells: Numbers by name.
        model: The series.
        band: The cell of :func:`predict_band`, whose bounds are equal.
        deviation: As printed.

    Example:
        >>> record = {"step": 0, "value": {"mean": 2.0, "lag": 5, "batches": [2.00002, 2.0]}}
        >>> runs = {"a/seed0": {"probes": {"state-jacobian": [record]}}, "band": predict_band(4, 1.0, 5)}
        >>> judge_constant_norm(runs, "a", "band", 1e-5).verdict
        'seen'
    """
    predicted, runs = cells[band]["high"], _norms(cells, model)
    if not all(runs):
        return Judgement("not seen", f"a run of {model} diverged", seeds=len(runs))
    furthest = [max(abs(norm - predicted) for record in run for norm in record["value"]["batches"]) for run in runs]
    text = f"{predicted:.4g} at all {sum(map(len, runs))} times, up to {max(furthest):.1g}"
    return judge_numbers("seen" if max(furthest) < 10 * deviation else "not seen", text, furthest, "largest difference")


def judge_band(cells: Mapping[str, Any], model: str, band: str) -> Judgement:
    """Judge that every norm is in the predicted band, up to rounding.

    Example:
        >>> record = {"step": 0, "value": {"mean": 1.5, "lag": 1, "batches": [1.5]}}
        >>> runs = {"a/seed0": {"probes": {"state-jacobian": [record]}}, "band": predict_band(4, 0.5, 1)}
        >>> judge_band(runs, "a", "band").ours
        '1.5 to 1.5, between 1 and 2'
    """
    low, high = cells[band]["low"], cells[band]["high"]
    runs = _norms(cells, model)
    if not all(runs):
        return Judgement("not seen", f"a run of {model} diverged", seeds=len(runs))
    norms = [norm for run in runs for record in run for norm in record["value"]["batches"]]
    inside = low * (1 - _ROUNDING) <= min(norms) and max(norms) <= high * (1 + _ROUNDING)
    text = f"{min(norms):.4g} to {max(norms):.4g}, {'between' if inside else 'not between'} {low:.4g} and {high:.4g}"
    return Judgement("seen" if inside else "not seen", text, seeds=len(runs))


def judge_larger_norms(
    cells: Mapping[str, Any], first: str, then: str, steps: Sequence[int], factor: float
) -> Judgement:  # fmt: skip
    """Judge that mean norms of ``first`` are ``factor`` times those of ``then``, or more, at all of some steps.

    Example:
        >>> small, large = ([{"step": 1, "value": {"mean": x, "lag": 1, "batches": [x]}}] for x in (0.01, 2.0))
        >>> runs = {"a/seed0": {"probes": {"state-jacobian": large}}, "b/seed0": {"probes": {"state-jacobian": small}}}
        >>> judge_larger_norms(runs, "a", "b", [1], 100.0).ours
        '200 times after 1 steps'
    """
    lost = _find_lost(cells, (first, then), steps)
    if lost is not None:
        return lost
    ratios = {}
    for step in steps:
        over, under = (fmean(map(fmean, _batches_at(cells, model, step))) for model in (first, then))
        ratios[step] = over / under if under > 0 else math.inf if over > 0 else 1.0
    text = "; ".join(f"{ratio:.3g} times after {step} steps" for step, ratio in ratios.items())
    seen = all(ratio >= factor for ratio in ratios.values())
    return Judgement("seen" if seen else "not seen", text, seeds=len(_norms(cells, first)))


def judge_decay(cells: Mapping[str, Any], models: Sequence[str], steps: Sequence[int]) -> Judgement:
    """Judge that the mean norm of each of some series is smaller at the last of some steps than at the first.

    Example:
        >>> records = [{"step": x, "value": {"mean": 1 / x, "lag": 1, "batches": [1 / x]}} for x in (1, 2)]
        >>> judge_decay({"a/seed0": {"probes": {"state-jacobian": records}}}, ["a"], [1, 2]).ours
        'a 1 to 0.5'
    """
    lost = _find_lost(cells, models, steps)
    if lost is not None:
        return lost
    ends = {
        model: [fmean(map(fmean, _batches_at(cells, model, step))) for step in (steps[0], steps[-1])] for model in models
    }  # fmt: skip
    text = "; ".join(f"{model} {early:.3g} to {late:.3g}" for model, (early, late) in ends.items())
    seen = all(late < early for early, late in ends.values())
    return Judgement("seen" if seen else "not seen", text, seeds=len(_norms(cells, models[0])))


def judge_fluctuation(cells: Mapping[str, Any], steady: str, other: str, step: int) -> Judgement:
    """Judge that norms vary over the batches at a step in the series ``other``, a hundred times more than in ``steady``.

    Example:
        >>> one, two = ([{"step": 1, "value": {"mean": 2, "lag": 1, "batches": [2.0, x]}}] for x in (2.0, 3.0))
        >>> runs = {"a/seed0": {"probes": {"state-jacobian": one}}, "b/seed0": {"probes": {"state-jacobian": two}}}
        >>> judge_fluctuation(runs, "a", "b", 1).verdict
        'seen'
    """
    lost = _find_lost(cells, (steady, other), (step,))
    if lost is not None:
        return lost
    spreads = {model: fmean(map(_vary, _batches_at(cells, model, step))) for model in (steady, other)}
    text = "; ".join(f"{model} {spread:.2g} of the mean" for model, spread in spreads.items())
    seen = spreads[other] > 0 and spreads[other] > 100 * spreads[steady]
    return Judgement("seen" if seen else "not seen", text, seeds=len(_norms(cells, other)))


def judge_dead_units(cells: Mapping[str, Any], model: str, step: int, share: float) -> Judgement:
    """Judge that more than a share of the units pass no gradient on at a step.

    Example:
        >>> record = {"step": 9, "value": {"dead": 0.75, "inactive": 0.9}}
        >>> judge_dead_units({"a/seed0": {"probes": {"dead-units": [record]}}}, "a", 9, 0.5).ours
        '75 % of the units'
    """
    runs = [cell["probes"].get("dead-units", []) for cell in _runs(cells, model)]
    shares = [record["value"]["dead"] for run in runs for record in run if record["step"] == step]
    if len(shares) < len(runs):
        return Judgement("not seen", f"a run of {model} diverged", seeds=len(runs))
    mean = fmean(shares)
    return judge_numbers("seen" if mean > share else "not seen", f"{100 * mean:.3g} % of the units", shares, "share")


def draw_norms(cells: Mapping[str, Any]) -> list[Panel]:
    """Return a panel per activation: the norm in each batch, time after time, with the predicted band; 0 is a gap."""
    panels: dict[str, list[Line]] = {}
    for name, cell in cells.items():
        model, activation = name.split("/")[:2]
        records = [record for record in cell.get("probes", {}).get("state-jacobian", []) if record["value"]]
        points = [(record["step"], norm or None) for record in records for norm in record["value"]["batches"]]
        if points:
            x, y = zip(*points, strict=True)
            panels.setdefault(activation, []).append(Line(_LABELS[model], x, y, style="points"))
    return [
        Panel(activation, Axis("step"), Axis("norm of dx_t/dx_1", "log"), lines, _mark(cells.get(f"band/{activation}", {})))
        for activation, lines in panels.items()
    ]


def _mark(band: Mapping[str, float]) -> list[Mark]:
    """Return the ends of a band; a lower bound of 0 has no place on the axis."""
    return [Mark(f"uRNN, {name}est possible", y=value) for name, value in band.items() if value > 0]


def _runs(cells: Mapping[str, Any], model: str) -> list[Mapping[str, Any]]:
    return [cell for name, cell in cells.items() if name.startswith(f"{model}/seed")]


def _norms(cells: Mapping[str, Any], model: str) -> list[list[dict[str, Any]]]:
    """Return what was measured of each seed, a record per time."""
    found = [cell["probes"].get("state-jacobian", []) for cell in _runs(cells, model)]
    return [[record for record in run if record["value"]] for run in found]


def _batches_at(cells: Mapping[str, Any], model: str, step: int) -> list[list[float]]:
    """Return the norms of all batches at a step, of each seed that came so far."""
    return [record["value"]["batches"] for run in _norms(cells, model) for record in run if record["step"] == step]


def _find_lost(cells: Mapping[str, Any], models: Sequence[str], steps: Sequence[int]) -> Judgement | None:
    """Return the judgement of a series with a run that diverged before one of the steps; None where all came so far."""
    for model in models:
        runs = len(_runs(cells, model))
        if any(len(_batches_at(cells, model, step)) < runs for step in steps):
            return Judgement("not seen", f"a run of {model} diverged", seeds=runs)
    return None


def _vary(norms: Sequence[float]) -> float:
    """Return standard deviation over mean, 0 where all are 0."""
    return pstdev(norms) / fmean(norms) if fmean(norms) > 0 else 0.0
