"""Word-level language models of Zhang, Lei and Dhillon on the Penn Treebank; free of torch."""

from collections.abc import Sequence
from typing import Any

from .base import Claim, Experiment, Series
from .published.zhang import VALUES
from .trained_series import search_series, train_series

__all__ = ["TABLE_3"]

_SCORES = "steadyrnn.experiments.scores"
_WORK = "steadyrnn.experiments.word_prediction"
_SYSTEMS = {"rnn": "rnn", "lstm": "lstm", "spectral-rnn": "spectral"}
_ROWS = [(model, layers) for layers in (1, 2) for model in _SYSTEMS]
_DROPPED = {"dropped": 0.8, "kept": 0.2}
"""The two readings of "80% dropout": the share that is dropped, or the share that is kept."""
_READINGS = {1: ("printed", "tuned"), 2: ("dropped", "kept", "tuned")}
"""Of each number of layers, how the settings are read: as printed, or with a rate (and dropout) chosen on validation data."""


def _network(model: str, layers: int, width: int, reflectors: int) -> dict[str, Any]:
    """Return the settings of a language model, words embedded in as many numbers as it has units."""
    own: dict[str, Any] = {} if model == "lstm" else {"model.nonlinearity": "leaky_relu", "model.slope": 0.2}
    own |= {"model.reflectors": reflectors, "model.radius": 0.1} if model == "spectral-rnn" else {}
    sizes = {"model.width": width, "model.embedding": width, "model.layers": layers, "model.init_uniform": 0.1}
    return {"task.name": "ptb", "model.name": _SYSTEMS[model], **sizes, **own}


def _printed_network(model: str, layers: int) -> dict[str, Any]:
    return _network(model, layers, int(VALUES[f"table3/{model}/{layers}/hidden"].value), 32)


_TRAINING = {
    "task.bptt": 300, "train.batch_size": 20, "train.epochs": 20, "train.log_every": 155, "train.clip.norm": 1.0,
    "train.schedule.name": "decay", "train.schedule.factor": 0.8, "train.optimizer.name": "adam",
}  # fmt: skip
"""Length and decay of Section 7.3, Adam of Section 7; batch, epochs and clipping are not printed. An epoch has 155 steps."""
_CANDIDATES: dict[int, list[dict[str, Any]]] = {
    1: [{"train.optimizer.lr": lr} for lr in (0.01, 0.003, 0.001, 0.0003)],
    2: [{"train.optimizer.lr": lr, "model.dropout": rate} for lr in (0.003, 0.001) for rate in _DROPPED.values()],
}


def _series(model: str, layers: int) -> list[Series]:
    """Return the full runs of a row: its search, then three seeds of every reading."""
    row, settings = f"{model}/{layers}", {**_printed_network(model, layers), **_TRAINING}
    series = [search_series(row, settings, _CANDIDATES[layers], 465)]
    for reading in _READINGS[layers]:
        tuned = reading == "tuned"
        rate = {} if tuned else {"train.optimizer.lr": VALUES["section7.3/learning-rate"].value}
        dropout = {} if tuned or layers == 1 else {"model.dropout": _DROPPED[reading]}
        series.append(train_series(f"{row}/{reading}", {**settings, **rate, **dropout}, (0, 1, 2), row if tuned else None))
    return series


_COUNTS = tuple(
    Series(f"count/{model}/{layers}", f"{_WORK}:count_recurrent", {"settings": _printed_network(model, layers)})
    for model, layers in _ROWS
)

_QUICK_TRAINING = {
    **{key: value for key, value in _TRAINING.items() if key != "train.schedule.factor"}, "task.bptt": 30,
    "task.evaluation_rows": 20, "train.steps": 150, "train.validate_every": 150, "train.log_every": 10,
    "train.schedule.name": "constant", "train.optimizer.lr": 0.01,
}  # fmt: skip


def _quick_series(model: str, layers: int, reading: str) -> Series:
    width = 64 if model == "spectral-rnn" else 32
    dropout = {"model.dropout": _DROPPED[reading]} if reading in _DROPPED else {}
    settings = {**_network(model, layers, width, 8), **_QUICK_TRAINING, **dropout}
    return train_series(f"{model}/{layers}/{reading}", settings, (0,))


def _count_claim(model: str, layers: int) -> Claim:
    key = f"table3/{model}/{layers}/parameters-k"
    number = VALUES[key].value
    return Claim(
        f"{model}-{layers}-parameters", f"Recurrent parameters of {_title(model, layers)}", f"about {number:g}k",
        VALUES[key].place, f"{_WORK}:judge_count", key, {"model": f"{model}/{layers}", "published": number},
    )  # fmt: skip


def _perplexity_claims(model: str, layers: int, reading: str) -> list[Claim]:
    """Return the claims of both printed perplexities of a row."""
    claims, series = [], f"{model}/{layers}/{reading}"
    own = model == "spectral-rnn"
    tested = {"score": "perplexity", "higher": False, **({"own": True} if own else {})}
    judged = {"test": ("judge_printed", tested), "train": ("judge_training", {})}
    for part, (judge, more) in judged.items():
        key = f"table3/{model}/{layers}/{part}-perplexity"
        text = f"{part.capitalize()} perplexity of {_title(model, layers)}, {_WORDS[reading]}"
        text += ", at least as good as printed" if own and part == "test" else ""
        number, path = VALUES[key].value, _SCORES if part == "test" else _WORK
        arguments = {"model": series, "published": number, **more}
        name = f"{model}-{layers}-{reading}-{part}"
        claims.append(Claim(name, text, f"{number:g}", VALUES[key].place, f"{path}:{judge}", key, arguments))
    return claims


def _order_claim(layers: int, reading: str) -> Claim:
    arguments = {"first": [f"spectral-rnn/{layers}/{reading}"], "then": [f"lstm/{layers}/{reading}"]}
    return Claim(
        f"order-{layers}-{reading}",
        f"{layers} layer{'s' if layers > 1 else ''}, {_WORDS[reading]}: the Spectral-RNN has a lower perplexity than the LSTM",
        "better performance than LSTM with about half the number of parameters", "Section 7.3", f"{_SCORES}:judge_order",
        arguments={**arguments, "score": "perplexity", "higher": False},
    )  # fmt: skip


_WORDS = {
    "printed": "settings as printed",
    "small": "small networks after 150 steps",
    "dropped": "80 % of entries dropped",
    "kept": "80 % of entries kept",
    "tuned": "settings chosen on validation data",
}
_TITLES = {"rnn": "RNN", "lstm": "LSTM", "spectral-rnn": "Spectral-RNN"}


def _title(model: str, layers: int) -> str:
    return f"{_TITLES[model]}({layers},{VALUES[f'table3/{model}/{layers}/hidden'].value:g})"


_QUICK_READINGS: Sequence[tuple[int, str]] = ((1, "small"), (2, "dropped"), (2, "kept"))

TABLE_3 = Experiment(
    "zhang-table3", "Penn Treebank, one and two layers", "Table 3", "gpu", 40,
    "printed perplexities, and the order against the LSTM",
    quick=(
        *_COUNTS,
        *(_quick_series(model, layers, reading) for layers, reading in _QUICK_READINGS for model in ("lstm", "spectral-rnn")),
    ),
    full=(*_COUNTS, *(one for model, layers in _ROWS for one in _series(model, layers))),
    claims=(
        *(_count_claim(model, layers) for model, layers in _ROWS),
        *(
            claim
            for model, layers in _ROWS
            for reading in _READINGS[layers]
            for claim in _perplexity_claims(model, layers, reading)
        ),
        *(_order_claim(layers, reading) for layers in (1, 2) for reading in _READINGS[layers]),
        Claim(
            "generalization", "2 layers, settings chosen on validation data: the Spectral-RNN has a lower test perplexity than "
            "the LSTM and a higher one on the training text",
            "lower test perplexity with higher training perplexity", "Section 7.3", f"{_WORK}:judge_generalization",
            arguments={"model": "spectral-rnn/2/tuned", "other": "lstm/2/tuned"},
        ),
    ),
    quick_claims=(
        *(_count_claim(model, layers) for model, layers in _ROWS),
        *(_order_claim(layers, reading) for layers, reading in _QUICK_READINGS),
    ),
    curves=f"{_WORK}:collect_perplexities", data=("ptb",),
)  # fmt: skip
