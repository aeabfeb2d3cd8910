"""The first number and the k-th largest number of a sequence: Tables 3 and 4 and Figures 1 and 2 of Lin and Wang."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .base import Claim, Experiment, Series
from .published.lin import VALUES
from .trained_series import search_series, train_series

__all__ = ["EXPERIMENTS"]

_LOSSES = "steadyrnn.experiments.loss_curves"
_SCORES = "steadyrnn.experiments.scores"
_SEEDS = (0, 1, 2, 3, 4)
_LABELS = {"rnn": "RNN", "urnn": "uRNN"}

_SIZES: dict[str, Any] = {
    "model.embedding": 30, "model.width": 50, "model.dropout": 0.2,
    "train.batch_size": 100, "train.evaluation_batch_size": 500, "train.clip.norm": None,
}  # fmt: skip
"""Of Table 8, and no clipping: the paper speaks of it with Penn Treebank alone."""

_PRINTED: dict[str, Any] = {
    **_SIZES, "model.nonlinearity": "tanh", "train.optimizer.lr": 5e-5, "train.epochs": 200, "train.stop.patience": 5,
}  # fmt: skip
"""The other rows of Table 8. The activation is not printed: torch's. An epoch, of a size not printed, is 100 batches."""

_CANDIDATES: dict[str, list[dict[str, Any]]] = {
    model: [
        {"model.nonlinearity": "tanh", "train.optimizer.lr": 3e-3, "train.optimizer.transition_lr": 3e-4},
        {"model.nonlinearity": "tanh", "train.optimizer.lr": 1e-2, "train.optimizer.transition_lr": 1e-3},
        {"model.nonlinearity": "relu", "train.optimizer.lr": 3e-3, "train.optimizer.transition_lr": 3e-4, **start},
        {"model.nonlinearity": "relu", "train.optimizer.lr": 1e-2, "train.optimizer.transition_lr": 1e-3, **start},
    ]
    for model, start in (("rnn", {}), ("urnn", {"model.init": "identity"}))
}
"""A rotation of rectified numbers sets some of them to 0, so the uRNN with ReLU starts from the identity."""


_UNSHRUNK: dict[str, Any] = {
    "model.nonlinearity": "abs", "model.dropout": 0.0, "train.optimizer.lr": 3e-3, "train.optimizer.transition_lr": 3e-4,
}  # fmt: skip
_RECALLING: dict[str, list[dict[str, Any]]] = {
    model: [*_CANDIDATES[model], {**_UNSHRUNK, "model.init": start}]
    for model, start in (("rnn", "orthogonal"), ("urnn", "henaff"))
}
"""Of recall: with |x| gradients of a rotation keep their norm, and a number that is dropped cannot be recalled."""


def _tuned(steps: int) -> dict[str, Any]:
    """Return what tuned runs share; the state to start from is learned, since it tells the first step from others."""
    return {**_SIZES, "model.learn_initial_state": True, "train.steps": steps, "train.schedule.name": "cosine"}


def _series(
    task: Mapping[str, Any], lengths: Sequence[int], steps: int, seeds: tuple[int, ...], searched: int, tried: int,
    candidates: Mapping[str, list[dict[str, Any]]] = _CANDIDATES,
) -> tuple[Series, ...]:  # fmt: skip
    """Return the runs as printed, a search of ``tried`` steps at the length ``searched``, and the runs as tuned."""
    found = list[Series]()
    for model in _LABELS:
        own = {**task, "model.name": model}
        found += [train_series(f"{model}/{n}", {**own, **_PRINTED, "task.length": n}, seeds) for n in lengths]
        shared = {**own, **_tuned(steps), "task.length": searched}
        found.append(search_series(model, shared, candidates[model], tried))
        found += [train_series(f"tuned/{model}/{n}", {**shared, "task.length": n}, seeds, model) for n in lengths]
    return tuple(found)


def _quick_series(task: Mapping[str, Any], own: Mapping[str, Any], runs: Sequence[tuple[str, int]]) -> tuple[Series, ...]:
    """Return small runs, each of a model and a length."""
    small = {
        **task, **_SIZES, **own, "model.embedding": 10, "model.width": 32, "model.dropout": 0.0, "train.batch_size": 50,
        "train.validate_every": 50, "task.validation": 500, "task.test": 500,
    }  # fmt: skip
    return tuple(train_series(f"{model}/{n}", {**small, "model.name": model, "task.length": n}, (0, 1)) for model, n in runs)


def _printed_claims(table: int, lengths: Sequence[int], read_as: Mapping[str, float]) -> list[Claim]:
    """Return a claim for every printed number, once for the settings as printed and once as tuned."""
    found = []
    for start, how in (("", "settings as printed"), ("tuned/", "tuned")):
        for model, label in _LABELS.items():
            for n in lengths:
                for score in ("accuracy", "loss"):
                    key = f"table{table}/{model}/{n}/{score}"
                    number = VALUES[key]
                    says = f"{number.value:g}{' %' if score == 'accuracy' else ''}"
                    says += f", read as {read_as[key]:g} %" if key in read_as else ""
                    judged = {"model": f"{start}{model}/{n}", "score": score, "published": read_as.get(key, number.value)}
                    judged |= {"factor": 100.0, "unit": "%", "examples": 1000} if score == "accuracy" else {"higher": False}
                    judged |= {"own": True} if model == "urnn" else {}
                    impossible = key == "table4/urnn/400/loss"
                    judge = f"{_LOSSES}:judge_impossible_loss" if impossible else f"{_SCORES}:judge_printed"
                    if impossible:
                        judged = {"model": judged["model"], "published": number.value, "accuracy": 0.5673}
                    text = f"{label}, N = {n}, {how}: {score} on the test split"
                    text += ", at least as good as printed" if model == "urnn" else ""
                    found.append(Claim(f"{start}{model}/{n}/{score}", text, says, number.place, judge, key, judged))
    return found


def _compare(name: str, text: str, says: str, place: str, judge: str, **arguments: Any) -> Claim:
    return Claim(name, text, says, place, judge, arguments=arguments)


def _above_chance(chance: float, examples: int) -> float:
    """Return the accuracy that random answers stay below: three standard errors above chance."""
    return round(chance + 3 * math.sqrt(chance * (1 - chance) / examples), 4)


def _fails(start: str, n: int, level: float) -> Claim:
    return _compare(
        f"{start}fails", f"The RNN does not recall the first of {n} numbers: it is at chance",
        '"it fails to solve the problem for even the smallest testing value of N=20"', "Section 4.2",
        f"{_SCORES}:judge_baseline", beat=[], fail=[f"{start}rnn/{n}"], score="accuracy", baseline=level, higher=True,
    )  # fmt: skip


def _margin(start: str, lengths: Sequence[int]) -> Claim:
    return _compare(
        f"{start}margin",
        f"The uRNN is more accurate than the RNN by more than 10 points, at each N = {', '.join(map(str, lengths))}",
        '"outperformed the vanilla RNN system by a large margin on long inputs (i.e. N >= 50)"', "Section 4.2",
        f"{_SCORES}:judge_order", score="accuracy", least=0.1, paired=True,
        first=[f"{start}urnn/{n}" for n in lengths], then=[f"{start}rnn/{n}" for n in lengths],
    )  # fmt: skip


def _lower(start: str, n: int, place: str) -> Claim:
    return _compare(
        f"{start}loss", f"The uRNN ends with a lower loss than the RNN, N = {n}", "loss curves of the two models", place,
        f"{_SCORES}:judge_order", first=[f"{start}urnn/{n}"], then=[f"{start}rnn/{n}"], score="loss", higher=False,
    )  # fmt: skip


def _faster(start: str, n: int) -> Claim:
    return _compare(
        f"{start}speed", f"The uRNN reaches the best validation loss of the RNN in fewer steps, N = {n}",
        '"the uRNN shows a clear advantage both in training speed and test results"', "Section 4.2, experiment II",
        f"{_LOSSES}:judge_speed", fast=f"{start}urnn/{n}", slow=f"{start}rnn/{n}",
    )  # fmt: skip


def _progress(start: str, n: int, level: float) -> Claim:
    return _compare(
        f"{start}progress", f"The RNN does better than the best constant answer, N = {n}",
        '"the RNN is able to make some significant progress towards solving the problem in the case of N=100"',
        "Section 4.2, experiment II", f"{_SCORES}:judge_baseline",
        beat=[f"{start}rnn/{n}"], fail=[], score="accuracy", baseline=level, higher=True,
    )  # fmt: skip


def _falters(start: str, short: int, long: int) -> Claim:
    return _compare(
        f"{start}falters", f"The uRNN is less accurate for N = {long} than for N = {short}",
        '"even though it too starts to falter as N increases"', "Section 4.2, experiment II", f"{_SCORES}:judge_order",
        first=[f"{start}urnn/{short}"], then=[f"{start}urnn/{long}"], score="accuracy",
    )  # fmt: skip


_RECALL: dict[str, Any] = {"task.name": "recall", "task.symbols": 10, "train.stop.below": 0.01}
_LARGEST: dict[str, Any] = {"task.name": "largest", "task.k": 10}
_CONSTANT, _QUICK_CONSTANT = _above_chance(0.1362, 1000), _above_chance(0.1978, 500)
_STARTS = ("", "tuned/")

_QUICK_RECALL = _quick_series(
    {"task.name": "recall", "task.symbols": 5},
    {
        "model.nonlinearity": "tanh", "model.learn_initial_state": True, "train.optimizer.lr": 3e-3,
        "train.optimizer.transition_lr": 3e-4, "train.steps": 1500, "train.stop.below": 0.2,
    },
    (("rnn", 50), ("urnn", 50)),
)  # fmt: skip
_SOLVES = _compare(
    "solves", "The uRNN recalls the first of 50 numbers, more than 99 % of them", "99.98 to 100 %", "Table 3, row uRNN",
    f"{_SCORES}:judge_baseline", beat=["urnn/50"], fail=[], score="accuracy", baseline=0.99, higher=True,
)  # fmt: skip
_QUICK_FAILS = _fails("", 50, _above_chance(0.2, 500))

_TABLE_3 = Experiment(
    "lin-table3", "recall of the first of 20, 50 and 100 numbers", "Table 3", "gpu", 20,
    "printed accuracies; .936 is read as 9.36 %",
    quick=_QUICK_RECALL, full=_series(_RECALL, (20, 50, 100), 6000, _SEEDS, 50, 1000, _RECALLING),
    claims=(
        *_printed_claims(3, (20, 50, 100), {"table3/rnn/100/accuracy": 9.36}),
        *(_fails(start, 20, _above_chance(0.1, 1000)) for start in _STARTS),
        *(_margin(start, (50, 100)) for start in _STARTS),
    ),
    curves=f"{_LOSSES}:draw_losses", quick_claims=(_SOLVES, _QUICK_FAILS, _margin("", (50,))),
)  # fmt: skip

_FIGURE_1 = Experiment(
    "lin-fig1", "recall of the first number: curves", "Figure 1", "gpu", 7,
    "order of the models (same runs as lin-table3)",
    quick=_QUICK_RECALL, full=_series(_RECALL, (100,), 6000, _SEEDS, 50, 1000, _RECALLING),
    claims=tuple(
        claim
        for start in _STARTS
        for claim in (_lower(start, 100, "Figure 1"), _fails(start, 100, _above_chance(0.1, 1000)))
    ),
    curves=f"{_LOSSES}:draw_losses", quick_claims=(_lower("", 50, "Figure 1"), _QUICK_FAILS),
)  # fmt: skip

_QUICK_LARGEST = _quick_series(
    {"task.name": "largest", "task.k": 5},
    {"model.nonlinearity": "relu", "train.optimizer.lr": 3e-3, "train.optimizer.transition_lr": 3e-4, "train.steps": 800},
    (("rnn", 50), ("urnn", 50), ("urnn", 100)),
)

_TABLE_4 = Experiment(
    "lin-table4", "k-th largest of 100, 200 and 400 numbers", "Table 4", "gpu", 30,
    "printed accuracies; the loss printed for 400 numbers is impossible",
    quick=_QUICK_LARGEST, full=_series(_LARGEST, (100, 200, 400), 10_000, _SEEDS[:3], 100, 600),
    claims=(
        *_printed_claims(4, (100, 200, 400), {}),
        *(_margin(start, (100, 200, 400)) for start in _STARTS),
        *(_progress(start, 100, _CONSTANT) for start in _STARTS),
        *(_falters(start, 100, 400) for start in _STARTS),
    ),
    curves=f"{_LOSSES}:draw_losses",
    quick_claims=(_margin("", (50,)), _progress("", 50, _QUICK_CONSTANT), _falters("", 50, 100)),
)  # fmt: skip

_FIGURE_2 = Experiment(
    "lin-fig2", "k-th largest number: curves", "Figure 2", "gpu", 8,
    "order of the models (same runs as lin-table4)",
    quick=_QUICK_LARGEST[:2], full=_series(_LARGEST, (100,), 10_000, _SEEDS, 100, 600),
    claims=tuple(
        claim
        for start in _STARTS
        for claim in (_lower(start, 100, "Figure 2"), _faster(start, 100), _progress(start, 100, _CONSTANT))
    ),
    curves=f"{_LOSSES}:draw_losses",
    quick_claims=(_lower("", 50, "Figure 2"), _faster("", 50), _progress("", 50, _QUICK_CONSTANT)),
)  # fmt: skip

EXPERIMENTS = (_TABLE_3, _FIGURE_1, _TABLE_4, _FIGURE_2)
