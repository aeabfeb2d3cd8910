"""A judge says "seen" where the numbers show it, and not where they do not: each is given wrong numbers too."""

import copy
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

from steadyrnn.experiments.registry import EXPERIMENTS

WRONG: list[tuple[str, str, str, str, Any, str]] = [
    ("emami-theorems", "theorem-1", "theorem1/n16/seed0", "difference", 1e-6, "not seen"),
    ("emami-theorems", "theorem-1", "theorem1/n16/seed0", "units", 33, "not seen"),
    ("emami-theorems", "theorem-1", "theorem1/n16/seed0", "orthogonality", 1e-9, "not seen"),
    ("emami-theorems", "theorem-1", "theorem1/n16/seed0", "extra_state", 1e-9, "not seen"),
    ("emami-theorems", "theorem-2", "theorem2/n3/seed0", "residual_below", 0.0, "not seen"),
    ("emami-theorems", "theorem-2", "theorem2/n3/seed0", "residual_at", 0.1, "not seen"),
    ("emami-theorems", "theorem-2", "theorem2/n3/seed0", "needed", 5, "not seen"),
    ("emami-theorems", "theorem-3", "theorem3/N3/seed0", "dimension", [0, 1, 2, 2, 3, 3, 3], "not seen"),
    ("emami-theorems", "theorem-3", "theorem3/N3/seed0", "distance", [1.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5], "not seen"),
    ("zhang-table1", "Hprod", "orthogonal/n128m64", "forward", 24_705, "not seen"),
    ("zhang-table1", "Hgrad", "orthogonal/n128m64", "backward", 70_000, "not seen"),
    ("zhang-table1", "Spectral-RNN FP", "spectral/n128m64", "forward", 60_000, "not seen"),
    ("zhang-table1", "Spectral-RNN FP", "spectral/n128m64", "error", 0.1, "not seen"),
    ("zhang-table1", "Spectral-RNN BP", "spectral/n128m64", "backward", 100_000, "not seen"),
    ("zhang-table1", "oRNN FP", "orthogonal/n128m64", "error", 0.1, "not seen"),
    ("zhang-table1", "oRNN BP", "orthogonal/n128m64", "backward_short", 30_000, "not seen"),
    ("lin-table1", "vanishes", "below-below/seed0", "large", 0.0, "not seen"),
    ("lin-table1", "vanishes", "below-below/seed0", "regime", "unknown", "not seen"),
    ("lin-table1", "may-vanish", "below-one/seed0", "random", 0.0, "not seen"),
    ("lin-table1", "may-vanish", "below-one/seed0", "large", 1.0, "not seen"),
    ("lin-table1", "mixed", "below-above/seed0", "small", 1.0, "not seen"),
    ("lin-table1", "constant", "one-one/seed0", "random", -0.01, "not seen"),
    ("lin-table1", "may-explode", "one-above/seed0", "random", 0.0, "not seen"),
    ("lin-table1", "explodes", "above-above/seed0", "small", 0.0, "not seen"),
    ("lin-table1", "eigenvalues", "eigenvalues", "norm", 0.0, "seen"),
    ("lin-table2", "abs", "abs", "measured", [0.0, 1.0], "not seen"),
    ("lin-table2", "relu", "relu", "stated", [0.1, 1.0], "not seen"),
    ("lin-table2", "leaky", "leaky/0.5", "measured", [0.4, 1.0], "not seen"),
    ("lin-table6", "abs", "abs/seed0", "norm", 10.1, "not seen"),
    ("lin-table6", "relu-upper", "relu/seed0", "norm", 14.2, "not seen"),
    ("lin-table6", "leaky-upper", "leaky/seed0", "upper", 20.0, "not seen"),
    ("lin-table6", "leaky-lower", "leaky/seed0", "norm", 1e-9, "not seen"),
    (
        "miller-fig1",
        "gradient-linear",
        "gradient/linear/variance/seed0",
        "difference",
        [10.0**k for k in range(13)],
        "not seen",
    ),
    ("miller-fig1", "gradient-tanh", "gradient/tanh/variance/seed0", "slope", 1.0, "not seen"),
    ("miller-fig1", "training", "training/tanh/variance/1/t/seed0", "difference", [1.0], "not seen"),
    ("miller-fig1", "steps", "training/linear/variance/constant/seed0", "difference", [0.0], "not seen"),
    ("miller-counterexamples", "proposition-3", "unstable", "end", [0.0] * 5, "not seen"),
    ("miller-counterexamples", "proposition-3", "stable", "end", [1.0] * 5, "not seen"),
    ("miller-counterexamples", "equation-6", "gradient/a1.1T13", "over_equation", 1.1, "not seen"),
    ("miller-counterexamples", "approximation", "gradient/a2T40", "over_corrected", 2.0, "not seen"),
    ("miller-counterexamples", "proposition-4", "descent/outside20", "diverged", False, "not seen"),
    ("miller-counterexamples", "proposition-4", "descent/outside20", "alternates", False, "not seen"),
    ("miller-counterexamples", "proposition-4", "descent/growing", "path", [1.2, -7.8], "not seen"),
]


@pytest.fixture(scope="module")
def measured() -> dict[str, dict[str, Any]]:
    """The numbers of the quick runs, by experiment and cell."""
    names = {row[0] for row in WRONG}
    return {name: {cell.name: cell.run({}, Path()) for cell in EXPERIMENTS[name].work(quick=True).cells} for name in names}


@pytest.mark.parametrize(("name", "claim", "cell", "key", "value", "verdict"), WRONG)
def test_a_wrong_number_changes_the_verdict(
    measured: dict[str, dict[str, Any]], name: str, claim: str, cell: str, key: str, value: Any, verdict: str
) -> None:
    (one,) = [one for one in EXPERIMENTS[name].claims if one.name == claim]
    judge, cells = resolve_name(one.judge), copy.deepcopy(measured[name])
    assert judge(cells).verdict in {"seen", "different"} - {verdict}
    assert key in cells[cell]
    cells[cell][key] = value
    assert judge(cells).verdict == verdict


def test_every_claim_is_given_a_wrong_number() -> None:
    elsewhere = {
        ("zhang-landscape", "narrow"),
        ("zhang-landscape", "wide"),
    }  # not seen as it is: tests/experiments/test_landscape.py
    trained = {"zhang-fig7", "zhang-table5", "zhang-table4", "zhang-fig6"}  # test_zhang_depth_training.py, test_time_series.py
    tried = {(row[0], row[1]) for row in WRONG} | elsewhere
    assert tried == {
        (name, claim.name)
        for name, one in EXPERIMENTS.items()
        for claim in one.claims
        if one.where != "gpu" and name not in trained
    }


def test_what_the_package_computes_is_in_the_counts(measured: dict[str, dict[str, Any]]) -> None:
    assert all(numbers["error"] < 1e-12 for numbers in measured["zhang-table1"].values())


@pytest.mark.parametrize(("power", "verdict"), [(1, "seen"), (0, "different")])
def test_the_factor_k_of_a_decay_is_told_from_none(power: int, verdict: str) -> None:
    windows = [*range(1, 51, 4)]
    decay = {"windows": windows, "gradient": 1.0, "difference": [k**power * 0.75**k for k in windows]}
    cells = {f"gradient/linear/{reading}/seed0": decay for reading in ("variance", "deviation")}
    assert resolve_name("steadyrnn.experiments.truncation:judge_linear")(cells).verdict == verdict
