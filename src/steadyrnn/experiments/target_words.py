"""Targets on words: the Penn Treebank and WikiText-2; free of torch."""

from typing import Any

from .base import Claim, Series
from .published.zhang import VALUES
from .target_series import claim_goal, make_target, search_and_train
from .trained_series import train_series

__all__ = ["WORDS"]

_TEXT: dict[str, Any] = {
    "task.bptt": 35, "train.batch_size": 20, "train.evaluation_batch_size": 10, "train.epochs": 40, "train.log_every": 500,
    "train.schedule.name": "plateau", "train.schedule.factor": 0.25, "train.schedule.patience": 1, "train.clip.norm": 0.25,
    "train.optimizer.name": "adam", "model.init_uniform": 0.1,
}  # fmt: skip
_SHORT: dict[str, Any] = {
    "train.epochs": 1, "train.steps": 150, "train.validate_every": 150, "train.log_every": 10,
    "train.schedule.name": "constant", "train.optimizer.lr": 0.01, "task.evaluation_rows": 20, "model.width": 32,
    "model.embedding": 32,
}  # fmt: skip
_PRINTED = int(VALUES["table3/spectral-rnn/2/hidden"].value)
_SPECTRAL: dict[str, Any] = {
    **_TEXT, "task.name": "ptb", "model.name": "spectral", "model.layers": 2, "model.nonlinearity": "leaky_relu",
    "model.slope": 0.2, "model.radius": 0.1, "model.width": _PRINTED, "model.embedding": _PRINTED, "model.reflectors": 32,
}  # fmt: skip
_GATED: dict[str, Any] = {**_TEXT, "task.name": "ptb", "model.name": "ugru", "model.width": 400, "model.embedding": 400}
_STABLE: dict[str, Any] = {
    **_TEXT, "task.name": "wikitext-2", "model.name": "stable-rnn", "model.width": 800, "model.embedding": 800,
    "model.tied": True,
}  # fmt: skip


def _dropped(*shares: float) -> list[dict[str, Any]]:
    return [{"model.dropout": share, "train.optimizer.lr": lr} for share in shares for lr in (2e-3, 1e-3)]


def _shorten(settings: dict[str, Any], **own: Any) -> dict[str, Any]:
    """Return the settings of a quick run: a small network and 150 updates."""
    left = ("train.schedule.factor", "train.schedule.patience")
    return {**{name: value for name, value in settings.items() if name not in left}, **_SHORT, **own}


def _certify(series: tuple[Series, ...]) -> tuple[Series, ...]:
    """Return the series with a certificate of the best weights of each run."""
    *searches, runs = series
    return *searches, Series(**{**vars(runs), "arguments": {**runs.arguments, "certified": True}})


_CERTIFIED = Claim(
    "stable-rnn/certificate", "stable-rnn: every network is proven stable", "goal: a contraction below 1",
    "the certificate of the best weights", "steadyrnn.experiments.goals:judge_proven", arguments={"model": "stable-rnn"},
)  # fmt: skip


def _goal(series: str, goal: float, best: str, seeds: int = 3) -> Claim:
    return claim_goal(series, goal, best, score="perplexity", higher=False, seeds=seeds)


WORDS = (
    make_target(
        "ptb-spectral", "Penn Treebank, Spectral-RNN of 2 layers of the printed size", "121.3 (Spectral-RNN)", 20,
        search_and_train("spectral-rnn", _SPECTRAL, _dropped(0.3, 0.5), 4000),
        [_goal("spectral-rnn", 115.0, "121.3 (Spectral-RNN)")],
        [train_series("spectral-rnn", _shorten(_SPECTRAL, **{"model.reflectors": 8}), (0,))],
        [_goal("spectral-rnn", 1000.0, "150 updates", 1)], data=("ptb",),
    ),
    make_target(
        "ptb-ugru", "Penn Treebank, uGRU", "98.05 (uGRU)", 20,
        search_and_train("ugru", _GATED, _dropped(0.3, 0.5), 4000), [_goal("ugru", 92.0, "98.05 (uGRU)")],
        [train_series("ugru", _shorten(_GATED), (0,))], [_goal("ugru", 1000.0, "150 updates", 1)], data=("ptb",),
    ),
    make_target(
        "wikitext2-stable", "WikiText-2, a network that is proven stable", "143.5 (stable RNN)", 40,
        _certify(search_and_train("stable-rnn", _STABLE, _dropped(0.3, 0.5), 6000)),
        [_goal("stable-rnn", 130.0, "143.5 (stable RNN)"), _CERTIFIED],
        _certify((train_series("stable-rnn", _shorten({**_STABLE, "task.name": "ptb"}), (0,)),)),
        [_goal("stable-rnn", 1000.0, "150 updates", 1), _CERTIFIED], data=("wikitext-2",), quick_data=("ptb",),
    ),
)  # fmt: skip
"""Targets on words, as perplexity."""
