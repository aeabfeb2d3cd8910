"""How series that search settings and train networks are declared, and claims that are sentences; free of torch."""

from collections.abc import Mapping, Sequence
from typing import Any

from .base import Claim, Series
from .published.base import Published

__all__ = ["claim_lower_perplexity", "claim_perplexity", "make_claim", "search_series", "train_series"]

_TRAINING = "steadyrnn.experiments.training"


def search_series(name: str, settings: Mapping[str, Any], candidates: Sequence[Mapping[str, Any]], steps: int) -> Series:
    """Return the search ``search/NAME``, which measures nothing on the way.

    Example:
        >>> search_series("lstm", {"task.name": "addition"}, [{"train.optimizer.lr": 0.01}], 300).name
        'search/lstm'
    """
    shared = {key: value for key, value in settings.items() if not key.startswith("train.probe.")}
    arguments = {"settings": shared, "candidates": [*candidates], "steps": steps}
    return Series(f"search/{name}", f"{_TRAINING}:search_settings", arguments, resumable=True)


def train_series(name: str, settings: Mapping[str, Any], seeds: tuple[int, ...], search: str | None = None) -> Series:
    """Return runs of one network, one per seed, with what the search of a name found.

    Example:
        >>> train_series("lstm/L30", {"task.name": "addition"}, (0, 1), "lstm").after
        'search/lstm'
    """
    after = None if search is None else f"search/{search}"
    return Series(name, f"{_TRAINING}:train_network", {"settings": dict(settings)}, seeds, after, resumable=True)


def claim_perplexity(series: str, key: str, number: Published, split: str, text: str, own: bool) -> Claim:
    """Return the claim of a printed perplexity of a series; with ``own``, of the paper's own model, lower is promised too."""
    promised = ", at least as good as printed" if own else ""
    judged = {"model": series, "score": "perplexity", "published": number.value, "higher": False, "split": split}
    judged |= {"own": True} if own else {}
    judge = "steadyrnn.experiments.scores:judge_printed"
    return Claim(f"{series}/{split}", f"{text}{promised}", f"{number.value:g}", number.place, judge, key, judged)


def claim_lower_perplexity(name: str, first: str, then: str, labels: tuple[str, str, str], says: str, place: str) -> Claim:
    """Return the claim that a series has a lower test perplexity than another; ``labels`` are theirs, and how both ran."""
    better, worse, how = labels
    text = f"{better} has a lower test perplexity than {worse}{how}"
    judge = "steadyrnn.experiments.scores:judge_order"
    return make_claim(name, text, says, place, judge, first=[first], then=[then], score="perplexity", higher=False)


def make_claim(name: str, text: str, says: str, place: str, judge: str, **arguments: Any) -> Claim:
    """Return a claim that is a sentence of the paper, with the arguments of its judge."""
    return Claim(name, text, says, place, judge, arguments=arguments)
