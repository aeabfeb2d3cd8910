"""How a target is declared: a goal for the mean over seeds, a budget of parameters, a quick form; free of torch."""

from collections.abc import Mapping, Sequence
from typing import Any

from .base import Claim, Experiment, Series
from .trained_series import search_series, train_series

__all__ = ["SEEDS", "claim_budget", "claim_goal", "make_target", "search_and_train"]

SEEDS = (0, 1, 2)

_GOALS = "steadyrnn.experiments.goals"


def search_and_train(
    name: str, settings: Mapping[str, Any], candidates: Sequence[Mapping[str, Any]], steps: int
) -> tuple[Series, ...]:
    """Return the search of a network's settings and its runs; of a single candidate there is nothing to search.

    Example:
        >>> [series.name for series in search_and_train("lstm", {"task.name": "addition"}, [{}, {"model.width": 8}], 10)]
        ['search/lstm', 'lstm']
    """
    if len(candidates) == 1:
        return (train_series(name, {**settings, **candidates[0]}, SEEDS),)
    return search_series(name, settings, candidates, steps), train_series(name, settings, SEEDS, name)


def claim_goal(
    series: str, goal: float, best: str, *, score: str, higher: bool, factor: float = 1.0, unit: str = "",
    seeds: int = len(SEEDS),
) -> Claim:  # fmt: skip
    """Return the claim that the mean test score of a series, of so many seeds, is at least as good as a goal.

    ``best`` is the best published number, or what the goal refers to.
    """
    word = "at least" if higher else "at most"
    shown = f"{goal:g}{' ' + unit if unit else ''}"
    judged = {"model": series, "score": score, "goal": goal, "higher": higher, "factor": factor, "unit": unit, "seeds": seeds}
    return Claim(
        f"{series}/goal", f"{series}: test {score} of {word} {shown}", f"goal: {word} {shown}", best, f"{_GOALS}:judge_goal",
        arguments=judged,
    )  # fmt: skip


def claim_budget(series: str, most: int) -> Claim:
    """Return the claim that the networks of a series have at most so many parameters."""
    return Claim(
        f"{series}/parameters", f"{series}: at most {most:,} parameters", f"goal: at most {most:,}", "all that is trained",
        f"{_GOALS}:judge_budget", arguments={"model": series, "most": most},
    )  # fmt: skip


def make_target(
    name: str, title: str, best: str, minutes: float, full: Sequence[Series], claims: Sequence[Claim],
    quick: Sequence[Series], quick_claims: Sequence[Claim], data: tuple[str, ...] = (),
    quick_data: tuple[str, ...] | None = None, where: str = "gpu",
) -> Experiment:  # fmt: skip
    """Return a target as an experiment whose paper is ours; ``best`` is the best published number and whose."""
    goals = "; ".join(claim.says for claim in claims)
    return Experiment(
        f"ours-{name}", title, best, where, minutes, goals, quick=tuple(quick), full=tuple(full), claims=tuple(claims),
        quick_claims=tuple(quick_claims), data=data, quick_data=quick_data,
    )  # fmt: skip
