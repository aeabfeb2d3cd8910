"""What gradients do with the lag: orthogonal weights keep them, in every dtype, by whatever constraint they were made."""

import pytest
import torch
from torch import Tensor, nn

import steadyrnn as sr
from steadyrnn.bounds.sandwich import orthogonal_tolerance
from steadyrnn.certificates.certify import certify
from steadyrnn.constraints import Kind
from tests.constraints.cases import CASES, size_for
from tests.linalg.matrices import orthogonal

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
KEPT = ["abs", "identity"]


def only_orthogonal(name: str) -> bool:
    """Say whether the set of a constraint is that of orthogonal matrices, or some of them."""
    inside, shrunk, grown = (float(CASES[name]().violation(scale * torch.eye(4))) > 0.01 for scale in (1.0, 0.9, 1.1))
    return shrunk and grown and not inside


ORTHOGONAL = [name for name in CASES if only_orthogonal(name)]


def layer(name: str, n: int, nonlinearity: str, dtype: torch.dtype, *, trained: bool = False) -> nn.Module:
    torch.manual_seed(n)
    rnn = sr.RNN(2, size_for(name, n), nonlinearity=nonlinearity, transition=CASES[name](), dtype=dtype)
    if trained and CASES[name]().kind is Kind.MAP:
        for raw in rnn.transition_l0.parameters():
            nn.init.normal_(raw)
    return rnn


def with_weight(weight: Tensor, nonlinearity: str) -> nn.Module:
    rnn = sr.RNN(2, len(weight), nonlinearity=nonlinearity, dtype=weight.dtype)
    rnn.weight_hh_l0.data.copy_(weight)
    return rnn


def test_the_orthogonal_constraints_are_found() -> None:
    assert {"ornn", "exp", "exp-lie", "cayley", "polar", "unitary", "unitary-full", "spectral-orthogonal"} <= {*ORTHOGONAL}


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("nonlinearity", KEPT)
@pytest.mark.parametrize("name", ORTHOGONAL)
def test_an_orthogonal_layer_keeps_its_gradients(name: str, nonlinearity: str, dtype: torch.dtype, trained: bool) -> None:
    for n in (2, 33) if trained else (1, 24):
        found = certify(layer(name, n, nonlinearity, dtype, trained=trained), input_bound=1.0, effort="fast")
        assert found.regime == "constant", (n, found.contraction)
        assert "gradients: constant" in str(found)
        assert found.to_dict()["regime"] == "constant"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [1, 8, 64])
@pytest.mark.parametrize("lag", [1, 100])
def test_what_constant_means_is_proven(n: int, dtype: torch.dtype, lag: int) -> None:
    found = certify(layer("ornn", n, "abs", dtype), effort="fast")
    low, high = found.gradient_bounds(lag)
    slack = orthogonal_tolerance(n, dtype)
    assert (1 - slack) ** lag <= low <= high <= (1 + slack) ** lag


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("n", [1, 16, 64])
@pytest.mark.parametrize("nonlinearity", KEPT)
@pytest.mark.parametrize(
    ("tolerances", "expected"), [(-1.1, "vanishes"), (-0.5, "constant"), (0.5, "constant"), (1.1, "may explode")]
)
def test_the_tolerance_is_what_tells_them_apart(
    n: int, dtype: torch.dtype, nonlinearity: str, tolerances: float, expected: str
) -> None:
    """Rounding to the dtype moves a singular value by sqrt(n) u, a fifteenth of a tolerance; the rest is for its enclosure."""
    scale = 1 + tolerances * orthogonal_tolerance(n, dtype)
    rnn = with_weight((scale * orthogonal(n)).to(dtype), nonlinearity)
    assert certify(rnn, effort="fast").regime == expected


@pytest.mark.parametrize("nonlinearity", KEPT)
@pytest.mark.parametrize(("center", "radius", "expected"), [(0.9, 0.05, "vanishes"), (1.0, 0.01, "may explode")])
def test_a_spectral_layer_near_one_is_told_from_an_orthogonal_one(
    center: float, radius: float, nonlinearity: str, expected: str
) -> None:
    torch.manual_seed(0)
    rnn = sr.RNN(2, 32, nonlinearity=nonlinearity, transition=sr.Spectral(center=center, radius=radius))
    nn.init.normal_(rnn.transition_l0.h.raw2)
    assert certify(rnn, effort="fast").regime == expected


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
def test_an_orthogonal_weight_before_flat_slopes_does_not_explode_and_may_vanish(nonlinearity: str) -> None:
    assert certify(layer("ornn", 16, nonlinearity, torch.float32), effort="fast").regime == "unknown"


def test_one_singular_value_off_is_enough() -> None:
    values = torch.ones(16, dtype=torch.float64)
    for last, expected in ((1.01, "may explode"), (0.99, "unknown")):
        values[-1] = last
        weight = orthogonal(16, seed=1) @ values.diag() @ orthogonal(16, seed=2)
        assert certify(with_weight(weight.float(), "abs"), effort="fast").regime == expected


def test_a_factored_weight_counts_both_of_its_roundings() -> None:
    rnn = sr.RNN(2, 512, nonlinearity="abs", transition=sr.HouseholderOrthogonal(reflectors=4))
    assert certify(rnn, effort="fast").regime == "constant"


def test_both_directions_agree() -> None:
    rnn = sr.RNN(2, 8, nonlinearity="abs", transition="ornn", bidirectional=True)
    assert certify(rnn, effort="fast").regime == "constant"
