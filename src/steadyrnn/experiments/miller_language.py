"""Language models of Miller and Hardt, Section 7.2: stable networks, vanishing gradients, truncated backpropagation."""

from typing import Any

from .base import Claim, Experiment, Series
from .published.miller import VALUES

__all__ = ["LANGUAGE"]

_TRAIN, _SEARCH = (f"steadyrnn.experiments.training:{name}" for name in ("train_network", "search_settings"))
_PRINTED = "steadyrnn.experiments.scores:judge_printed"
_STABLE, _LAGS, _DISTANCE = (
    f"steadyrnn.experiments.{name}" for name in ("stable_language", "gradient_lags", "weight_distance")
)

_EXAMPLE: dict[str, Any] = {
    "train.batch_size": 20, "train.optimizer.name": "sgd", "train.clip.norm": 0.25, "model.init_uniform": 0.1,
    "task.evaluation_rows": 10,
}  # fmt: skip
"""Of the program that the paper names, PyTorch's example word_language_model: gradient descent with the gradient cut at 0.25,
embedding and readout uniform in plus and minus 0.1, ten rows of text in validation and test."""

_FULL: dict[str, Any] = {
    "task.name": "wikitext-2", "train.epochs": 40, "train.schedule.name": "plateau", "train.schedule.factor": 0.25,
    "train.schedule.patience": 1, **_EXAMPLE,
}  # fmt: skip
"""The rest of it: the learning rate over 4 after an epoch without a better validation loss."""

_SMALL: dict[str, Any] = {
    **_EXAMPLE, "task.name": "ptb", "model.embedding": 32, "model.width": 32, "model.dropout": 0.0,
    "train.optimizer.name": "adam", "train.optimizer.lr": 0.004,
}  # fmt: skip
"""Of quick runs: a smaller text and network, and an optimizer that learns something in some hundred steps."""

_SEEDS = (0, 1, 2)

# Stable and unconstrained networks

_PAIR: dict[str, dict[str, Any]] = {
    "unconstrained": {"model.name": "rnn"}, "stable": {"model.name": "stable-rnn", "model.bound": 0.999},
}  # fmt: skip
"""The paper cuts singular values to [0, 1)."""


def _stable(settings: dict[str, Any], seeds: tuple[int, ...]) -> tuple[Series, ...]:
    return tuple(
        Series(name, _TRAIN, {"settings": {**settings, **model}, "certified": True}, seeds, resumable=True)
        for name, model in _PAIR.items()
    )


_PUBLISHED = {name: VALUES[f"section7.2/{name}/test-perplexity"].value for name in _PAIR}


def _claim_perplexity(name: str, text: str, key: str, place: str, own: bool = False) -> Claim:
    value = VALUES[key].value
    arguments = {"model": name, "score": "perplexity", "published": value, "higher": False, **({"own": True} if own else {})}
    return Claim(name, text, f"{value:g}", place, _PRINTED, key, arguments)


_UNHURT = (
    Claim(
        "unhurt", "A stable network is as good: its perplexity is at most 2.2 % higher, as much as the printed two differ",
        "there is little difference between the two models", "Section 7.2", f"{_STABLE}:judge_unhurt",
        arguments={
            "stable": "stable", "free": "unconstrained", "most": _PUBLISHED["unconstrained"] / _PUBLISHED["stable"] - 1,
        },
    ),
    Claim(
        "certified", "The best weights of the stable network are proven to be a contraction", "which ensures stability",
        "Section 7.2", f"{_STABLE}:judge_certified", arguments={"model": "stable"},
    ),
)  # fmt: skip

_STABLE_MODELS = Experiment(
    "miller-stable", "WikiText-2: unconstrained and stable RNN, certified", "Section 7.2", "gpu", 12,
    "perplexities 146.7 and 143.5",
    quick=_stable({**_SMALL, "task.bptt": 35, "train.steps": 200, "train.validate_every": 200}, (0,)),
    full=_stable(
        {
            **_FULL, "task.bptt": 35, "model.embedding": 1024, "model.width": 256, "model.dropout": 0.25,
            "train.optimizer.lr": 2.0,
        },
        _SEEDS,
    ),
    claims=(
        _claim_perplexity(
            "unconstrained", "Test perplexity of the unconstrained RNN", "section7.2/unconstrained/test-perplexity",
            "Section 7.2",
        ),
        _claim_perplexity(
            "stable", "Test perplexity of the stable RNN, at least as good as printed", "section7.2/stable/test-perplexity",
            "Section 7.2", own=True,
        ),
        *_UNHURT,
    ),
    quick_claims=_UNHURT,
    curves=f"{_STABLE}:show_validation",
    data=("wikitext-2",), quick_data=("ptb",),
)  # fmt: skip

# Vanishing gradients

_WIDE: dict[str, Any] = {**_FULL, "task.bptt": 65, "model.embedding": 1500, "model.width": 1500}
_RNN: dict[str, Any] = {"model.name": "rnn", "model.dropout": 0.65, "train.optimizer.lr": 5.0}
_LSTM: dict[str, Any] = {"model.name": "lstm"}
_EPOCH = 1607
"""Steps of an epoch of WikiText-2 with 20 rows and 65 words."""

_SEARCH_LSTM = Series(
    "search/lstm", _SEARCH,
    {
        "settings": {**_WIDE, **_LSTM},
        "candidates": [
            {"train.optimizer.lr": rate, "model.dropout": dropout} for rate in (20.0, 5.0) for dropout in (0.2, 0.65)
        ],
        "steps": 3 * _EPOCH,
    },
    resumable=True,
)  # fmt: skip
"""The paper says "default" of the LSTM's rate and dropout: 20 and 0.2 in that program; or they are the RNN's, 5 and 0.65."""


def _lags(settings: dict[str, Any], rnn: dict[str, Any], lstm: dict[str, Any], every: int) -> dict[str, dict[str, Any]]:
    shared = {**settings, "train.probe.names": ["input-gradient"], "train.probe.every": every}
    return {"rnn": {**shared, **rnn}, "lstm": {**shared, **lstm}}


_FEW = {"task.bptt": 65, "train.batch_size": 10, "train.steps": 120, "train.validate_every": 120}

_VANISHING = (
    Claim(
        "vanishing", "Before and during training the gradient by an input up to 50 steps back falls below 1 % of that at lag 1",
        "the gradient vanishes for moderate values of i in both cases", "Caption of Figure 2", f"{_LAGS}:judge_vanishing",
        arguments={"models": ["rnn", "lstm"], "share": 0.01},
    ),
    Claim(
        "slower", "After training the gradients of the LSTM fall more slowly: the factor per step up to lag 50 is larger",
        "the gradients of the LSTM vanish more slowly than those of the RNN", "Section 7.2", f"{_LAGS}:judge_slower",
        arguments={"slow": "lstm", "fast": "rnn"},
    ),
)  # fmt: skip

_FIGURE_2 = Experiment(
    "miller-fig2", "RNN and LSTM of 1500 units: gradient of the loss at t+i by the input at t", "Figure 2", "gpu", 18,
    "perplexities 146.7 and 92.3; gradients decay with i",
    quick=tuple(
        Series(name, _TRAIN, {"settings": settings}, (0,), resumable=True)
        for name, settings in _lags({**_SMALL, **_FEW}, {"model.name": "rnn"}, _LSTM, 60).items()
    ),
    full=(
        _SEARCH_LSTM,
        *(
            Series(
                name, _TRAIN, {"settings": settings}, _SEEDS, after="search/lstm" if name == "lstm" else None, resumable=True
            )
            for name, settings in _lags(_WIDE, _RNN, _LSTM, _EPOCH).items()
        ),
    ),
    claims=(
        _claim_perplexity(
            "rnn", "Test perplexity of the RNN of 1500 units", "figure2/rnn/test-perplexity", "Caption of Figure 2"
        ),
        _claim_perplexity(
            "lstm", "Test perplexity of the LSTM of 1500 units", "figure2/lstm/test-perplexity", "Caption of Figure 2"
        ),
        *_VANISHING,
    ),
    quick_claims=_VANISHING,
    curves=f"{_LAGS}:show_lags",
    data=("wikitext-2",), quick_data=("ptb",),
)  # fmt: skip

# Truncated backpropagation

_WINDOWS = [5, 10, 15, 25, 35, 50, 64]
_ROW = 104_431
"""Words of a row of WikiText-2 with 20 rows."""


_TINY: dict[str, Any] = {
    **_SMALL, "model.embedding": 16, "model.width": 16, "train.optimizer.name": "sgd", "train.batch_size": 10,
    "task.evaluation_rows": 50,
}  # fmt: skip
"""Gradient descent as in the paper: steps of Adam have one length, so that distances would count steps."""


def _distances(settings: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    return {"settings": settings, "longest": 65, **arguments}


def _norms(model: dict[str, Any]) -> dict[str, Any]:
    return {"settings": {**_WIDE, **model, "train.probe.names": ["weights"], "train.probe.every": 40 * _EPOCH}}


_NETWORKS = {"models": ["rnn", "lstm"]}
_DISTANCES = (
    Claim(
        "windows", "After training, weights trained with the shortest window are the farthest, with the longest the nearest",
        "the rate of this growth decreases as the value of the truncation parameter k increases", "Section 7.2",
        f"{_DISTANCE}:judge_windows", arguments=_NETWORKS,
    ),
    Claim(
        "returns", "A longer window gains less per word: from the middle window on less than up to it",
        "there is a diminishing return to choosing larger values of the truncation parameter k", "Section 7.2",
        f"{_DISTANCE}:judge_returns", arguments=_NETWORKS,
    ),
    Claim(
        "growth", "Distances grow less in the second half of training than in the first",
        "after an initial rapid increase in distance, it grows slowly", "Section 7.2", f"{_DISTANCE}:judge_growth",
        arguments=_NETWORKS,
    ),
)  # fmt: skip

_FIGURE_3 = Experiment(
    "miller-fig3", "distance between models truncated at k and at 65", "Figure 3", "gpu", 18,
    "diminishing returns in k (same runs as miller-fig2)",
    quick=tuple(
        Series(
            name, f"{_DISTANCE}:compare_windows",
            _distances({**_TINY, **model}, windows=[5, 15, 35], words=260, times=8), (0,), resumable=True,
        )
        for name, model in (
            ("rnn", {"model.name": "rnn", "train.optimizer.lr": 5.0}), ("lstm", {**_LSTM, "train.optimizer.lr": 20.0}),
        )
    ),
    full=(
        _SEARCH_LSTM,
        *(
            Series(
                name, f"{_DISTANCE}:compare_windows",
                _distances({**_WIDE, **model}, windows=_WINDOWS, words=_ROW // 8, times=24), _SEEDS, after, resumable=True,
            )
            for name, model, after in (("rnn", _RNN, None), ("lstm", _LSTM, "search/lstm"))
        ),
        Series("converged/rnn", _TRAIN, _norms(_RNN), _SEEDS, resumable=True),
        Series("converged/lstm", _TRAIN, _norms(_LSTM), _SEEDS, after="search/lstm", resumable=True),
    ),
    claims=(
        *_DISTANCES,
        *(
            Claim(
                f"norm-{name}", f"Spectral norm of the recurrent weight of the {name.upper()} after 40 epochs, window 65",
                f"{VALUES[f'figure3/{name}/norm'].value:g}", "Caption of Figure 3", f"{_DISTANCE}:judge_norm",
                f"figure3/{name}/norm", {"model": f"converged/{name}", "published": VALUES[f"figure3/{name}/norm"].value},
            )
            for name in ("rnn", "lstm")
        ),
    ),
    quick_claims=_DISTANCES,
    curves=f"{_DISTANCE}:show_distances",
    data=("wikitext-2",), quick_data=("ptb",),
)  # fmt: skip

LANGUAGE = (_STABLE_MODELS, _FIGURE_2, _FIGURE_3)
"""In the order of the paper."""
