"""Figures and theorems of Emami et al.: unitary networks beside contractive ones."""

from typing import Any

from .base import Claim, Experiment, Series
from .trained_series import search_series, train_series

__all__ = ["EXPERIMENTS"]

_WORK = "steadyrnn.experiments.equivalence"
_SCORES = "steadyrnn.experiments.scores"
_IDENTIFY = "steadyrnn.experiments.system_identification"

_SEEDS = (0, 1, 2, 3, 4)
_NETWORKS = ((4, 0.9), (16, 0.99), (64, 0.9999))


def _theorems(steps: int, draws: int, seeds: tuple[int, ...]) -> tuple[Series, ...]:
    return (
        *(
            Series(f"theorem1/n{n}", f"{_WORK}:match_contractive", {"width": n, "norm": norm, "steps": steps}, seeds)
            for n, norm in _NETWORKS
        ),
        *(Series(f"theorem2/n{n}", f"{_WORK}:miss_with_fewer", {"width": n, "draws": draws}, seeds) for n in (1, 2, 3, 4)),
        *(Series(f"near/{r:g}", f"{_WORK}:approximate_with_fewer", {"width": 3, "ratio": r}) for r in (0.1, 0.001)),
        *(Series(f"theorem3/N{n}", f"{_WORK}:collapse_readout", {"units": n, "steps": n + 4}, seeds) for n in (3, 6)),
        *(Series(f"tanh/{p:g}", f"{_WORK}:approximate_with_twice", {"width": 4, "precision": p}, (0,)) for p in (1e-4, 1e-12)),
    )


_UNITS = 4
_COSINE = {"train.schedule.name": "cosine"}
_WIDTHS = (2, 4, 6, 8, 10, 12, 14)
_MODELS: dict[str, dict[str, Any]] = {
    "rnn": {"model.name": "rnn", "model.nonlinearity": "relu"},
    "urnn": {"model.name": "polar", "model.nonlinearity": "relu"},
    "lstm": {"model.name": "lstm"},
}
_RECORDS = {
    "task.name": "contractive", "task.length": 1000, "task.epsilon": 0.01, "task.units": _UNITS, "task.active": 0.6,
    "task.train": 600, "task.validation": 100, "task.test": 300, "train.batch_size": 10, "train.evaluation_batch_size": 100,
}  # fmt: skip
"""Tests have 3 of 10 records, as printed. How many records there are is not printed; 1000 are ours, 100 for validation."""
_STARTS: dict[str, tuple[dict[str, Any], ...]] = {
    "rnn": ({}, {"model.init": "identity"}),
    "urnn": ({}, {"model.init": "identity"}),
    "lstm": ({}, {"model.forget_bias": 1.0}),
}
_SHORT_RECORDS = {
    **_RECORDS, "task.length": 40, "task.epsilon": 0.5, "task.train": 200, "task.validation": 20, "task.test": 100,
    "train.steps": 600, "train.validate_every": 60, "train.optimizer.lr": 0.03, "train.schedule.name": "cosine",
    "train.device": "cpu",
}  # fmt: skip
"""In 40 steps a system that forgets 50 times as fast: 20 of its time constants, where the paper has 10."""


def _identify(row: str, model: str, width: int, given: dict[str, Any], sizes: dict[str, int], after: str | None) -> Series:
    settings = {**_MODELS[model], **given, "model.width": width}
    return Series(f"{row}/{model}/n{width}", f"{_IDENTIFY}:identify_systems", {"settings": settings, **sizes}, (0,), after)


def _identification(snr: float) -> tuple[Series, ...]:
    """Search, then 30 realizations with the printed settings, and with tuned ones and four starts each."""
    records = {**_RECORDS, "task.snr": snr}
    printed, tuned = {**records, "train.epochs": 10, "train.optimizer.lr": 0.01}, {**records, "train.epochs": 10, **_COSINE}
    return (
        *(
            Series(
                f"search/{model}", f"{_IDENTIFY}:search_identification",
                {
                    "settings": {**tuned, **_MODELS[model], "model.width": 2 * _UNITS},
                    "candidates": [{"train.optimizer.lr": lr, **start} for lr in (0.03, 0.01) for start in _STARTS[model]],
                    "steps": 180, "realizations": 10,
                },
            )
            for model in _MODELS
        ),
        *(
            _identify("printed", model, width, printed, {"realizations": 30, "starts": 1}, None)
            for model in _MODELS
            for width in _WIDTHS
        ),
        *(
            _identify("tuned", model, width, tuned, {"realizations": 30, "starts": 4}, f"search/{model}")
            for model in _MODELS
            for width in _WIDTHS
        ),
    )  # fmt: skip


def _short_identification(snr: float) -> tuple[Series, ...]:
    """Five realizations; the LSTM, which no claim is about, at two sizes."""
    given = {model: {**_SHORT_RECORDS, "task.snr": snr, **starts[1]} for model, starts in _STARTS.items()}
    widths = {"rnn": (2, 4, 8, 12), "urnn": (2, 4, 8, 12), "lstm": (4, 8)}
    sizes = {"realizations": 5, "starts": 4}
    return tuple(_identify("tuned", model, n, given[model], sizes, None) for model, own in widths.items() for n in own)


def _identification_claims(figure: str, rows: tuple[str, ...]) -> tuple[Claim, ...]:
    place = f"Main Results, under Theorem 1; {figure}"
    return tuple(
        Claim(
            f"{name}-{row}", f"{text} ({row} settings)", says, place, f"{_IDENTIFY}:{judge}",
            arguments={"row": row, "units": _UNITS},
        )
        for row in rows
        for name, text, says, judge in (
            (
                "fewer", "A URNN of fewer than twice the true system's states has a lower R^2 than an RNN of the same size",
                "cost: two-fold increase in state dimension", "judge_fewer_states",
            ),
            (
                "twice", "A URNN of at least twice the true system's states matches the RNN of the same size, up to the noise",
                "no loss in modeling with URNNs compared to RNNs", "judge_twice_the_states",
            ),
            (
                "ceiling", "Both then explain all but the noise: their error is at most twice that of the true system",
                "no loss in modeling with URNNs compared to RNNs", "judge_ceiling",
            ),
        )
    )  # fmt: skip


def _figure(number: int, snr: float) -> Experiment:
    return Experiment(
        f"emami-fig{number}", f"system identification at {snr:g} dB: R^2 against hidden units, RNN, URNN and LSTM",
        f"Figure {number}", "gpu", 30, "the URNN needs about twice the states of the RNN, then matches it",
        quick=_short_identification(snr), full=_identification(snr), curves=f"{_IDENTIFY}:draw_identification",
        claims=_identification_claims(f"Figure {number}", ("printed", "tuned")),
        quick_claims=_identification_claims(f"Figure {number}", ("tuned",)),
    )  # fmt: skip


_UNITARY: dict[str, dict[str, Any]] = {
    "urnn": _MODELS["urnn"], "urnn-restricted": {"model.name": "unitary"}, "urnn-full": {"model.name": "unitary-full"},
}  # fmt: skip
"""The URNN by projection, and those of references 1 and 3 of the paper; that of reference 2 is not in the package."""
_CLASSIFIERS = {
    "rnn": _MODELS["rnn"], "contractive": {"model.name": "contractive", "model.nonlinearity": "relu"}, **_UNITARY,
    "lstm": _MODELS["lstm"],
}  # fmt: skip
_PERMUTED = {
    "task.name": "permuted-mnist", "train.optimizer.name": "rmsprop", "train.stop.patience": 3, "model.width": 128,
    "train.batch_size": 128, "train.evaluation_batch_size": 1000, "train.epochs": 10,
}  # fmt: skip
"""RMSprop and early stopping are printed; the rest is ours. The learning rate is searched."""
_PERMUTED_QUICK = {
    **_PERMUTED, "task.pixels_per_step": 14, "task.validation": 2000, "train.steps": 400, "train.validate_every": 100,
    "train.batch_size": 64, "train.optimizer.lr": 1e-3, "model.width": 64, "train.device": "cpu",
}  # fmt: skip
_ONES = 0.1135
"""Share of the most frequent digit among the test images: 1135 of 10,000."""


def _classify() -> tuple[Series, ...]:
    rates = [{"train.optimizer.lr": lr} for lr in (1e-4, 3e-4, 1e-3, 3e-3)]
    three_epochs = 1290
    given = {model: {**_PERMUTED, **own} for model, own in _CLASSIFIERS.items()}
    return (
        *(
            search_series(model, settings, rates, three_epochs)
            for model, settings in given.items()
        ),
        *(
            train_series(model, settings, (0, 1, 2), model)
            for model, settings in given.items()
        ),
    )  # fmt: skip


def _classify_quickly() -> tuple[Series, ...]:
    """Two seeds, one of those that no order is about."""
    seeds = {"urnn-restricted": (0,), "urnn-full": (0,)}
    return tuple(
        train_series(model, {**_PERMUTED_QUICK, **own}, seeds.get(model, (0, 1))) for model, own in _CLASSIFIERS.items()
    )


EXPERIMENTS = (
    _figure(2, 20.0),
    _figure(3, 15.0),
    Experiment(
        "emami-fig4", "permuted MNIST: accuracy of RNN, URNN, LSTM and kin", "Figure 4", "gpu", 25,
        "accuracy and order of the models", quick=_classify_quickly(), full=_classify(), data=("mnist",),
        curves="steadyrnn.experiments.permuted_digits:draw_accuracy",
        claims=(
            Claim(
                "order", "The URNN is more accurate than the RNN, free or contractive, of the same size",
                "no loss in modeling with URNNs compared to RNNs", "Main Results, under Theorem 1; Figure 4",
                f"{_SCORES}:judge_order", arguments={"first": ["urnn"], "then": ["rnn", "contractive"], "score": "accuracy"},
            ),
            Claim(
                "stability", "No unitary network diverges or stays at the accuracy of one digit for all images",
                "overcome the vanishing/exploding gradient problem; improve the stability of the network",
                "Background, Unitary RNNs; Figure 4", f"{_SCORES}:judge_baseline",
                arguments={"beat": [*_UNITARY], "fail": [], "score": "accuracy", "baseline": _ONES, "higher": True},
            ),
        ),
    ),
    Experiment(
        "emami-theorems", "Theorems 1 to 3 as demonstrations that run", "Main Results", "seconds", 0.2,
        "2n unitary units equal n contractive ReLU units, fewer do not; no number of sigmoid units does",
        quick=_theorems(500, 20, (0,)), full=_theorems(10_000, 200, _SEEDS), curves=f"{_WORK}:show_theorems",
        claims=(
            Claim(
                "theorem-1",
                "Every contractive ReLU network of n units has a unitary one of at most 2n units with the same outputs",
                "at most 2n hidden states with the identical input-output mapping", "Theorem 1", f"{_WORK}:judge_identical",
            ),
            Claim(
                "theorem-2", "For every n some contractive ReLU network needs 2n unitary units",
                "every equivalent URNN has at least 2n states", "Theorem 2", f"{_WORK}:judge_size",
            ),
            Claim(
                "theorem-3", "Some contractive sigmoid network equals no finite unitary one",
                "no URNN with any finite number of states that exactly matches the input-output mapping", "Theorem 3",
                f"{_WORK}:judge_collapse",
            ),
        ),
    ),
)  # fmt: skip
"""In the order of the paper."""
