"""Tables and figures of Lin and Wang: gradients of networks with orthogonal weights."""

from . import long_memory, unitary_gates, unitary_language
from .base import Claim, Experiment, Series

__all__ = ["EXPERIMENTS"]

_WORK = "steadyrnn.experiments.gradient_regimes"
_SEEDS = (0, 1, 2, 3, 4)

_REGIMES: dict[str, tuple[float, float, float]] = {
    "below-below": (0.8, 0.9, 0.5), "below-one": (1.0, 1.0, 0.5), "below-above": (1.4, 1.5, 0.5),
    "one-one": (1.0, 1.0, 1.0), "one-above": (1.0, 1.5, 1.0), "above-above": (1.6, 1.8, 0.8),
}  # fmt: skip
"""Smallest and largest singular value, and the smaller slope: one choice for each entry of Table 1 that is not empty."""


def _regimes(width: int, steps: int, seeds: tuple[int, ...]) -> tuple[Series, ...]:
    sizes = {"width": width, "steps": steps}
    return (
        *(
            Series(name, f"{_WORK}:measure_limits", {"low": low, "high": high, "slope": slope, **sizes}, seeds)
            for name, (low, high, slope) in _REGIMES.items()
        ),
        Series("eigenvalues", f"{_WORK}:measure_eigenvalue_bound", {"steps": 60}),
    )


def _regime(name: str, text: str, says: str, entry: str) -> Claim:
    return Claim(
        name, f"Limit of the gradient if {text}", says, f"Table 1, {entry}", f"{_WORK}:judge_{name.replace('-', '_')}"
    )  # fmt: skip


_TABLE_1 = Experiment(
    "lin-table1", "what becomes of the gradient over long times, by the products of singular values and slopes", "Table 1",
    "seconds", 0.1, "six limits; they hold with singular values, not with eigenvalues as printed",
    quick=_regimes(8, 200, (0,)), full=_regimes(32, 1000, _SEEDS), curves=f"{_WORK}:show_limits",
    claims=(
        _regime(
            "vanishes", "s·b < 1 and S·B < 1 (s, S: smallest and largest singular value; b, B: slope)", "0",
            "row < 1, column < 1",
        ),
        _regime("may-vanish", "s·b < 1 and S·B = 1", "0 is possible", "row < 1, column = 1"),
        _regime("mixed", "s·b < 1 and S·B > 1", "0 and infinity are possible", "row < 1, column > 1"),
        _regime("constant", "s·b = 1 and S·B = 1", "Constant", "row = 1, column = 1"),
        _regime("may-explode", "s·b = 1 and S·B > 1", "infinity is possible", "row = 1, column > 1"),
        _regime("explodes", "s·b > 1 and S·B > 1", "infinity", "row > 1, column > 1"),
        Claim(
            "eigenvalues", "The upper bound holds with the largest eigenvalue of any weight that can be diagonalized",
            "if the largest eigenvalue times the largest slope is below 1, the gradient vanishes", "Theorem 1",
            f"{_WORK}:judge_eigenvalues",
        ),
    ),
)  # fmt: skip

_TABLE_2 = Experiment(
    "lin-table2", "ranges of the slopes of three activations", "Table 2", "seconds", 0.1,
    "printed ranges; the header says eigenvalues, and means slopes",
    quick=(
        Series("abs", f"{_WORK}:measure_slopes", {"activation": "abs"}),
        Series("relu", f"{_WORK}:measure_slopes", {"activation": "relu"}),
        *(Series(f"leaky/{a:g}", f"{_WORK}:measure_slopes", {"activation": "leaky_relu", "slope": a}) for a in (0.1, 0.5)),
    ),
    full=(
        Series("abs", f"{_WORK}:measure_slopes", {"activation": "abs"}),
        Series("relu", f"{_WORK}:measure_slopes", {"activation": "relu"}),
        *(
            Series(f"leaky/{a:g}", f"{_WORK}:measure_slopes", {"activation": "leaky_relu", "slope": a})
            for a in (0.01, 0.1, 0.25, 0.5, 0.75, 0.95)
        ),
    ),
    claims=(
        Claim("abs", "Slopes of abs(x), in absolute value", "1 and 1", "Table 2, row |x|", f"{_WORK}:judge_absolute_slope"),
        Claim("relu", "Slopes of the ReLU", "0 and 1", "Table 2, row ReLU", f"{_WORK}:judge_relu_slope"),
        Claim("leaky", "Slopes of the leaky ReLU", "[0, 1] and 1", "Table 2, row Leaky ReLU", f"{_WORK}:judge_leaky_slope"),
    ),
)  # fmt: skip


def _norms(steps: int, seeds: tuple[int, ...]) -> tuple[Series, ...]:
    rows = (("abs", "abs", 100, None), ("relu", "relu", 200, None), ("leaky", "leaky_relu", 200, 0.5))
    return tuple(
        Series(
            name, f"{_WORK}:measure_gradient_norm",
            {"activation": activation, "width": width, "steps": steps, "slope": slope}, seeds,
        )
        for name, activation, width, slope in rows
    )  # fmt: skip


_TABLE_6 = Experiment(
    "lin-table6", "predicted range of gradient norms over 30 steps, against measured norms", "Table 6", "seconds", 0.3,
    "printed bounds; one of them mixes two norms",
    quick=_norms(30, (0,)), full=_norms(30, _SEEDS), curves=f"{_WORK}:show_norms",
    claims=(
        Claim(
            "abs", "abs(x), 100 units: the gradient has the same Frobenius norm at every lag", "sqrt(100) = 10, both bounds",
            "Table 6, column |x|", f"{_WORK}:judge_absolute", "table6/abs/upper",
        ),
        Claim(
            "relu-upper", "ReLU, 200 units: upper bound", "sqrt(200) = 14.14", "Table 6, column ReLU",
            f"{_WORK}:judge_relu_upper", "table6/relu/upper",
        ),
        Claim(
            "leaky-upper", "Leaky ReLU with slope 0.5, 200 units: upper bound",
            "sqrt(200) = 14.14", "Table 6, column Leaky ReLU",
            f"{_WORK}:judge_leaky_upper", "table6/leaky-relu/upper",
        ),
        Claim(
            "leaky-lower", "Leaky ReLU with slope 0.5, 200 units: lower bound",
            "0.5^30 = 9.3e-10", "Table 6, column Leaky ReLU",
            f"{_WORK}:judge_leaky_lower", "table6/leaky-relu/lower",
        ),
    ),
)  # fmt: skip

EXPERIMENTS = (
    _TABLE_1,
    _TABLE_2,
    _TABLE_6,
    *long_memory.EXPERIMENTS,
    *unitary_language.EXPERIMENTS,
    *unitary_gates.EXPERIMENTS,
)
"""In the order of the paper: Table 6 stands with the theory that it computes."""
