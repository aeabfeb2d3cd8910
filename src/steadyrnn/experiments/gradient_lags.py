"""Figure 2 of Miller and Hardt: the gradient of the loss by earlier inputs, by lag. Judges and picture; free of torch."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from .base import Judgement, judge_numbers
from .curves import Axis, Panel, mean_line

__all__ = ["judge_slower", "judge_vanishing", "lag_of_fall", "show_lags"]


def lag_of_fall(means: Sequence[float | None], share: float) -> int | None:
    """Return the first lag at which the gradient is below a share of that at lag 1; None where it stays above.

    Args:
        means: Norms by lag from 0.
        share: Between 0 and 1.

    Example:
        >>> lag_of_fall([2.0, 1.0, 0.5, 0.25], 0.3), lag_of_fall([2.0, 1.0, 0.5, 0.25], 0.1)
        (3, None)
    """
    first = means[1]
    if first is None:
        return None
    return next((lag for lag, norm in enumerate(means) if lag > 0 and norm is not None and norm < share * first), None)


def judge_vanishing(cells: Mapping[str, Any], models: Sequence[str], share: float) -> Judgement:
    """Judge that gradients fall below a share of the first within the lags measured, in every measurement of every seed.

    Example:
        >>> flow = {"step": 0, "value": {"lag": [0, 1, 2], "mean": [1.0, 0.5, 0.001]}}
        >>> judge_vanishing({"rnn/seed0": {"probes": {"input-gradient": [flow]}}}, ["rnn"], 0.01).ours
        'below 0.01 of lag 1 at lag: rnn 2 (start), 2 (end), 2 at most'
    """
    parts, seen = [], True
    for model in models:
        runs = _falls(cells, model, share)
        known = [[lag for lag in run if lag is not None] for run in runs]
        if any(len(one) < len(run) for one, run in zip(known, runs, strict=True)) or not all(known):
            seen = False
            parts.append(f"{model} not in every measurement")
            continue
        starts, last = (fmean(run[place] for run in known) for place in (0, -1))
        parts.append(f"{model} {starts:.3g} (start), {last:.3g} (end), {max(max(run) for run in known)} at most")
    text = f"below {share:g} of lag 1 at lag: {'; '.join(parts)}"
    return Judgement("seen" if seen else "not seen", text, seeds=len(_means(cells, models[0])))


def judge_slower(cells: Mapping[str, Any], slow: str, fast: str) -> Judgement:
    """Judge that after training the gradients of one network fall more slowly: by a larger factor per step, to the last lag.

    Example:
        >>> runs = {"a/seed0": [1.0, 1.0, 0.5, 0.25], "b/seed0": [1.0, 1.0, 0.1, 0.01]}
        >>> cells = {name: {"probes": {"input-gradient": [{"value": {"mean": means}}]}} for name, means in runs.items()}
        >>> judge_slower(cells, "a", "b").ours
        'factor per step, from lag 1 to 3: a 0.5, b 0.1'
    """
    for model in (slow, fast):
        runs = _means(cells, model)
        lost = sum(not run or None in run[-1] or not run[-1][1] for run in runs)
        if lost:
            return Judgement("not seen", f"{lost} of {len(runs)} runs of {model} diverged", seeds=len(runs))
    ends = {model: [run[-1] for run in _means(cells, model)] for model in (slow, fast)}
    factors = {model: [_factor_per_step(means) for means in runs] for model, runs in ends.items()}
    words = ", ".join(f"{model} {fmean(found):.3g}" for model, found in factors.items())
    text = f"factor per step, from lag 1 to {len(ends[slow][0]) - 1}: {words}"
    later = fmean(factors[slow]) > fmean(factors[fast])
    return judge_numbers("seen" if later else "not seen", text, factors[slow], f"factor per step, {slow}")


def _factor_per_step(means: Sequence[float]) -> float:
    """Return the constant factor per step that leads from the norm at lag 1 to that at the last lag."""
    return float((means[-1] / means[1]) ** (1 / (len(means) - 2)))


def show_lags(cells: Mapping[str, Any]) -> list[Panel]:
    """Show the gradients by lag at the start, in the middle and at the end of training, one panel per network."""
    panels = []
    for model in dict.fromkeys(name.rpartition("/seed")[0] for name in cells if "/seed" in name):
        runs = _means(cells, model)
        count = min(len(run) for run in runs)
        lines = []
        for place in sorted({0, count // 2, count - 1}) if count else ():
            word = "before training" if place == 0 else f"after {place} of {count - 1} parts of training"
            curves = [([*range(1, len(run[place]))], run[place][1:]) for run in runs]
            lines.append(mean_line(word, curves).skip_zeros())
        if lines:
            panels.append(Panel(f"Gradient by inputs, {model}", Axis("lag i in steps"), Axis("norm", "log"), lines))
    return panels


def _means(cells: Mapping[str, Any], model: str) -> list[list[list[float]]]:
    """Return norms by lag, of each measurement of each seed."""
    found = [cell["probes"].get("input-gradient", []) for name, cell in cells.items() if name.startswith(f"{model}/seed")]
    return [[record["value"]["mean"] for record in run if record["value"]] for run in found]


def _falls(cells: Mapping[str, Any], model: str, share: float) -> list[list[int | None]]:
    return [[lag_of_fall(means, share) for means in run] for run in _means(cells, model)]
