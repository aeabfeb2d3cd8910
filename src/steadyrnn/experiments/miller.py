"""Figures and propositions of Miller and Hardt: stable networks and truncation."""

from .base import Claim, Experiment, Series
from .miller_language import LANGUAGE

__all__ = ["EXPERIMENTS"]

_WORK = "steadyrnn.experiments.unstable_systems"


def _unstable(lengths: tuple[int, ...]) -> tuple[Series, ...]:
    windows = {"windows": [1, 5, 10, 20, 35], "steps": 100}
    points = ((0.5, 5), (-1.2, 7), (1.1, 13), (1.5, 40), (2.0, 40), (3.0, 40))
    return (
        Series("unstable", f"{_WORK}:truncate_unstable", {"rate": 2.0, **windows}),
        Series("stable", f"{_WORK}:truncate_unstable", {"rate": 0.5, **windows}),
        *(Series(f"gradient/a{a:g}T{T}", f"{_WORK}:compare_gradient", {"rate": a, "steps": T}) for a, T in points),
        *(Series(f"descent/outside{T}", f"{_WORK}:descend", {"start": 1.5, "steps": T, "iterations": 1000}) for T in lengths),
        Series("descent/growing", f"{_WORK}:descend", {"start": 1.2, "steps": 3, "iterations": 1000}),
        Series("descent/short", f"{_WORK}:descend", {"start": 1.5, "steps": 2, "iterations": 1000}),
        Series("descent/inside", f"{_WORK}:descend", {"start": 0.5, "steps": 20, "iterations": 1000}),
    )


_TRUNCATION = "steadyrnn.experiments.truncation"
_READINGS = {"variance": 0.5**0.5, "deviation": 0.5}
"""Standard deviations of W and U: the paper says N(0, 0.5) without saying what 0.5 is."""


def _truncation(steps: int, seeds: tuple[int, ...], linear_readings: tuple[str, ...]) -> tuple[Series, ...]:
    windows = [1, 2, 3, 5, 8, 10, 15, 20, 25, 30, 35, 40, 50]
    trained = [*(("linear", reading) for reading in linear_readings), ("tanh", "variance")]
    return (
        *(
            Series(
                f"gradient/{kind}/{reading}", f"{_TRUNCATION}:measure_gradients",
                {"kind": kind, "spread": spread, "windows": windows}, seeds,
            )
            for kind in ("linear", "tanh")
            for reading, spread in _READINGS.items()
        ),
        *(
            Series(
                f"training/{kind}/{reading}/{schedule}", f"{_TRUNCATION}:measure_training",
                {"kind": kind, "spread": _READINGS[reading], "schedule": schedule, "steps": steps}, seeds,
            )
            for kind, reading in trained
            for schedule in ("1/t", "1/sqrt(t)", "constant")
        ),
    )  # fmt: skip


_FIGURE_1 = Experiment(
    "miller-fig1", "difference of gradients against the window k, and of weights during training, linear and tanh", "Figure 1",
    "cpu", 5, "the difference decays as k lambda^k; the weights stay near for steps of 1/t",
    quick=_truncation(100, (0, 1), ("variance",)), full=_truncation(200, tuple(range(10)), ("variance", "deviation")),
    claims=(
        Claim(
            "gradient-linear", "Linear system: what a window of k inputs misses of the gradient decays as k lambda^k",
            "closely matches the k lambda^k scaling", "Figure 1(a)", f"{_TRUNCATION}:judge_linear",
        ),
        Claim(
            "gradient-tanh", "tanh network: what a window of k inputs misses of the gradient decays as k lambda^k",
            "closely matches the k lambda^k scaling", "Figure 1(a)", f"{_TRUNCATION}:judge_tanh",
        ),
        Claim(
            "training", "Trained with steps of 0.01/t and a window of 35, the weights stay near those trained with all inputs",
            "the error scales comparably with the bound", "Figure 1(b)", f"{_TRUNCATION}:judge_training",
        ),
        Claim(
            "steps", "With steps of 0.01/sqrt(t) or 0.01 they do not stay as near",
            "for larger step sizes the bound fails to hold", "Section 7.1", f"{_TRUNCATION}:judge_steps",
        ),
    ),
    curves=f"{_TRUNCATION}:show_differences",
)  # fmt: skip

EXPERIMENTS = (
    _FIGURE_1,
    Experiment(
        "miller-counterexamples", "Propositions 3 and 4: what goes wrong without stability", "Propositions 3 and 4",
        "seconds", 0.1, "an unstable system defeats every window, and gradient descent",
        quick=_unstable((20,)), full=_unstable((10, 20, 40)), curves=f"{_WORK}:show_instability",
        claims=(
            Claim(
                "proposition-3", "An unstable system differs without bound from every model of its last k inputs",
                "for any finite truncation length k, the difference goes to infinity", "Proposition 3",
                f"{_WORK}:judge_truncation",
            ),
            Claim(
                "equation-6", "The gradient of the loss by the one parameter a", "a formula in closed form",
                "Appendix, equation (6)", f"{_WORK}:judge_gradient",
            ),
            Claim(
                "approximation", "The gradient for large T", "about T a^(2T-3)", "Appendix, below equation (6)",
                f"{_WORK}:judge_approximation",
            ),
            Claim(
                "proposition-4", "Gradient descent from outside [-1, 1] diverges", "the iterates diverge with step size 1/i",
                "Proposition 4", f"{_WORK}:judge_divergence",
            ),
        ),
    ),
    *LANGUAGE,
)  # fmt: skip
"""In the order of the paper."""
