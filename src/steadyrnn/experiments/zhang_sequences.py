"""Addition and copy of Zhang, Lei and Dhillon: Figures 1 and 2; free of torch.

The text says: Adam, leaky ReLU except in the LSTM, an orthogonal start of the IRNN and Gaussian starts elsewhere. It does not
say learning rate, radius or the size of the Gaussians, which are chosen on validation data, nor width and reflectors, which
are those of the Spectral-RNN of Table 2.
"""

from typing import Any

from .base import Claim, Experiment, Series
from .published.zhang import VALUES
from .trained_series import make_claim, search_series, train_series

__all__ = ["FIGURE_1", "FIGURE_2", "GAUSSIAN_IRNN", "MODELS"]

_SCORES = "steadyrnn.experiments.scores"
_GRADIENTS = "steadyrnn.experiments.first_gradients"
_PICTURES = "steadyrnn.experiments.zhang_pictures"

GAUSSIAN_IRNN = 0.001
"""Standard deviation of the first input and output weights of the IRNN in the paper that proposed it."""

MODELS: dict[str, dict[str, Any]] = {
    "rnn": {"model.name": "rnn", "model.nonlinearity": "leaky_relu", "model.init": "gaussian"},
    "irnn": {
        "model.name": "irnn", "model.nonlinearity": "leaky_relu", "model.init": "orthogonal",
        "model.init_std": GAUSSIAN_IRNN,
    },
    "lstm": {"model.name": "lstm"},
    "ornn": {"model.name": "ornn"},
    "spectral": {"model.name": "spectral"},
}  # fmt: skip
"""The five models of the figures, as far as the text describes them."""

_ALL = tuple(MODELS)
_FREE = tuple({"train.optimizer.lr": rate} for rate in (1e-2, 3e-3, 1e-3, 3e-4))


def _pairs(*pairs: tuple[float, float], **options: Any) -> tuple[dict[str, Any], ...]:
    """Return candidates of a rate and one of the transitions, with options of the model."""
    own = {f"model.{name}": value for name, value in options.items()}
    return tuple({"train.optimizer.lr": a, "train.optimizer.transition_lr": b, **own} for a, b in pairs)


_SLOW = ((1e-2, 1e-3), (1e-3, 1e-4))
_CANDIDATES: dict[str, tuple[dict[str, Any], ...]] = {
    "rnn": _FREE,
    "irnn": tuple({**one, "model.init_std": std} for one in _FREE[::2] for std in (GAUSSIAN_IRNN, 0.1)),
    "lstm": tuple({**one, "model.forget_bias": bias} for one in _FREE[::2] for bias in (0.0, 1.0)),
    "ornn": _pairs(*_SLOW, (3e-3, 3e-4), (1e-3, 1e-3)),
    "spectral": (*_pairs(*_SLOW, radius=0.1), *_pairs(*_SLOW, radius=0.01)),
}


_ADDITION: dict[str, Any] = {
    "task.name": "addition", "task.test": 10_000, "model.width": 128, "train.steps": 5000, "train.batch_size": 50,
    "train.evaluation_batch_size": 500, "train.validate_every": 100, "train.log_every": 100,
    "train.probe.every": 100, "train.probe.names": ["gradient-h0"],
}  # fmt: skip
_QUICK_ADDITION: dict[str, Any] = {
    **_ADDITION, "task.validation": 500, "task.test": 4000, "model.width": 32, "train.steps": 700, "train.optimizer.lr": 1e-2,
}  # fmt: skip
_QUICK_TRANSITIONS: dict[str, dict[str, Any]] = {  # reflectors as in Appendix C, where networks have 32 units too
    "ornn": {"model.reflectors": 16, "train.optimizer.transition_lr": 1e-3},
    "spectral": {"model.reflectors": 8, "model.radius": 0.01, "train.optimizer.transition_lr": 1e-3},
}
_LENGTHS, _QUICK_LENGTHS = (30, 100, 300), (10, 60, 80)
_SUM_BASELINE = VALUES["section7.1/addition/baseline"].value
_LEAST = _SUM_BASELINE / 10
"""A tenth of the baseline is 8 standard errors of the mean over 10,000 squared errors, whose deviation is 0.197."""

_TEXT = "Section 7.1, Addition task, and Figure 1"


def _addition() -> tuple[Series, ...]:
    searches = [
        search_series(name, {**_ADDITION, **own, "task.length": 100}, _CANDIDATES[name], 1500) for name, own in MODELS.items()
    ]
    runs = [
        train_series(f"{name}/L{length}", {**_ADDITION, **own, "task.length": length}, (0, 1, 2, 3, 4), name)
        for length in _LENGTHS
        for name, own in MODELS.items()
    ]
    return *searches, *runs


def _quick_addition() -> tuple[Series, ...]:
    return tuple(
        train_series(f"{name}/L{n}", {**_QUICK_ADDITION, **own, **_QUICK_TRANSITIONS.get(name, {}), "task.length": n}, (0,))
        for n in _QUICK_LENGTHS
        for name, own in MODELS.items()
    )


def _addition_claims(lengths: tuple[int, int, int]) -> tuple[Claim, ...]:
    short, middle, long = lengths
    score: dict[str, Any] = {"score": "loss", "baseline": _SUM_BASELINE, "least": _LEAST}
    steady, others = ("ornn", "spectral"), ("rnn", "irnn", "lstm")
    return (
        make_claim(
            "short", f"L = {short}: the error of every model is a tenth below the baseline 0.167, or better",
            "every model outperforms the baseline of 0.167", f"{_TEXT}(a)", f"{_SCORES}:judge_baseline",
            beat=[f"{name}/L{short}" for name in _ALL], fail=[], **score,
        ),
        make_claim(
            "short-gradient", f"L = {short}: the gradient by the initial state is above the roundoff of float32 in every model",
            "the first layer gradients do not vanish for all models", f"{_TEXT}(d)", f"{_GRADIENTS}:judge_gradients",
            alive=[f"{name}/L{short}" for name in _ALL],
        ),
        make_claim(
            "middle-irnn", f"L = {middle}: the IRNN does not beat the baseline by a tenth",
            "IRNN fails", f"{_TEXT}(b)", f"{_SCORES}:judge_baseline", beat=[], fail=[f"irnn/L{middle}"], **score,
        ),
        make_claim(
            "middle-lstm",
            f"L = {middle}: the LSTM needs at least twice the steps of oRNN and Spectral-RNN to half the baseline",
            "LSTM converges much slower than Spectral-RNN and oRNN", f"{_TEXT}(b)", f"{_GRADIENTS}:judge_slower",
            slow=f"lstm/L{middle}", fast=[f"{name}/L{middle}" for name in steady], level=_SUM_BASELINE / 2,
        ),
        make_claim(
            "long", f"L = {long}: oRNN and Spectral-RNN beat the baseline by a tenth, the others do not",
            "only Spectral-RNN and oRNN are able to beat the baseline", f"{_TEXT}(c)", f"{_SCORES}:judge_baseline",
            beat=[f"{name}/L{long}" for name in steady], fail=[f"{name}/L{long}" for name in others], **score,
        ),
        make_claim(
            "gradient", "The gradient of oRNN and Spectral-RNN is above the roundoff of float32 at every length, that of IRNN "
            f"and LSTM below it at L = {long}",
            "does not vanish regardless of the depth, while IRNN/LSTM's gradients vanish as L becomes larger",
            f"{_TEXT}(d) to (f)", f"{_GRADIENTS}:judge_gradients",
            alive=[f"{name}/L{n}" for name in steady for n in lengths], vanished=[f"irnn/L{long}", f"lstm/L{long}"],
        ),
    )  # fmt: skip


FIGURE_1 = Experiment(
    "zhang-fig1", "addition with 30, 100 and 300 steps: error and first-layer gradient", "Figure 1", "gpu", 12,
    "L = 30: all beat 0.167; L = 100: the IRNN fails, the LSTM is slower; L = 300: only oRNN and Spectral-RNN beat it",
    quick=_quick_addition(), full=_addition(), claims=_addition_claims(_LENGTHS),
    quick_claims=_addition_claims(_QUICK_LENGTHS), curves=f"{_PICTURES}:draw_addition",
)  # fmt: skip


_COPY: dict[str, Any] = {
    "task.name": "copy", "model.width": 128, "train.steps": 3000, "train.batch_size": 50,
    "train.evaluation_batch_size": 250, "train.validate_every": 100, "train.log_every": 100,
}  # fmt: skip
_QUICK_COPY: dict[str, Any] = {
    **_COPY, "task.validation": 200, "task.test": 1000, "model.width": 64, "train.steps": 500,
    "train.evaluation_batch_size": 200,
}  # fmt: skip
_LINEAR: dict[str, dict[str, Any]] = {  # ours: a linear network with all reflectors can keep ten symbols exactly
    "irnn-linear": {"model.name": "irnn", "model.nonlinearity": "identity", "model.init": "orthogonal"},
    "ornn-linear": {**MODELS["ornn"], "model.nonlinearity": "identity", "model.reflectors": 128},
    "spectral-linear": {**MODELS["spectral"], "model.nonlinearity": "identity", "model.reflectors": 128},
}
_COPY_CANDIDATES: dict[str, tuple[dict[str, Any], ...]] = {
    **_CANDIDATES,
    "irnn-linear": _FREE,
    "ornn-linear": _CANDIDATES["ornn"],
    "spectral-linear": (*_pairs((3e-3, 3e-4), (1e-3, 1e-4), radius=0.01), *_pairs((3e-3, 3e-4), (1e-3, 1e-4), radius=0.001)),
}
_DELAYS, _QUICK_DELAYS = (100, 500, 1000), (10, 50)
_COPYING = "Section 7.1, Copy task, and Figure 2"


def _copy() -> tuple[Series, ...]:
    models = {**MODELS, **_LINEAR}
    searches = [
        search_series(name, {**_COPY, **own, "task.delay": 100}, _COPY_CANDIDATES[name], 500) for name, own in models.items()
    ]
    runs = [
        train_series(f"{name}/T{delay}", {**_COPY, **own, "task.delay": delay}, (0, 1, 2), name)
        for delay in _DELAYS
        for name, own in models.items()
    ]
    return *searches, *runs


def _quick_copy() -> tuple[Series, ...]:
    slow = {"train.optimizer.lr": 1e-2, "train.optimizer.transition_lr": 1e-3, "model.reflectors": 8}
    own = {
        **{name: {**MODELS[name], "train.optimizer.lr": 1e-2} for name in ("rnn", "irnn", "lstm")},
        **{name: {**MODELS[name], **slow} for name in ("ornn", "spectral")},
        "spectral-linear": {**_LINEAR["spectral-linear"], **slow, "model.reflectors": 64, "model.radius": 0.01},
    }
    return tuple(
        train_series(f"{name}/T{delay}", {**_QUICK_COPY, **own[name], "task.delay": delay}, (0,))
        for delay in _QUICK_DELAYS
        for name in own
    )


def _copy_claims(delays: tuple[int, ...], linear: tuple[str, ...]) -> tuple[Claim, ...]:
    others, last = ("rnn", "irnn", "lstm", "ornn"), delays[-1]
    printed = [
        make_claim(
            f"best-T{delay}",
            f"T = {delay}: the cross-entropy of the Spectral-RNN is the lowest, with leaky ReLU as printed",
            "Spectral-RNN consistently outperforms all other models",
            _COPYING,
            f"{_SCORES}:judge_order",
            first=[f"spectral/T{delay}"],
            then=[f"{name}/T{delay}" for name in others],
            score="loss",
            higher=False,
        )
        for delay in delays
    ]
    tuned = [
        make_claim(
            f"best-linear-T{delay}",
            f"T = {delay}: the same of a linear Spectral-RNN with all reflectors, our choice",
            "Spectral-RNN consistently outperforms all other models",
            _COPYING,
            f"{_SCORES}:judge_order",
            first=[f"spectral-linear/T{delay}"],
            then=[f"{name}/T{delay}" for name in (*others, *linear)],
            score="loss",
            higher=False,
        )
        for delay in delays
    ]
    return (
        *printed,
        *tuned,
        make_claim(
            "large-lag", f"T = {last}: IRNN and LSTM do not beat the network without memory by a tenth",
            "IRNN and LSTM models are not able to beat the baseline when the time lag is large", _COPYING,
            f"{_SCORES}:judge_memory", models=[f"irnn/T{last}", f"lstm/T{last}"], least=0.1,
        ),
        make_claim(
            "memoryless", f"T = {last}: RNN and LSTM are within a tenth of the network without memory",
            "the test MSE for RNN/LSTM is very close to the baseline (memoryless strategy)", _COPYING,
            f"{_SCORES}:judge_memory", models=[f"rnn/T{last}", f"lstm/T{last}"], least=0.1, most=0.1,
        ),
    )  # fmt: skip


FIGURE_2 = Experiment(
    "zhang-fig2", "copy at lags of 100, 500 and 1000", "Figure 2", "gpu", 15,
    "the Spectral-RNN is best; IRNN and LSTM stay at the baseline for a large lag",
    quick=_quick_copy(), full=_copy(), claims=_copy_claims(_DELAYS, ("irnn-linear", "ornn-linear")),
    quick_claims=_copy_claims(_QUICK_DELAYS, ()), curves=f"{_PICTURES}:draw_copy",
)  # fmt: skip
