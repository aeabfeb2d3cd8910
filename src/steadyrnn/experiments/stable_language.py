"""Section 7.2 of Miller and Hardt: does it hurt a language model that it is kept stable? Judges and picture; free of torch."""

from collections.abc import Mapping
from typing import Any

from .base import Judgement, judge_numbers
from .curves import Axis, Panel, mean_curve
from .scores import collect_scores, mean_score

__all__ = ["judge_certified", "judge_unhurt", "show_validation"]


def judge_unhurt(cells: Mapping[str, Any], stable: str, free: str, most: float) -> Judgement:
    """Judge that a stable network has a perplexity of at most ``1 + most`` times that of an unconstrained one.

    Example:
        >>> runs = {"s/seed0": {"test": {"perplexity": 99.0}}, "f/seed0": {"test": {"perplexity": 100.0}}}
        >>> judge_unhurt(runs, "s", "f", 0.02).ours
        's 99, f 100: the stable one is 1 % lower'
    """
    scores = [collect_scores(cells, model, "perplexity") for model in (stable, free)]
    means = [mean_score(found) for found in scores]
    if means[0] is None or means[1] is None:
        return Judgement("not seen", "a run diverged", seeds=len(scores[0]))
    ratio = means[0] / means[1]
    word = "lower" if ratio < 1 else "higher"
    text = f"{stable} {means[0]:.4g}, {free} {means[1]:.4g}: the stable one is {100 * abs(ratio - 1):.2g} % {word}"
    ratios = [one / other for one, other in zip(*scores, strict=True) if one is not None and other is not None]
    return judge_numbers("seen" if ratio <= 1 + most else "not seen", text, ratios, "ratio of perplexities")


def judge_certified(cells: Mapping[str, Any], model: str) -> Judgement:
    """Judge that the best weights of every seed are proven to be a contraction.

    Example:
        >>> judge_certified({"s/seed0": {"certificate": {"contraction": 0.9, "stable": True}}}, "s").ours
        'proven contraction of at most 0.9'
    """
    found = [cell["certificate"] for name, cell in cells.items() if name.startswith(f"{model}/seed")]
    proven = [one["contraction"] for one in found if one is not None and one["stable"]]
    if len(proven) < len(found) or not found:
        return Judgement(
            "not seen", f"{len(found) - len(proven)} of {len(found)} networks are not proven stable", seeds=len(found)
        )
    text = f"proven contraction of at most {max(proven):.4g}"
    return judge_numbers("seen" if max(proven) < 1 else "not seen", text, proven, "contraction")


def show_validation(cells: Mapping[str, Any]) -> list[Panel]:
    """Show the perplexity on the validation text during training, mean and spread over seeds, as far as all of them came."""
    series = dict.fromkeys(name.rpartition("/seed")[0] for name in cells)
    lines = []
    for model in series:
        own = [cell["curve"] for name, cell in cells.items() if name.startswith(f"{model}/seed")]
        line = mean_curve(model, [curve.get("validation perplexity", []) for curve in own])
        lines += [] if line is None else [line]
    return [Panel("Validation during training", Axis("optimizer step"), Axis("perplexity", "log"), lines)] if lines else []
