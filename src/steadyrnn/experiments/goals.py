"""Judges of our own targets: a goal, a budget of parameters, the first place, a proof; free of torch."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from .base import Judgement, judge_numbers
from .scores import collect_scores, mean_score
from .stable_language import judge_certified

__all__ = ["judge_budget", "judge_goal", "judge_leader", "judge_proven"]


def judge_goal(
    cells: Mapping[str, Any], model: str, score: str, goal: float, higher: bool, factor: float = 1.0, unit: str = ""
) -> Judgement:
    """Judge a goal for the mean test score over seeds; a run that diverged misses it.

    Args:
        cells: Numbers by name.
        model: The series.
        score: Its name.
        goal: In the unit of ``factor`` times the score.
        higher: Whether more is better.
        factor: From our score to that unit: 100 for percent.
        unit: In words.

    Example:
        >>> runs = {"lstm/seed0": {"test": {"accuracy": 0.98}}, "lstm/seed1": {"test": {"accuracy": 0.96}}}
        >>> judge_goal(runs, "lstm", "accuracy", 97.5, True, 100.0, "%").ours
        '97 %, 0.5 short of the goal'
        >>> judge_goal(runs, "lstm", "accuracy", 96.5, True, 100.0, "%").verdict
        'met'
    """
    scores = collect_scores(cells, model, score)
    known = [factor * value for value in scores if value is not None]
    if len(known) < len(scores) or not known:
        return Judgement("missed", f"{len(scores) - len(known)} of {len(scores)} runs diverged", seeds=len(scores))
    mean = sum(known) / len(known)
    lacking = goal - mean if higher else mean - goal
    end = "the goal is met" if lacking <= 0 else f"{lacking:.2g} short of the goal"
    return judge_numbers("met" if lacking <= 0 else "missed", f"{mean:.4g}{' ' + unit if unit else ''}, {end}", known, unit)


def judge_budget(cells: Mapping[str, Any], model: str, most: int) -> Judgement:
    """Judge that every network of a series has at most so many parameters.

    Example:
        >>> judge_budget({"lstm/seed0": {"parameters": 5000}}, "lstm", 6000).ours
        '5,000 parameters'
    """
    counts = sorted({cell["parameters"] for name, cell in cells.items() if name.startswith(f"{model}/seed")})
    text = f"{' to '.join(f'{count:,}' for count in (counts[0], counts[-1])[: len(counts)])} parameters"
    return Judgement("met" if counts[-1] <= most else "missed", text, counts[-1], unit="parameters")


def judge_leader(cells: Mapping[str, Any], first: str, then: Sequence[str], score: str) -> Judgement:
    """Judge that a series has the highest mean test score of all; one that diverged is the last.

    Example:
        >>> runs = {"a/seed0": {"test": {"accuracy": 0.9}}, "b/seed0": {"test": {"accuracy": 0.8}}}
        >>> judge_leader(runs, "a", ["b"], "accuracy").ours
        'a 0.9; b 0.8'
    """
    means = {model: mean_score(collect_scores(cells, model, score)) for model in (first, *then)}
    own = means[first]
    led = own is not None and all(means[model] is None or own > float(means[model] or 0.0) for model in then)
    ranked = sorted(means.items(), key=lambda pair: -1.0 if pair[1] is None else pair[1], reverse=True)
    text = "; ".join(f"{model} {'diverged' if mean is None else format(mean, '.4g')}" for model, mean in ranked)
    return Judgement("met" if led else "missed", text, seeds=len(collect_scores(cells, first, score)))


def judge_proven(cells: Mapping[str, Any], model: str) -> Judgement:
    """Judge that the best weights of every seed are proven to be a contraction.

    Example:
        >>> judge_proven({"s/seed0": {"certificate": {"contraction": 0.9, "stable": True}}}, "s").ours
        'proven contraction of at most 0.9'
    """
    found = judge_certified(cells, model)
    return replace(found, verdict="met" if found.verdict == "seen" else "missed")
