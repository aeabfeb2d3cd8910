"""Tables and figures of Zhang, Lei and Dhillon: networks whose singular values are kept in an interval."""

from .base import Claim, Experiment, Series
from .zhang_depth import FIGURE_5, FIGURE_7, TABLE_5
from .zhang_pixels import FIGURE_3, FIGURE_4, TABLE_2
from .zhang_sequences import FIGURE_1, FIGURE_2
from .zhang_series import FIGURE_6, TABLE_4
from .zhang_text import TABLE_3

__all__ = ["EXPERIMENTS"]

_WORK = "steadyrnn.experiments.operation_counts"


def _counts(sizes: tuple[tuple[int, int], ...]) -> tuple[Series, ...]:
    return tuple(
        Series(f"{kind}/n{n}m{m}", f"{_WORK}:count_{kind}", {"width": n, "reflectors": m})
        for n, m in sizes
        for kind in ("orthogonal", "spectral")
    )


def _row(name: str, text: str, says: str, judge: str) -> Claim:
    return Claim(name, text, says, f"Table 1, row {name}", f"{_WORK}:judge_{judge}")


_TABLE_1 = Experiment(
    "zhang-table1", "operations of a step in reflector form, formulas against counted operations", "Table 1", "seconds", 0.1,
    "printed formulas; three of them contradict the rows above them",
    quick=_counts(((32, 16), (128, 64))), full=_counts(((128, 16), (32, 16), (64, 32), (128, 64), (256, 128))),
    curves=f"{_WORK}:show_counts",
    claims=(
        _row("Hprod", "Operations of one reflection of the last k entries of n", "4k", "hprod"),
        _row("Hgrad", "Operations of the gradient of one reflection", "3n + 6k", "hgrad"),
        _row(
            "Spectral-RNN FP", "Operations of a step of the Spectral-RNN, m1 and m2 reflectors",
            "4n(m1+m2) - 2m1^2 - 2m2^2 + O(n)", "spectral_forward",
        ),
        _row(
            "Spectral-RNN BP", "Operations of the gradient of that step",
            "6n(m1+m2) - 1.5m1^2 - 1.5m2^2 + O(n)", "spectral_backward",
        ),
        _row("oRNN FP", "Operations of a step of the oRNN, m reflectors", "4nm - m^2 + O(n)", "orthogonal_forward"),
        _row("oRNN BP", "Operations of the gradient of that step", "7nm - 2m^2 + O(n)", "orthogonal_backward"),
    ),
)  # fmt: skip


_DESCENTS = "steadyrnn.experiments.landscape"
_SECTION_1 = 'Section 1: "Section 6 provides the optimization landscape"'


def _descents(seeds: tuple[int, ...]) -> tuple[Series, ...]:
    sizes = {"inputs": 2, "units": 4, "outputs": 2, "steps": 8, "rounds": 200}
    return tuple(
        Series(name, f"{_DESCENTS}:descend_from", {**sizes, "radius": radius}, seeds)
        for name, radius in (("narrow", 0.1), ("wide", 0.9))
    )


_LANDSCAPE = Experiment(
    "zhang-landscape", "linear Spectral-RNN from many starts", "announced in Section 1, not proved in the text", "cpu", 15,
    "no spurious local minimum: where descents end, and their final losses; evidence and no proof",
    quick=_descents((0, 1, 2)), full=_descents(tuple(range(40))), curves=f"{_DESCENTS}:show_descents",
    claims=(
        Claim(
            "narrow", "Singular values between 0.9 and 1.1: every descent ends in a global minimum",
            "linear Spectral-RNN has no spurious local minimum", _SECTION_1, f"{_DESCENTS}:judge_narrow",
        ),
        Claim(
            "wide", "Singular values between 0.1 and 1.9: every descent ends in a global minimum",
            "linear Spectral-RNN has no spurious local minimum", _SECTION_1, f"{_DESCENTS}:judge_wide",
        ),
    ),
)  # fmt: skip

EXPERIMENTS = (
    _TABLE_1,
    FIGURE_1,
    FIGURE_2,
    TABLE_2,
    FIGURE_3,
    FIGURE_4,
    FIGURE_5,
    TABLE_3,
    TABLE_4,
    FIGURE_6,
    TABLE_5,
    FIGURE_7,
    _LANDSCAPE,
)  # fmt: skip
"""In the order of the paper."""
