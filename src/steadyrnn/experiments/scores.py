"""Judges of trained networks: a printed score, an order of models, a baseline; free of torch."""

import math
from collections.abc import Mapping, Sequence
from itertools import product
from statistics import fmean
from typing import Any

from .base import Judgement, judge_numbers

__all__ = ["collect_scores", "judge_baseline", "judge_memory", "judge_order", "judge_printed", "mean_score"]

_SHARE = 0.05
"""Of a printed loss or perplexity: what is nearer is as printed."""

_POINTS = 0.02
"""Of an accuracy between 0 and 1: what is nearer is as printed."""


def collect_scores(cells: Mapping[str, Any], model: str, score: str, split: str = "test") -> list[float | None]:
    """Return a score of each seed of the series ``model``, in the order of seeds; None for a run that diverged.

    Example:
        >>> runs = {"lstm/seed0": {"test": {"accuracy": 0.5}}, "lstm/seed1": {"test": None}, "lstm2/seed0": {"test": {}}}
        >>> collect_scores(runs, "lstm", "accuracy")
        [0.5, None]
    """
    start = f"{model}/seed"
    found = {int(name.removeprefix(start)): cell[split] for name, cell in cells.items() if name.startswith(start)}
    return [None if found[seed] is None else found[seed][score] for seed in sorted(found)]


def mean_score(scores: Sequence[float | None]) -> float | None:
    """Return the mean of the scores, None where a run diverged or there is none.

    Example:
        >>> mean_score([0.5, 1.0]), mean_score([0.5, None])
        (0.75, None)
    """
    known = [score for score in scores if score is not None]
    return fmean(known) if known and len(known) == len(scores) else None


def judge_printed(
    cells: Mapping[str, Any], model: str, score: str, published: float, higher: bool = True, factor: float = 1.0,
    unit: str = "", split: str = "test", examples: int | None = None, own: bool = False,
) -> Judgement:  # fmt: skip
    """Judge a printed score: seen where the mean over seeds is near it, different where it is clearly better.

    Near is within 5 % of a printed loss or perplexity, within 2 points of a printed accuracy, or within the error of counting
    if that is larger: an accuracy p of n examples, those of all seeds, has the standard error sqrt(p (1 - p) / n), and two of
    them count. Clearly worse is not seen. Clearly better contradicts a table that shows how bad a model is. But of the model
    that a paper proposes it is what the paper promises, and so it is seen.

    Args:
        cells: Numbers by name.
        model: The series.
        score: Its name.
        published: As printed.
        higher: Whether more is better.
        factor: From our score to the printed unit: 100 for percent.
        unit: In words.
        split: ``"test"`` or ``"validation"``.
        examples: Of an accuracy, the examples that a seed is tested on; None for no error of counting.
        own: Whether it is the model that the paper proposes: its claim is to be at least as good as printed.

    Example:
        >>> runs = {"lstm/seed0": {"test": {"accuracy": 0.98}}, "lstm/seed1": {"test": {"accuracy": 0.96}}}
        >>> judge_printed(runs, "lstm", "accuracy", 97.5, factor=100.0, unit="%").ours
        '97 %, 0.5 worse than printed, within 2 points'
        >>> judge_printed(runs, "lstm", "accuracy", 60.0, factor=100.0, unit="%").verdict
        'different'
        >>> judge_printed(runs, "lstm", "accuracy", 60.0, factor=100.0, unit="%", own=True).verdict
        'seen'
    """
    scores = collect_scores(cells, model, score, split)
    known = [factor * value for value in scores if value is not None]
    if len(known) < len(scores) or not known:
        return Judgement("not seen", f"{len(scores) - len(known)} of {len(scores)} runs diverged", seeds=len(scores))
    mean = fmean(known)
    better = mean - published if higher else published - mean
    near = _POINTS * factor if higher else _SHARE * published
    words = f"{100 * _POINTS:g} points" if higher else f"{100 * _SHARE:g} %"
    counting = 0.0 if examples is None else 2 * math.sqrt(published * (factor - published) / (examples * len(known)))
    if counting > near:
        near, words = counting, f"the error of counting, {counting:.2g}"
    within = f", within {words}" if 0 < abs(better) <= near else ""
    text = f"{mean:.4g}{' ' + unit if unit else ''}, {_compare(better)}{within}"
    good = "seen" if own or better <= near else "different"
    verdict = "not seen" if better < -near else good
    return judge_numbers(verdict, text, known, unit)


def _compare(better: float) -> str:
    return "as printed" if better == 0 else f"{abs(better):.2g} {'better' if better > 0 else 'worse'} than printed"


def judge_order(
    cells: Mapping[str, Any], first: Sequence[str], then: Sequence[str], score: str, higher: bool = True, least: float = 0.0,
    paired: bool = False,
) -> Judgement:  # fmt: skip
    """Judge that each series of ``first`` has a better mean than each of ``then``, by more than ``least``.

    A series that diverged is worse than any other. With ``paired`` each is compared with the one in the same place alone.

    Example:
        >>> runs = {"a/seed0": {"test": {"loss": 0.1}}, "b/seed0": {"test": {"loss": 0.3}}}
        >>> judge_order(runs, ["a"], ["b"], "loss", higher=False).ours
        'a 0.1; b 0.3'
    """
    means = {model: mean_score(collect_scores(cells, model, score)) for model in (*first, *then)}
    sign = 1.0 if higher else -1.0
    rank = {model: float("-inf") if mean is None else sign * mean for model, mean in means.items()}
    pairs = zip(first, then, strict=True) if paired else product(first, then)
    seen = all(rank[one] > rank[other] + least for one, other in pairs)
    text = "; ".join(f"{model} {'diverged' if mean is None else format(mean, '.3g')}" for model, mean in means.items())
    return Judgement("seen" if seen else "not seen", text, seeds=len(collect_scores(cells, first[0], score)))


def judge_baseline(
    cells: Mapping[str, Any],
    beat: Sequence[str],
    fail: Sequence[str],
    score: str,
    baseline: float,
    higher: bool = False,
    least: float = 0.0,
) -> Judgement:
    """Judge that the mean of each series of ``beat`` is better than a baseline, and that of each of ``fail`` is not.

    Better is by more than ``least``: a network that learned nothing is below a baseline by chance in half of all runs.

    Example:
        >>> runs = {"a/seed0": {"test": {"loss": 0.1}}, "b/seed0": {"test": {"loss": 0.3}}}
        >>> judge_baseline(runs, ["a"], ["b"], "loss", 0.167).verdict
        'seen'
    """
    means = {model: mean_score(collect_scores(cells, model, score)) for model in (*beat, *fail)}
    level = baseline + least if higher else baseline - least
    beats = {model: mean is not None and (mean > level if higher else mean < level) for model, mean in means.items()}
    seen = all(beats[model] for model in beat) and not any(beats[model] for model in fail)
    text = "; ".join(f"{model} {'diverged' if mean is None else format(mean, '.3g')}" for model, mean in means.items())
    seeds = max(len(collect_scores(cells, model, score)) for model in (*beat, *fail))
    return Judgement("seen" if seen else "not seen", f"{text} (baseline {baseline:.3g})", seeds=seeds)


def judge_memory(cells: Mapping[str, Any], models: Sequence[str], least: float, most: float | None = None) -> Judgement:
    """Judge that the losses of some series stay near that of an answer without memory, which their task states.

    Args:
        cells: Numbers by name.
        models: The series.
        least: The mean loss is not below the baseline by more than this share of it.
        most: It is not above it by more than this share either; None for any loss above.

    Example:
        >>> runs = {"lstm/seed0": {"test": {"loss": 0.17}, "baselines": {"loss": 0.173}}}
        >>> judge_memory(runs, ["lstm"], 0.1).ours
        'lstm 0.983 of the baseline'
    """
    shares: dict[str, float | None] = {}
    for model in models:
        mean = mean_score(collect_scores(cells, model, "loss"))
        base = next(cell["baselines"]["loss"] for name, cell in cells.items() if name.startswith(f"{model}/seed"))
        shares[model] = None if mean is None else mean / base
    highest = float("inf") if most is None else 1 + most
    near = [most is None if share is None else 1 - least <= share <= highest for share in shares.values()]
    words = {model: "diverged" if share is None else f"{share:.3g} of the baseline" for model, share in shares.items()}
    text = "; ".join(f"{model} {word}" for model, word in words.items())
    return Judgement("seen" if all(near) else "not seen", text, seeds=len(collect_scores(cells, models[0], "loss")))
