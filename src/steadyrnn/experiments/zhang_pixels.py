"""Digits read pixel by pixel, of Zhang, Lei and Dhillon: Table 2, Figures 3 and 4; free of torch."""

from typing import Any

from .base import Claim, Experiment, Series
from .published.zhang import VALUES
from .trained_series import make_claim, search_series, train_series
from .zhang_sequences import MODELS

__all__ = ["FIGURE_3", "FIGURE_4", "TABLE_2"]

_SCORES = "steadyrnn.experiments.scores"
_COUNTS = "steadyrnn.experiments.parameter_counts"
_GRADIENTS = "steadyrnn.experiments.first_gradients"
_PICTURES = "steadyrnn.experiments.zhang_pictures"

_EPOCH = 430
"""Steps of an epoch: 55,000 training digits in batches of 128."""

_SEARCHED = 3 * _EPOCH
"""Steps of the first round of a search."""

_PIXELS: dict[str, Any] = {
    "task.name": "pixel-mnist", "train.epochs": 30, "train.batch_size": 128, "train.evaluation_batch_size": 1000,
    "train.log_every": _EPOCH,
}  # fmt: skip
_PRINTED: dict[str, Any] = {**_PIXELS, "train.schedule.name": "decay", "train.schedule.factor": 0.9}
"""Of the printed grid: batches of 128, the rate times 0.9 after every epoch; its four rates are the candidates."""

_TUNED: dict[str, Any] = {**_PIXELS, "train.schedule.name": "cosine"}

_PRINTED_RATES = tuple({"train.optimizer.lr": rate} for rate in (0.1, 0.01, 0.001, 0.0001))
_FREE_RATES = tuple({"train.optimizer.lr": rate} for rate in (3e-3, 1e-3, 3e-4, 1e-4))
_PAIRED_RATES = tuple(
    {"train.optimizer.lr": rate, "train.optimizer.transition_lr": slow}
    for rate, slow in ((3e-3, 3e-4), (1e-3, 1e-3), (1e-3, 1e-4), (3e-4, 1e-4))
)

_LEARNED: dict[str, Any] = {"model.learn_initial_state": True}
"""The printed counts of parameters include the initial state."""

_ROWS: dict[str, tuple[str, dict[str, Any], str]] = {
    "spectral-rnn": ("Spectral-RNN", {"model.name": "spectral", "model.width": 128, "model.reflectors": 16}, "all"),
    "ornn": ("oRNN", {"model.name": "ornn", "model.width": 256, "model.reflectors": 32}, "all"),
    "rnn": ("RNN", {"model.name": "rnn", "model.width": 128, "model.init": "orthogonal"}, "formula"),
    "urnn": ("uRNN", {"model.name": "unitary", "model.width": 1024}, "unbiased"),
    "rc-urnn": ("RC uRNN", {"model.name": "unitary", "model.width": 1024}, "unbiased"),
    "fc-urnn": ("FC uRNN", {"model.name": "unitary-full", "model.width": 232}, "unbiased"),
    "factorized-rnn": ("factorized RNN", {"model.name": "factorized", "model.width": 128}, "factors"),
    "lstm": ("LSTM", {"model.name": "lstm", "model.width": 128}, "recurrent"),
}
"""Rows of Table 2: name, model, and which count of parameters the paper prints. A complex unit is two real ones."""

_SAME = {"urnn": "rc-urnn"}
"""Rows that are one network in two papers: it is trained once."""

_TRAINED = tuple(row for row in _ROWS if row not in _SAME)
_CONSTRAINED = ("spectral-rnn", "ornn", "rc-urnn", "fc-urnn", "factorized-rnn")
_SEEDS = (0, 1, 2)


def _counts() -> tuple[Series, ...]:
    return tuple(
        Series(
            f"parameters/{row}", f"{_COUNTS}:count_parameters",
            {"settings": {**model, **_LEARNED}, "inputs": 1, "outputs": 10},
        )
        for row, (_, model, _) in _ROWS.items()
    )  # fmt: skip


def _table_2() -> tuple[Series, ...]:
    printed = {**_PRINTED, **_ROWS["spectral-rnn"][1], **_LEARNED}
    made = [search_series("spectral-rnn-printed", printed, _PRINTED_RATES, _SEARCHED)]
    runs = [train_series("spectral-rnn-printed/pixels-784", printed, _SEEDS, "spectral-rnn-printed")]
    for row in _TRAINED:
        own = {**_TUNED, **_ROWS[row][1], **_LEARNED}
        made.append(search_series(row, own, _PAIRED_RATES if row in _CONSTRAINED else _FREE_RATES, _SEARCHED))
        runs.append(train_series(f"{row}/pixels-784", own, _SEEDS, row))
    return *_counts(), *made, *runs


_SMALL: dict[str, Any] = {
    "task.validation": 1000, "train.epochs": 1, "train.steps": 300, "train.batch_size": 64, "train.validate_every": 50,
    "train.log_every": 50, "train.schedule.name": "constant", "train.optimizer.lr": 3e-3,
}  # fmt: skip
_NARROW: dict[str, dict[str, Any]] = {  # sizes of Appendix C
    "spectral-rnn": {"model.width": 32, "model.reflectors": 8}, "ornn": {"model.width": 32, "model.reflectors": 16},
    **{row: {"model.width": 32} for row in ("rnn", "rc-urnn", "fc-urnn", "factorized-rnn", "lstm")},
}  # fmt: skip


def _quick_table_2() -> tuple[Series, ...]:
    small = {**_PIXELS, **_SMALL, "task.pixels_per_step": 14}
    runs = [train_series(f"{row}/pixels-56", {**small, **_ROWS[row][1], **_LEARNED, **_NARROW[row]}, (0,)) for row in _TRAINED]
    return *_counts(), *runs


def _count_claims() -> tuple[Claim, ...]:
    return tuple(
        Claim(
            f"{row}-parameters", f"Parameters of the {label} on pixel-MNIST, in thousands",
            f"about {VALUES[f'table2/{row}/parameters-k'].value:g}k", f"Table 2, row {label}, column # parameters",
            f"{_COUNTS}:judge_count", f"table2/{row}/parameters-k",
            {"cell": f"parameters/{row}", "printed": VALUES[f"table2/{row}/parameters-k"].value, "part": part},
        )
        for row, (label, _, part) in _ROWS.items()
    )  # fmt: skip


def _accuracy(name: str, text: str, model: str, key: str) -> Claim:
    number, own = VALUES[key], model.startswith("spectral-rnn")
    arguments = {"model": model, "score": "accuracy", "published": number.value, "factor": 100.0, "unit": "%"}
    arguments |= {"own": True} if own else {}
    text += ", at least as good as printed" if own else ""
    return Claim(name, text, f"{number.value:g} %", number.place, f"{_SCORES}:judge_printed", key, arguments)


def _accuracy_claims() -> tuple[Claim, ...]:
    tuned = [
        _accuracy(
            row, f"Test accuracy of the {label} on pixel-MNIST, settings tuned", f"{_SAME.get(row, row)}/pixels-784",
            f"table2/{row}/accuracy",
        )
        for row, (label, _, _) in _ROWS.items()
    ]  # fmt: skip
    key, text = "spectral-rnn/accuracy", "Test accuracy of the Spectral-RNN on pixel-MNIST"
    return (
        *tuned,
        _accuracy("spectral-rnn-text", f"{text}, as the text has it", "spectral-rnn/pixels-784", f"section7.2/{key}"),
        _accuracy(
            "spectral-rnn-printed", f"{text}, with rates and decay of the printed grid", "spectral-rnn-printed/pixels-784",
            f"table2/{key}",
        ),
    )  # fmt: skip


def _highest(group: str) -> Claim:
    others = [f"{row}/{group}" for row in _TRAINED if row != "spectral-rnn"]
    return make_claim(
        "highest", "The test accuracy of the Spectral-RNN is the highest of all rows",
        "Spectral-RNN reaches the highest accuracy on pixel-MNIST", "Section 7.2", f"{_SCORES}:judge_order",
        first=[f"spectral-rnn/{group}"], then=others, score="accuracy",
    )  # fmt: skip


TABLE_2 = Experiment(
    "zhang-table2", "pixel-MNIST with 784 steps: eight models, parameters counted", "Table 2", "gpu", 30, "printed accuracies",
    quick=_quick_table_2(), full=_table_2(), claims=(*_count_claims(), *_accuracy_claims(), _highest("pixels-784")),
    quick_claims=(*_count_claims(), _highest("pixels-56")), curves=f"{_PICTURES}:draw_pixels", data=("mnist",),
)  # fmt: skip


_SIZES: dict[str, dict[str, Any]] = {
    **{name: {"model.width": 128} for name in ("rnn", "irnn", "lstm")},
    "ornn": {"model.width": 256, "model.reflectors": 32},
    "spectral": {"model.width": 128, "model.reflectors": 16},
}
_SMALL_SIZES: dict[str, dict[str, Any]] = {  # sizes of Appendix C
    **{name: {"model.width": 32} for name in ("rnn", "irnn", "lstm")},
    "ornn": {"model.width": 32, "model.reflectors": 16},
    "spectral": {"model.width": 32, "model.reflectors": 8},
}
_STEADY_SIZES: dict[str, dict[str, Any]] = {  # an eighth of the width are reflectors, as in Table 2: most directions are kept
    **_SMALL_SIZES,
    **{name: {"model.width": 32, "model.reflectors": 4} for name in ("ornn", "spectral")},
}
_READINGS: dict[str, dict[str, Any]] = {
    "pixels-392": {"task.name": "pixel-mnist", "task.pixels_per_step": 2},
    "pixels-784": {"task.name": "pixel-mnist"},
    "permuted-784": {"task.name": "permuted-mnist"},
}
_QUICK_READINGS: dict[str, dict[str, Any]] = {
    "pixels-56": {"task.name": "pixel-mnist", "task.pixels_per_step": 14},
    "pixels-112": {"task.name": "pixel-mnist", "task.pixels_per_step": 7},
    "permuted-56": {"task.name": "permuted-mnist", "task.pixels_per_step": 14},
}


def _figure_3() -> tuple[Series, ...]:
    shared = {**_PRINTED, "train.epochs": 15}
    made = [search_series(name, {**shared, **own, **_SIZES[name]}, _PRINTED_RATES, _SEARCHED) for name, own in MODELS.items()]
    runs = [
        train_series(f"{name}/{group}", {**shared, **reading, **own, **_SIZES[name]}, _SEEDS, name)
        for group, reading in _READINGS.items()
        for name, own in MODELS.items()
    ]
    return *made, *runs


def _quick_figure_3() -> tuple[Series, ...]:
    return tuple(
        train_series(f"{name}/{group}", {**_PIXELS, **_SMALL, **reading, **own, **_SMALL_SIZES[name]}, (0,))
        for group, reading in _QUICK_READINGS.items()
        for name, own in MODELS.items()
    )


def _order_claims(groups: dict[str, dict[str, Any]]) -> tuple[Claim, ...]:
    others = [name for name in MODELS if name != "spectral"]
    return tuple(
        make_claim(
            group, f"The test accuracy of the Spectral-RNN is the highest: {group.replace('-', ', ')} steps",
            "Spectral-RNN constantly yields the highest test accuracy", "Caption of Figure 3", f"{_SCORES}:judge_order",
            first=[f"spectral/{group}"], then=[f"{name}/{group}" for name in others], score="accuracy",
        )
        for group in groups
    )  # fmt: skip


FIGURE_3 = Experiment(
    "zhang-fig3", "pixel-MNIST with 392 and 784 steps and permuted: accuracy during training", "Figure 3", "gpu", 17,
    "order of the models", quick=_quick_figure_3(), full=_figure_3(), claims=_order_claims(_READINGS),
    quick_claims=_order_claims(_QUICK_READINGS), curves=f"{_PICTURES}:draw_pixels", data=("mnist",),
)  # fmt: skip


_RADII = {"spectral-r0.01": 0.01, "spectral-r0.1": 0.1, "spectral-r0.5": 0.5}
_PROBED: dict[str, Any] = {"train.probe.names": ["margin", "gradient-h0"]}


def _swept(sizes: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the models of Figure 4: the Spectral-RNN once for every radius."""
    free = {name: {**own, **sizes[name]} for name, own in MODELS.items() if name != "spectral"}
    return free | {name: {**MODELS["spectral"], **sizes["spectral"], "model.radius": radius} for name, radius in _RADII.items()}


def _figure_4() -> tuple[Series, ...]:
    shared = {**_PRINTED, **_PROBED, "train.epochs": 10, "train.probe.every": 43}
    made = [search_series(name, {**shared, **own, **_SIZES[name]}, _PRINTED_RATES, _SEARCHED) for name, own in MODELS.items()]
    runs = [train_series(name, {**shared, **own}, _SEEDS, name.partition("-")[0]) for name, own in _swept(_SIZES).items()]
    return *made, *runs


def _quick_figure_4() -> tuple[Series, ...]:
    small = {
        **_PIXELS, **_SMALL, **_PROBED, "task.pixels_per_step": 4, "train.steps": 200, "train.validate_every": 100,
        "train.probe.every": 10,
    }  # fmt: skip
    return tuple(train_series(name, {**small, **own}, (0,)) for name, own in _swept(_STEADY_SIZES).items())


_PLACE = "Section 7.2, and Figure 4"

_MEASURED = (
    make_claim(
        "irnn", "The IRNN starts within 0.001 of orthogonal, and is further than 0.1 from it after a tenth of the run",
        "IRNN has small spectral margin at first few iterations, it quickly deviates from being orthogonal", _PLACE,
        f"{_GRADIENTS}:judge_leaving", model="irnn", start=1e-3, end=0.1,
    ),
    make_claim(
        "radius", "The singular values of every Spectral-RNN stay within its radius: 0.01, 0.1, 0.5",
        "explored the effect of different spectral constraints and explicitly tracked the spectral margin", _PLACE,
        f"{_GRADIENTS}:judge_kept", radii=_RADII, rounding=128 * 2.0**-24 * 1.5,
    ),
    make_claim(
        "rnn", "The gradient of the RNN is below the roundoff of float32 in the first fifth of the run",
        "RNN suffers from vanishing gradient at first several epochs", _PLACE, f"{_GRADIENTS}:judge_early", model="rnn",
    ),
    make_claim(
        "lstm", "The gradient of the LSTM, later, is ten times the largest of oRNN and Spectral-RNN (radius 0.1), or more",
        "LSTM's gradient explode after several epochs", _PLACE, f"{_GRADIENTS}:judge_explosion",
        model="lstm", steady=["ornn", "spectral-r0.1"],
    ),
    make_claim(
        "steady", "The gradient of oRNN and Spectral-RNN (radius 0.1) changes by less than that of RNN and LSTM",
        "oRNN and Spectral-RNN have much more stable gradients", _PLACE, f"{_GRADIENTS}:judge_steady",
        steady=["ornn", "spectral-r0.1"], others=["rnn", "lstm"],
    ),
)  # fmt: skip

FIGURE_4 = Experiment(
    "zhang-fig4", "largest deviation of a singular value from 1 and norm of dL/dh_0 during training", "Figure 4", "gpu", 10,
    "the IRNN leaves orthogonality; the gradient of the RNN vanishes early, that of the LSTM explodes later; "
    "oRNN and Spectral-RNN are steady",
    quick=_quick_figure_4(), full=_figure_4(), curves=f"{_PICTURES}:draw_margins", data=("mnist",),
    claims=_MEASURED, quick_claims=tuple(claim for claim in _MEASURED if claim.name != "lstm"),  # that takes several epochs
)  # fmt: skip
