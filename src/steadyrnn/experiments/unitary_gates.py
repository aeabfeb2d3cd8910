"""GRU and uGRU on Penn Treebank: Table 7 of Lin and Wang, with the time of a step."""

from typing import Any

from .base import Claim, Experiment, Series
from .published.lin import VALUES
from .trained_series import claim_lower_perplexity, claim_perplexity, search_series, train_series

__all__ = ["EXPERIMENTS"]

_SCORES = "steadyrnn.experiments.scores"
_TIMES = "steadyrnn.experiments.step_times"
_LABELS = {"gru": "GRU", "ugru": "uGRU"}

_LANGUAGE: dict[str, Any] = {
    "task.name": "ptb", "model.embedding": 400, "model.width": 200, "model.init_uniform": 0.1, "train.epochs": 40,
    "train.batch_size": 80, "train.clip.norm": None, "train.clip.recurrent": 0.25,
}  # fmt: skip
"""Of Table 9, except for 40 epochs instead of 300."""

_PRINTED: dict[str, Any] = {**_LANGUAGE, "model.dropout": 0.2, "train.optimizer.lr": 1e-4}
_TUNED: dict[str, Any] = {
    **_LANGUAGE, "train.schedule.name": "plateau", "train.schedule.factor": 0.25, "train.schedule.patience": 1,
}  # fmt: skip
_CANDIDATES = [{"train.optimizer.lr": rate, "model.dropout": share} for rate in (1e-3, 3e-3) for share in (0.2, 0.5)]
_SEARCHED = 3 * 332  # three epochs of batches of 35 steps

_SMALL: dict[str, Any] = {
    **_LANGUAGE, "model.embedding": 16, "model.width": 16, "train.batch_size": 20, "train.optimizer.lr": 1e-2,
}  # fmt: skip
_TOY: dict[str, Any] = {
    "task.name": "recall", "task.length": 100, "model.embedding": 30, "model.width": 50, "model.dropout": 0.2,
    "model.nonlinearity": "tanh", "train.batch_size": 100, "train.clip.norm": None,
}  # fmt: skip


def _time(name: str, settings: dict[str, Any], model: str, beside: str) -> Series:
    return Series(name, f"{_TIMES}:compare_step_times", {"settings": settings, "model": model, "beside": beside})


def _full() -> tuple[Series, ...]:
    found = list[Series]()
    for model in _LABELS:
        named, lengths = {"model.name": model}, (35, 150)
        found += [train_series(f"{model}/{bptt}", {**_PRINTED, **named, "task.bptt": bptt}, (0, 1, 2)) for bptt in lengths]
        found.append(search_series(model, {**_TUNED, **named, "task.bptt": 35}, _CANDIDATES, _SEARCHED))
        found += [
            train_series(f"tuned/{model}/{bptt}", {**_TUNED, **named, "task.bptt": bptt}, (0, 1, 2), model) for bptt in lengths
        ]
    times = [_time(f"time/{bptt}", {**_PRINTED, "task.bptt": bptt}, "ugru", "gru") for bptt in (35, 150)]
    return (*found, *times, _time("time/urnn", _TOY, "urnn", "rnn"))


def _quick() -> tuple[Series, ...]:
    """Return runs that see the same words: short batches four times as often as long ones."""
    runs = [
        train_series(f"{model}/{bptt}", {**_SMALL, "model.name": model, "task.bptt": bptt, "train.steps": steps}, (0,))
        for model in _LABELS
        for bptt, steps in ((10, 160), (40, 40))
    ]
    times = [_time(f"time/{bptt}", {**_SMALL, "task.bptt": bptt}, "ugru", "gru") for bptt in (10, 40)]
    return (*runs, *times, _time("time/urnn", _TOY, "urnn", "rnn"))


def _printed_claims() -> tuple[Claim, ...]:
    found = []
    for start, how in (("", "settings of Table 9"), ("tuned/", "tuned")):
        for model, label in _LABELS.items():
            for bptt in (35, 150):
                for split in ("validation", "test"):
                    key, name = f"table7/{model}/{bptt}/{split}", f"{start}{model}/{bptt}"
                    text = f"{label}, gradients over {bptt} steps, {how}: {split} perplexity"
                    found.append(claim_perplexity(name, key, VALUES[key], split, text, own=model == "ugru"))
    return tuple(found)


def _orders(start: str, short: int, long: int) -> tuple[Claim, ...]:
    said = (
        ("loses", short, "gru", "ugru", '"slightly worse than the GRU with BPTT=30", 35 in Table 7'),
        ("wins", long, "ugru", "gru", '"but better with BPTT=150"'),
    )
    return tuple(
        claim_lower_perplexity(
            f"{start}{name}", f"{start}{first}/{bptt}", f"{start}{then}/{bptt}",
            (_LABELS[first], _LABELS[then], f", gradients over {bptt} steps"), says, "Section 5.3",
        )
        for name, bptt, first, then, says in said
    )  # fmt: skip


def _below_100(start: str) -> Claim:
    return Claim(
        f"{start}below-100", "The uGRU has a test perplexity below 100, gradients over 35 steps",
        '"a test perplexity below 100"', "Section 5.3", f"{_SCORES}:judge_baseline", "section5.3/perplexity-bound",
        {"beat": [f"{start}ugru/35"], "fail": [], "score": "perplexity", "baseline": 100.0},
    )  # fmt: skip


def _times(lengths: tuple[int, int]) -> tuple[Claim, ...]:
    return (
        Claim(
            "time/ugru", "A batch of the uGRU takes at most 10 % longer than one of the GRU",
            '"(1-10% depending on batch size)"', "Section 5.3", f"{_TIMES}:judge_times", "section5.3/extra-percent/most",
            {"names": [f"time/{bptt}" for bptt in lengths], "most": 1.1},
        ),
        Claim(
            "time/urnn", "A batch of the uRNN takes at most 3 times as long as one of the RNN, settings of Table 8, N = 100",
            '"each batch taking around 2-3 times longer"', "Section 4.2", f"{_TIMES}:judge_times", "section4.2/slowdown/most",
            {"names": ["time/urnn"], "most": 3.0},
        ),
    )  # fmt: skip


_TABLE_7 = Experiment(
    "lin-table7", "GRU and uGRU on Penn Treebank, truncated after 35 and 150 steps, with the time per batch", "Table 7",
    "gpu", 15, "the uGRU loses at 35 and wins at 150",
    quick=_quick(), full=_full(),
    claims=(
        *_orders("", 35, 150), *_orders("tuned/", 35, 150), _below_100(""), _below_100("tuned/"), *_printed_claims(),
        *_times((35, 150)),
    ),
    curves="steadyrnn.experiments.loss_curves:draw_perplexities", data=("ptb",),
    quick_claims=(*_orders("", 10, 40), *_times((10, 40))),
)  # fmt: skip

EXPERIMENTS = (_TABLE_7,)
