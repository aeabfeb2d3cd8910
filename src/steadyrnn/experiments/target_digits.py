"""Targets on digits read pixel by pixel, and rivals on the same data; free of torch."""

from collections.abc import Mapping
from typing import Any

from .base import Claim, Experiment, Series
from .target_series import claim_budget, claim_goal, make_target, search_and_train
from .trained_series import make_claim, train_series

__all__ = ["DIGITS"]

_EPOCH = 430
"""Steps of an epoch: 55,000 training digits in batches of 128."""

_SHARED: dict[str, Any] = {
    "train.batch_size": 128, "train.evaluation_batch_size": 1000, "train.log_every": _EPOCH, "train.schedule.name": "cosine",
}  # fmt: skip
_PIXELS: dict[str, Any] = {**_SHARED, "task.name": "pixel-mnist"}
_PERMUTED: dict[str, Any] = {**_SHARED, "task.name": "permuted-mnist", "task.permutation": "numpy:92916"}
_SMOOTHED: dict[str, Any] = {"task.label_smoothing": 0.1}

_SATURATING: dict[str, Any] = {
    "model.name": "cayley", "model.nonlinearity": "adaptive_tanh", "model.init": "cayley", "model.init_std": 1.0,
    "model.output_std": 0.04, "train.optimizer.name": "rmsprop", "train.clip.norm": 10.0,
}  # fmt: skip
"""The asRNN with the start of its paper; its rotations move at a tenth of the rate."""
_SPECTRAL: dict[str, Any] = {
    "model.name": "spectral", "model.nonlinearity": "leaky_relu", "model.slope": 0.1, "model.radius": 0.1,
    "train.optimizer.name": "adam", "train.clip.norm": 1.0,
}  # fmt: skip


def _rates(*pairs: tuple[float, float]) -> list[dict[str, Any]]:
    """Return candidates: a rate, and that of the recurrent weight."""
    return [{"train.optimizer.lr": lr, "train.optimizer.transition_lr": slow} for lr, slow in pairs]


def _dropped(*shares: float) -> list[dict[str, Any]]:
    """Return candidates of the asRNN: dropout before the readout, at two rates."""
    rates = _rates((1e-3, 1e-4), (7e-4, 7e-5))
    return [{**rate, "model.dropout_output": share} for share in shares for rate in rates]


def _sized(*sizes: tuple[int, int]) -> list[dict[str, Any]]:
    """Return candidates of the Spectral-RNN: width and reflectors per side."""
    rate = {"train.optimizer.lr": 1e-3, "train.optimizer.transition_lr": 3e-4}
    return [{**rate, "model.width": width, "model.reflectors": reflectors} for width, reflectors in sizes]


_SMALL: dict[str, Any] = {
    "task.pixels_per_step": 14, "task.validation": 1000, "train.epochs": 1, "train.steps": 300, "train.batch_size": 64,
    "train.validate_every": 50, "train.log_every": 50, "train.schedule.name": "constant", "train.optimizer.lr": 3e-3,
}  # fmt: skip


def _claim_learning(model: str) -> Claim:
    """Return what the quick form shows: that a small network learns something."""
    return claim_goal(
        model, 50.0, "56 steps, 300 updates", score="accuracy", higher=True, factor=100.0, unit="%", seeds=1
    )  # fmt: skip


def _target(
    name: str, task: Mapping[str, Any], words: str, series: tuple[Series, ...], goal: float, budget: int, best: str,
    minutes: float, network: Mapping[str, Any],
) -> Experiment:  # fmt: skip
    """Return the target of one network; the quick form trains a small one on 56 steps of 14 pixels."""
    model = series[-1].name
    small = train_series(model, {**task, **network, **_SMALL, "model.width": 32}, (0,))
    return make_target(
        name, f"{words} with at most {budget:,} parameters", best, minutes, series,
        [claim_goal(model, goal, best, score="accuracy", higher=True, factor=100.0, unit="%"), claim_budget(model, budget)],
        [small], [_claim_learning(model)], data=("mnist",),
    )  # fmt: skip


def _saturating(task: Mapping[str, Any], width: int, epochs: int, shares: tuple[float, ...]) -> tuple[Series, ...]:
    settings = {**task, **_SATURATING, **_SMOOTHED, "model.width": width, "train.epochs": epochs}
    return search_and_train("asrnn-smoothed", settings, _dropped(*shares), 5 * _EPOCH)


def _spectral(epochs: int, sizes: tuple[tuple[int, int], ...]) -> tuple[Series, ...]:
    settings = {**_PIXELS, **_SPECTRAL, **_SMOOTHED, "train.epochs": epochs}
    return search_and_train("spectral-rnn", settings, _sized(*sizes), 5 * _EPOCH)


_SMALL_SPECTRAL: dict[str, Any] = {**_SPECTRAL, "model.reflectors": 8}

_RIVALS: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "asrnn": ({**_SATURATING, "model.width": 256}, _rates((1e-3, 1e-4), (7e-4, 7e-5))),
    "exprnn": (
        {
            "model.name": "urnn", "model.nonlinearity": "modrelu_real", "model.init": "cayley", "model.width": 360,
            "train.optimizer.name": "rmsprop",
        },
        _rates((1e-3, 1e-4), (7e-4, 7e-5)),
    ),
    "ornn": ({"model.name": "ornn", "model.width": 356, "model.reflectors": 356}, _rates((1e-3, 1e-3), (1e-3, 1e-4))),
    "irnn": ({"model.name": "irnn", "model.width": 256}, [{"train.optimizer.lr": lr} for lr in (1e-4, 1e-5)]),
    "lstm": (
        {"model.name": "lstm", "model.width": 128, "model.forget_bias": 1.0},
        [{"train.optimizer.lr": lr} for lr in (3e-3, 1e-3)],
    ),
    "gru": ({"model.name": "gru", "model.width": 148}, [{"train.optimizer.lr": lr} for lr in (3e-3, 1e-3)]),
}  # fmt: skip
"""Rivals of 67,000 to 70,000 parameters, without dropout and smoothing, as their papers train them."""


def _compare(name: str, task: Mapping[str, Any], words: str, minutes: float) -> Experiment:
    """Return the comparison of the rivals, with the same data, steps and search."""
    shared = {**task, "train.epochs": 30}
    ours = search_and_train(
        "asrnn-smoothed", {**shared, **_SATURATING, **_SMOOTHED, "model.width": 256}, _dropped(0.4), 3 * _EPOCH
    )
    full = [*ours]
    for rival, (own, candidates) in _RIVALS.items():
        full += search_and_train(rival, {**shared, **own}, candidates, 3 * _EPOCH)
    small = [
        train_series(rival, {**task, **own, **_SMALL, "model.width": 32, **_FEW.get(rival, {})}, (0,))
        for rival, (own, _) in _RIVALS.items()
    ]
    judge = "steadyrnn.experiments.goals:judge_leader"
    lead = make_claim(
        "leader", "With dropout and smoothed targets the asRNN is more accurate than every rival", "goal: the first of all",
        "rivals run here, 30 epochs each", judge, first="asrnn-smoothed", then=[*_RIVALS], score="accuracy",
    )  # fmt: skip
    return make_target(
        name, f"{words}: rivals of about 68,000 parameters", "same data, steps and search for all", minutes, full, [lead],
        small, [_claim_learning("gru")], data=("mnist",),
    )  # fmt: skip


_FEW: dict[str, dict[str, Any]] = {"ornn": {"model.reflectors": 16}}

_WORDS = "pixel-MNIST"
_ORDERED = "permuted MNIST (the order of the expRNN)"

DIGITS = (
    _target(
        "pixel-6k", _PIXELS, _WORDS, _spectral(120, ((128, 16), (192, 8), (256, 4), (320, 2))), 98.5, 6_000,
        "97.7 % (Spectral-RNN)", 12, _SMALL_SPECTRAL,
    ),
    _target(
        "pixel-16k", _PIXELS, _WORDS, _spectral(100, ((256, 24), (192, 32), (160, 40))), 99.0, 16_000, "98.89 % (asRNN)", 14,
        _SMALL_SPECTRAL,
    ),
    _target(
        "pixel-70k", _PIXELS, _WORDS, _spectral(60, ((512, 64), (1024, 24), (640, 48))), 99.3, 70_000, "99.21 % (asRNN)", 25,
        _SMALL_SPECTRAL,
    ),
    _target(
        "permuted-16k", _PERMUTED, _ORDERED, _saturating(_PERMUTED, 120, 60, (0.2, 0.4)), 96.3, 16_000, "95.41 % (asRNN)", 9,
        _SATURATING,
    ),
    _target(
        "permuted-70k", _PERMUTED, _ORDERED, _saturating(_PERMUTED, 256, 70, (0.4, 0.5)), 97.4, 70_000, "96.88 % (asRNN)", 13,
        _SATURATING,
    ),
    _compare("rivals-pixel", _PIXELS, _WORDS, 25),
    _compare("rivals-permuted", _PERMUTED, _ORDERED, 25),
)  # fmt: skip
"""Targets on digits."""
