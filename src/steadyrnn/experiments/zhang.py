"""Tables and figures of Zhang, Lei and Dhillon: networks whose singular values are kept in an interval."""

from .base import Claim, Experiment, Series

__all__ = ["EXPERIMENTS"]

_WORK = "steadyrnn.experiments.operation_counts"
_NOT_WRITTEN = "its cells, not written yet"


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
    Experiment(
        "zhang-fig1", "addition with 30, 100 and 300 steps: error and first-layer gradient", "Figure 1", "gpu", 5,
        "L = 30: all beat 0.167; L = 100: the IRNN fails, the LSTM is slower; L = 300: only oRNN and Spectral-RNN beat it",
        waits_for=_NOT_WRITTEN,
    ),
    Experiment(
        "zhang-fig2", "copy at lags up to 1000", "Figure 2", "gpu", 7,
        "the Spectral-RNN is best; IRNN and LSTM stay at the baseline for a large lag", waits_for=_NOT_WRITTEN,
    ),
    Experiment(
        "zhang-table2", "pixel-MNIST with 392 and 784 steps and permuted: eight models, parameters counted", "Table 2",
        "gpu", 17, "printed accuracies", waits_for=_NOT_WRITTEN,
    ),
    Experiment(
        "zhang-fig3", "pixel-MNIST: accuracy during training", "Figure 3", "gpu", 8,
        "order of the models", waits_for=_NOT_WRITTEN,
    ),
    Experiment(
        "zhang-fig4", "largest deviation of a singular value from 1 and norm of dL/dh_0 during training", "Figure 4", "gpu", 3,
        "the IRNN leaves orthogonality; the gradient of the RNN vanishes early, that of the LSTM explodes later; "
        "oRNN and Spectral-RNN are steady",
        waits_for=_NOT_WRITTEN,
    ),
    Experiment(
        "zhang-fig5", "MLP, ResNet and their spectral forms on MNIST, 30 to 100 layers", "Figure 5", "gpu", 5,
        "the MLP fails past 35 layers, the ResNet past 70, the spectral ones do not", waits_for=_NOT_WRITTEN,
    ),
    Experiment(
        "zhang-table3", "Penn Treebank, one and two layers", "Table 3", "gpu", 12,
        "printed perplexities, and the order against the LSTM", waits_for=_NOT_WRITTEN,
    ),
    Experiment(
        "zhang-table4", "21 time series data sets: RNN, LSTM, oRNN, Spectral-RNN, parameter counts as printed", "Table 4",
        "cpu", 60, "printed accuracies", waits_for=_NOT_WRITTEN,
    ),
    Experiment(
        "zhang-fig6", "CBF, ArrowHead and FaceAll: accuracy during training", "Figure 6", "cpu", 60,
        "the Spectral-RNN overfits less", waits_for=_NOT_WRITTEN,
    ),
    Experiment(
        "zhang-table5", "sizes of the multi-label data sets", "Table 5", "cpu", 1,
        "printed sizes", waits_for=_NOT_WRITTEN,
    ),
    Experiment(
        "zhang-fig7", "multi-label classification with MLP, ResNet and their spectral forms", "Figure 7", "cpu", 20,
        "the Spectral-ResNet is best when deep", waits_for=_NOT_WRITTEN,
    ),
    _LANDSCAPE,
)  # fmt: skip
"""In the order of the paper."""
