"""Judges of our own targets: a goal, a budget of parameters, the first place, a proof; free of torch."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from .base import Judgement, judge_numbers
from .scores import collect_scores
from .stable_language import judge_certified

__all__ = ["judge_budget", "judge_goal", "judge_leader", "judge_proven"]


def judge_goal(
    cells: Mapping[str, Any], model: str, score: str, goal: float, higher: bool, factor: float = 1.0, unit: str = "",
    seeds: int = 1,
) -> Judgement:  # fmt: skip
    """Judge a goal for the mean test score over seeds; a run that diverged misses it, and so do fewer seeds than wanted.

    Args:
        cells: Numbers by name.
        model: The series.
        score: Its name.
        goal: In the unit of ``factor`` times the score.
        higher: Whether more is better.
        factor: From our score to that unit: 100 for percent.
        unit: In words.
        seeds: How many there must be.

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
    if len(known) < seeds:
        return Judgement("missed", f"{len(known)} of {seeds} seeds", seeds=len(known))
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
    if not counts:
        return Judgement("missed", "no run", unit="parameters")
    text = f"{' to '.join(f'{count:,}' for count in (counts[0], counts[-1])[: len(counts)])} parameters"
    return Judgement("met" if counts[-1] <= most else "missed", text, counts[-1], unit="parameters")


def judge_leader(cells: Mapping[str, Any], first: str, then: Sequence[str], score: str) -> Judgement:
    """Judge that a series has a higher mean test score than each rival has on the seeds that did not diverge.

    The series itself must have as many seeds as any rival, none of which diverged.

    Example:
        >>> runs = {"a/seed0": {"test": {"accuracy": 0.9}}, "b/seed0": {"test": {"accuracy": 0.8}}}
        >>> judge_leader(runs, "a", ["b"], "accuracy").ours
        'a 0.9; b 0.8'
    """
    scores = {model: collect_scores(cells, model, score) for model in (first, *then)}
    finished = {model: [one for one in found if one is not None] for model, found in scores.items()}
    means = {model: fmean(known) if known else -math.inf for model, known in finished.items()}
    whole = len(finished[first]) == len(scores[first]) >= max(map(len, scores.values()))
    led = bool(finished[first]) and whole and all(means[first] > means[model] for model in then)
    ranked = sorted(scores, key=lambda model: means[model], reverse=True)
    text = "; ".join(_describe(model, scores[model], means[model]) for model in ranked)
    return Judgement("met" if led else "missed", text, seeds=len(scores[first]))


def _describe(model: str, scores: Sequence[float | None], mean: float) -> str:
    lost = scores.count(None)
    parts = [] if lost == len(scores) else [f"{mean:.4g}"]
    return f"{model} {', '.join([*parts, f'{lost} of {len(scores)} diverged'] if lost else parts)}"


def judge_proven(cells: Mapping[str, Any], model: str) -> Judgement:
    """Judge that the best weights of every seed are proven to be a contraction.

    Example:
        >>> judge_proven({"s/seed0": {"certificate": {"contraction": 0.9, "stable": True}}}, "s").ours
        'proven contraction of at most 0.9'
    """
    found = judge_certified(cells, model)
    return replace(found, verdict="met" if found.verdict == "seen" else "missed")
