"""Penn Treebank with abs(x), ReLU and leaky ReLU: Table 5 and Figures 3 and 4 of Lin and Wang."""

from collections.abc import Mapping, Sequence
from typing import Any

from .base import Claim, Experiment, Series
from .published.lin import VALUES
from .trained_series import claim_lower_perplexity, claim_perplexity, search_series, train_series

__all__ = ["EXPERIMENTS"]

_NORMS = "steadyrnn.experiments.gradient_norms"
_LOSSES = "steadyrnn.experiments.loss_curves"
_SENTENCES = "steadyrnn.experiments.sentences"
_SEEDS = (0, 1, 2)
_LABELS = {"rnn": "RNN", "urnn": "uRNN"}

_ACTIVATIONS: dict[str, dict[str, Any]] = {
    "abs": {"model.nonlinearity": "abs"},
    "relu": {"model.nonlinearity": "relu"},
    "leaky-relu": {"model.nonlinearity": "leaky_relu", "model.slope": 0.5},
    "leaky-0.95": {"model.nonlinearity": "leaky_relu", "model.slope": 0.95},
}
_COMPARED = ("abs", "relu", "leaky-relu")

_READINGS: dict[str, dict[str, dict[str, Any]]] = {
    "table9": {name: {"task.bptt": 50, "model.width": 200} for name in _COMPARED},
    "table6": {name: {"task.bptt": 30, "model.width": 100 if name == "abs" else 200} for name in _ACTIVATIONS},
}
"""The paper contradicts itself: steps of backpropagation and hidden units of Table 9, and of the caption of Table 6."""

_EPOCH = 388
"""Batches of 80 rows and 30 steps in the training text."""

_LANGUAGE: dict[str, Any] = {
    "task.name": "ptb", "model.embedding": 400, "model.dropout": 0.2, "model.init_uniform": 0.1,
    "train.batch_size": 80, "train.clip.norm": None, "train.clip.recurrent": 0.25,
}  # fmt: skip
"""Of Table 9 and Section 5.1. Embedding and readout start as in the program that the paper adapted."""

_PRINTED: dict[str, Any] = {**_LANGUAGE, "train.optimizer.lr": 1e-4, "train.epochs": 40}
"""As printed, except for 40 epochs instead of 300."""

_TUNED: dict[str, Any] = {
    **_LANGUAGE, "train.epochs": 20, "train.schedule.name": "plateau", "train.schedule.factor": 0.25,
    "train.schedule.patience": 1,
}  # fmt: skip
_CANDIDATES = [{"train.optimizer.lr": rate} for rate in (3e-4, 1e-3, 2e-3, 5e-3)]

_PROBED: dict[str, Any] = {"train.probe.every": _EPOCH, "train.probe.names": ["state-jacobian", "dead-units"]}

_SMALL: dict[str, Any] = {
    **_LANGUAGE, "task.bptt": 20, "model.embedding": 16, "model.width": 16, "model.dropout": 0.0, "train.batch_size": 20,
    "train.optimizer.lr": 3e-3, "train.steps": 120,
}  # fmt: skip


def _search(model: str, name: str) -> Series:
    """Return the search of the learning rate of a model with an activation, in the sizes of Table 6."""
    settings = {**_TUNED, **_ACTIVATIONS[name], "model.name": model, **_READINGS["table6"][name]}
    return search_series(f"{model}/{name}", settings, _CANDIDATES, 3 * _EPOCH)


def _compare_activations() -> tuple[Series, ...]:
    """Return the runs of both readings as printed, and those of the second one as tuned, each after a search of its rate."""
    found = list[Series]()
    for model in _LABELS:
        for name in _COMPARED:
            own = {**_ACTIVATIONS[name], "model.name": model}
            found += [
                train_series(f"{key}/{model}/{name}", {**_PRINTED, **own, **reading[name]}, _SEEDS)
                for key, reading in _READINGS.items()
            ]
            search = _search(model, name)
            found += [search, train_series(f"tuned/{model}/{name}", search.arguments["settings"], _SEEDS, f"{model}/{name}")]
    return tuple(found)


def _printed_claims() -> tuple[Claim, ...]:
    """Return a claim for each number of Table 5 and each way of training."""
    found = []
    for start, how in (("table9", "settings of Table 9"), ("table6", "sizes of Table 6"), ("tuned", "tuned")):
        for model, label in _LABELS.items():
            for name in _COMPARED:
                for split in ("validation", "test"):
                    key, series = f"table5/{model}/{name}/{split}", f"{start}/{model}/{name}"
                    text = f"{label} with {name}, {how}: {split} perplexity"
                    found.append(claim_perplexity(series, key, VALUES[key], split, text, own=model == "urnn"))
    return tuple(found)


def _orders(start: str, how: str) -> tuple[Claim, ...]:
    """Return who is said to win, by activation."""
    said = (
        ("abs", "urnn", "rnn", '"the uRNN is able to outperform the RNN in two cases": abs(x) and ReLU'),
        ("relu", "urnn", "rnn", '"the uRNN is able to outperform the RNN in two cases": abs(x) and ReLU'),
        ("leaky-relu", "rnn", "urnn", '"its worse performance", the uRNN with leaky ReLU'),
    )
    return tuple(
        claim_lower_perplexity(
            f"{start}order/{name}", f"{start}{first}/{name}", f"{start}{then}/{name}",
            (_LABELS[first], _LABELS[then], f" with {name}{how}"), says, "Section 5.2",
        )
        for name, first, then, says in said
    )  # fmt: skip


_TABLE_5 = Experiment(
    "lin-table5", "Penn Treebank with abs(x), ReLU and leaky ReLU", "Table 5", "gpu", 30,
    "the uRNN wins with abs(x) and ReLU, and loses with leaky ReLU",
    quick=tuple(
        train_series(f"{model}/{name}", {**_SMALL, **_ACTIVATIONS[name], "model.name": model}, (0,))
        for model in _LABELS
        for name in _COMPARED
    ),
    full=_compare_activations(),
    claims=(
        *_orders("table9/", ", settings of Table 9"), *_orders("table6/", ", sizes of Table 6"), *_orders("tuned/", ", tuned"),
        *_printed_claims(),
    ),
    curves=f"{_LOSSES}:draw_perplexities", data=("ptb",), quick_claims=_orders("", ""),
)  # fmt: skip

_PROMPTS = ["this", "the", "in", "but", "he", "it", "we", "a"]


def _write(name: str, settings: Mapping[str, Any], seeds: tuple[int, ...] = _SEEDS, after: str | None = None) -> Series:
    own = {**settings, **_ACTIVATIONS["abs"], "model.name": "urnn"}
    arguments = {"settings": own, "prompts": _PROMPTS, "longest": 80}
    return Series(name, f"{_SENTENCES}:write_sentences", arguments, seeds, after, resumable=True)


def _sentence_claims(start: str, how: str) -> tuple[Claim, ...]:
    return (
        Claim(
            f"{start}long",
            f"The longest of {len(_PROMPTS)} greedy sentences of the uRNN{how} is as long as the one shown, before it ends or "
            "repeats a phrase, in the mean over seeds",
            '"able to produce long sentences"; the one shown has 46 words', "Section 5.2 and Figure 3",
            f"{_SENTENCES}:judge_length", arguments={"model": f"{start}urnn/abs", "words": 46},
        ),
        Claim(
            f"{start}phrases", f"The training text has most phrases of the sentences of the uRNN{how}",
            '"different sub-phrases appear logical in isolation"', "Section 5.2",
            f"{_SENTENCES}:judge_phrases", arguments={"model": f"{start}urnn/abs"},
        ),
    )  # fmt: skip


_FIGURE_3 = Experiment(
    "lin-fig3", "sentences that the uRNN writes", "Figure 3", "gpu", 5,
    "sentences (same runs as lin-table5)",
    quick=(
        _write(
            "urnn/abs",
            {**_SMALL, "model.embedding": 64, "model.width": 64, "train.steps": 600}, (0,),
        ),
    ),
    full=(
        _write("urnn/abs", {**_PRINTED, **_READINGS["table6"]["abs"]}),
        _search("urnn", "abs"),
        _write("tuned/urnn/abs", {**_TUNED, **_READINGS["table6"]["abs"]}, after="search/urnn/abs"),
    ),
    claims=(*_sentence_claims("", ""), *_sentence_claims("tuned/", ", tuned,")),
    data=("ptb",), quick_claims=_sentence_claims("", ""),
)  # fmt: skip


def _follow_norms(
    settings: Mapping[str, Any], sizes: Mapping[str, Mapping[str, Any]], short: Mapping[str, Any], seeds: tuple[int, ...]
) -> tuple[Series, ...]:
    """Return the bounds, and the runs whose norms are followed; the one with slope 0.95, on some of the text, is short."""
    bands = [
        Series(
            f"band/{name}", f"{_NORMS}:predict_band",
            {"width": sizes[name]["model.width"], "slope": slope, "lag": sizes[name]["task.bptt"] - 1},
        )
        for name, slope in (("abs", 1.0), ("relu", 0.0), ("leaky-relu", 0.5), ("leaky-0.95", 0.95))
    ]  # fmt: skip
    runs = [
        train_series(f"{model}/{name}", {**settings, **_ACTIVATIONS[name], **sizes[name], "model.name": model}, seeds)
        for model in _LABELS
        for name in _COMPARED
    ]
    last = {**settings, **_ACTIVATIONS["leaky-0.95"], **sizes["leaky-0.95"], "model.name": "urnn", **short}
    return (*bands, *runs, train_series("urnn/leaky-0.95", last, seeds))


def _norm_claims(steps: Sequence[int], when: str) -> tuple[Claim, ...]:
    early, late = steps[0], steps[-1]
    return (
        Claim(
            "abs", "The norm of dx_t/dx_1 in the uRNN with abs(x) is sqrt(n) in every batch",
            '"level at the predicted value of 10 even at epoch 100 [...] with a difference on the order of 10^-5"',
            "Section 5.2", f"{_NORMS}:judge_constant_norm", "section5.2/abs/deviation",
            {"model": "urnn/abs", "band": "band/abs", "deviation": 1e-5},
        ),
        Claim(
            "fluctuates", f"The norm in the RNN with abs(x) varies over the batches, {when}",
            '"the gradients of the vanilla RNN continued to fluctuate"', "Section 5.2", f"{_NORMS}:judge_fluctuation",
            arguments={"steady": "urnn/abs", "other": "rnn/abs", "step": late},
        ),
        *(
            Claim(
                f"larger/{name}", f"Norms in the uRNN with {name} are a hundred times those in the RNN, {when}",
                '"generally two orders of magnitude larger"', "Section 5.2", f"{_NORMS}:judge_larger_norms",
                "section5.2/orders-of-magnitude",
                {"first": f"urnn/{name}", "then": f"rnn/{name}", "steps": [early, late], "factor": 100.0},
            )
            for name in ("relu", "leaky-relu")
        ),
        *(
            Claim(
                f"decay/{name}", f"Norms of both networks with {name} become smaller, {when}",
                '"decayed with the number of epochs"', "Section 5.2", f"{_NORMS}:judge_decay",
                arguments={"models": [f"rnn/{name}", f"urnn/{name}"], "steps": [early, late]},
            )
            for name in ("relu", "leaky-relu")
        ),
        Claim(
            "band", "The norm in the uRNN with leaky ReLU of slope 0.95 is in the predicted band",
            '"the gradient norm indeed fell within the predicted range"', "Section 5.2", f"{_NORMS}:judge_band",
            "section5.2/leaky-relu/slope", {"model": "urnn/leaky-0.95", "band": "band/leaky-0.95"},
        ),
        Claim(
            "dead", f"More than half of the units of the uRNN with ReLU are dead, {when}",
            '"towards the later stages of training, most hidden units were dead" (offered as a possible explanation)',
            "Section 5.2", f"{_NORMS}:judge_dead_units", arguments={"model": "urnn/relu", "step": late, "share": 0.5},
        ),
    )  # fmt: skip


_QUICK_NORMS = {**_SMALL, "train.optimizer.lr": 1e-2, "train.steps": 60, **_PROBED, "train.probe.every": 20}
_QUICK_SIZES = {name: {"task.bptt": 20, "model.width": 16} for name in _ACTIVATIONS}

_FIGURE_4 = Experiment(
    "lin-fig4", "norm of dx_t/dx_1 per batch at epochs 7 and 100", "Figure 4", "gpu", 14,
    "abs(x) is flat at 10 (same runs as lin-table5; 40 epochs instead of 100)",
    quick=_follow_norms(_QUICK_NORMS, _QUICK_SIZES, {}, (0,)),
    full=_follow_norms({**_PRINTED, **_PROBED}, _READINGS["table6"], {"train.epochs": 7}, _SEEDS),
    claims=_norm_claims((7 * _EPOCH, 40 * _EPOCH), "at epochs 7 and 40"),
    curves=f"{_NORMS}:draw_norms", data=("ptb",), quick_claims=_norm_claims((20, 60), "after 20 and 60 steps"),
)  # fmt: skip

EXPERIMENTS = (_TABLE_5, _FIGURE_3, _FIGURE_4)
