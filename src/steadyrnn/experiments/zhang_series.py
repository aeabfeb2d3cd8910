"""Time series of the UCR archive in Zhang, Lei and Dhillon: Table 4 and Figure 6."""

import math
from typing import Any

from steadyrnn.tasks.ucr_sets import UCR_SETS

from .base import Claim, Experiment, Series
from .published.zhang import VALUES
from .trained_series import train_series

__all__ = ["FIGURE_6", "TABLE_4"]

_WORK = "steadyrnn.experiments.time_series"

_SYSTEMS: dict[str, dict[str, Any]] = {
    "rnn": {"model.name": "rnn", "model.nonlinearity": "leaky_relu"},
    "lstm": {"model.name": "lstm"},
    "ornn": {"model.name": "ornn", "model.nonlinearity": "leaky_relu", "model.reflectors": 16},
    "spectral-rnn": {"model.name": "spectral", "model.nonlinearity": "leaky_relu", "model.reflectors": 16},
}
_NETWORKS = {name: {**given, "model.width": 32, "model.learn_initial_state": True} for name, given in _SYSTEMS.items()}
_TRAIN: dict[str, Any] = {
    "task.name": "ucr", "task.paper_outputs": True, "train.batch_size": 32, "train.evaluation_batch_size": 500,
    "train.schedule.name": "cosine", "train.log_every": 50, "train.device": "cpu",
}  # fmt: skip

_FAST: dict[str, Any] = {"train.optimizer.lr": 0.01}
_CANDIDATES: tuple[dict[str, Any], ...] = (
    _FAST,
    {**_FAST, "train.optimizer.name": "adamw", "train.optimizer.weight_decay": 0.1, "task.shift": 0.05},
    {
        "train.optimizer.lr": 0.003, "train.optimizer.name": "adamw", "train.optimizer.weight_decay": 0.3,
        "task.shift": 0.02, "task.noise": 0.2,
    },
    {**_FAST, "train.optimizer.name": "adamw", "train.optimizer.weight_decay": 0.3, "task.shift": 0.1, "task.noise": 0.4},
)  # fmt: skip
"""Settings to choose from, the same for every model; the paper gives none. The first leaves the training series as they are.

They, the slope and the radius come from a wider search on held-out series.
"""

_OURS: dict[str, dict[str, Any]] = {"lstm": {}, "spectral-rnn": {"model.slope": 0.3, "model.radius": 0.5}}
_TUNED = {name: {**_TRAIN, **given, **_OURS.get(name, {"model.slope": 0.3})} for name, given in _NETWORKS.items()}
_LEAST = 15  # of 21 sets


def _choose_draws(name: str) -> tuple[int, ...]:
    """Return seeds of draws, at least six: more where few series are held out, about 250 in all, unless series are long."""
    held, depth = round(UCR_SETS[name].counts()[0] / 5), int(VALUES[f"table4/{name}/depth"].value)
    return tuple(range(100, 100 + max(6, min(math.ceil(250 / held), 120 // depth))))


def _choose_lengths(name: str) -> tuple[int, int]:
    """Return the steps of the two rounds of a search: more for sets of many series, fewer for long series."""
    train, depth = UCR_SETS[name].counts()[0], VALUES[f"table4/{name}/depth"].value
    return 1_000, 2_000 + 1_000 * (train > 200) + 1_000 * (depth <= 30)


def _search(model: str, name: str, lengths: tuple[int, int], draws: tuple[int, ...]) -> Series:
    arguments = {
        "settings": {**_TUNED[model], "task.dataset": name, "train.validate_every": 50}, "candidates": [*_CANDIDATES],
        "draws": [*draws], "lengths": [*lengths],
    }  # fmt: skip
    return Series(f"search/{model}/{name}", f"{_WORK}:search_time_series", arguments)


def _train(model: str, name: str, most: int, seeds: tuple[int, ...]) -> Series:
    """Return the final networks, which are scored after the last step alone: the search chooses how many there are."""
    last = {"task.dataset": name, "task.refit": True, "train.validate_every": most}
    return Series(
        f"tuned/{model}/{name}", f"{_WORK}:train_time_series", {"settings": {**_TUNED[model], **last}}, seeds,
        after=f"search/{model}/{name}", together=True,
    )  # fmt: skip


def _cells(
    names: tuple[str, ...], seeds: tuple[int, ...], lengths: tuple[int, int] | None = None, draws: tuple[int, ...] | None = None
) -> tuple[Series, ...]:
    """Return the cells; the longest series come first, so that several processes end at about the same time."""
    counting = Series("parameters", f"{_WORK}:count_all_parameters", {"settings": _NETWORKS, "sets": list(names)})
    trained = [
        series
        for name in sorted(names, key=lambda name: -VALUES[f"table4/{name}/depth"].value)
        for model in ("lstm", "spectral-rnn", "ornn", "rnn")
        for series in (
            _search(model, name, lengths or _choose_lengths(name), draws or _choose_draws(name)),
            _train(model, name, max(lengths or _choose_lengths(name)), seeds),
        )
    ]
    return (counting, *trained)


def _printed(name: str, what: str) -> dict[str, Any]:
    return {model: VALUES[f"table4/{name}/{model}/{what}"].value for model in _NETWORKS}


def _claims(names: tuple[str, ...], row: str, how: str) -> tuple[Claim, ...]:
    return tuple(
        Claim(
            f"{row}-{name}", f"{name}, {how}: accuracy of the Spectral-RNN",
            f"{VALUES[f'table4/{name}/spectral-rnn/accuracy'].value:.3f}", f"Table 4, row {UCR_SETS[name].paper}",
            f"{_WORK}:judge_set", f"table4/{name}/spectral-rnn/accuracy",
            {"row": row, "name": name, "published": _printed(name, "accuracy")},
        )
        for name in names
    )  # fmt: skip


def _summary(names: tuple[str, ...], row: str, how: str, least: int) -> tuple[Claim, ...]:
    own = {name: VALUES[f"table4/{name}/spectral-rnn/accuracy"].value for name in names}
    best = sum(own[name] >= max(_printed(name, "accuracy").values()) for name in names)
    return (
        Claim(
            f"{row}-reached", f"Sets on which the Spectral-RNN is as accurate as printed, {how}", f"{len(names)} sets",
            "Table 4", f"{_WORK}:judge_reached", arguments={"row": row, "published": own, "least": least},
        ),
        Claim(
            f"{row}-best", f"Sets on which no model is more accurate than the Spectral-RNN, {how}",
            f"{best} of {len(names)} sets", "Table 4", f"{_WORK}:judge_best",
            arguments={"row": row, "sets": list(names), "printed": best},
        ),
    )  # fmt: skip


def _counted(names: tuple[str, ...]) -> Claim:
    printed = {f"{name}/{model}": count for name in names for model, count in _printed(name, "parameters").items()}
    return Claim(
        "parameters", "Numbers of parameters of all networks", f"{len(printed)} printed numbers", "Table 4",
        f"{_WORK}:judge_parameters", arguments={"published": printed},
    )  # fmt: skip


_ALL = tuple(UCR_SETS)
_FEW = ("CBF", "GunPoint", "ItalyPowerDemand")
_HELD_OUT = "a fifth held out, as printed"

TABLE_4 = Experiment(
    "zhang-table4", "21 time series data sets: RNN, LSTM, oRNN, Spectral-RNN, parameters as printed", "Table 4", "cpu", 240,
    "printed accuracies and numbers of parameters", data=("ucr",), curves=f"{_WORK}:draw_accuracies",
    quick=_cells(_FEW, (0, 1), (100, 300), (100, 101)), full=_cells(_ALL, (0, 1, 2, 3, 4)),
    claims=(
        _counted(_ALL), *_summary(_ALL, "tuned", "ours", _LEAST), *_summary(_ALL, "search", _HELD_OUT, _LEAST),
        *_claims(_ALL, "tuned", "ours"), *_claims(_ALL, "search", _HELD_OUT),
    ),
    quick_claims=(_counted(_FEW), *_summary(_FEW, "tuned", "ours", 2), *_claims(_FEW, "tuned", "ours")),
)  # fmt: skip


def _curves(names: tuple[str, ...], steps: int, seeds: tuple[int, ...]) -> tuple[Series, ...]:
    learn = {**_TRAIN, **_FAST, "train.steps": steps, "train.log_every": steps // 30, "train.validate_every": steps // 30}
    return tuple(
        train_series(f"{model}/{name}", {**learn, **_NETWORKS[model], "task.dataset": name}, seeds)
        for name in names
        for model in _NETWORKS
    )  # fmt: skip


def _overfits(names: tuple[str, ...]) -> tuple[Claim, ...]:
    return tuple(
        Claim(
            name,
            f"{name}: the Spectral-RNN has the smallest gap between training and validation accuracy, and a validation "
            "accuracy at most 0.05 below the best",
            "Spectral-RNN is able to prevent overfitting", "Appendix C", f"{_WORK}:judge_overfitting", arguments={"name": name},
        )
        for name in names
    )  # fmt: skip


_DRAWN = ("CBF", "ArrowHead", "FaceAll")
FIGURE_6 = Experiment(
    "zhang-fig6", "CBF, ArrowHead and FaceAll: accuracy during training", "Figure 6", "cpu", 15,
    "the Spectral-RNN overfits less", data=("ucr",), curves=f"{_WORK}:draw_learning",
    quick=_curves(("CBF",), 300, (0, 1)), full=_curves(_DRAWN, 900, (0, 1, 2, 3, 4)),
    claims=_overfits(_DRAWN), quick_claims=_overfits(("CBF",)),
)  # fmt: skip
