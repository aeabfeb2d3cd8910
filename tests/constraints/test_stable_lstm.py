"""Stable LSTMs: the projection, and the contraction it proves (MATH 7.1)."""

import copy
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from steadyrnn.constraints import Kind, StableLSTM
from steadyrnn.constraints.forget_gate import row_sums, rows_into_ball
from steadyrnn.errors import ArgumentError, ArgumentTypeError, NotFiniteError, ShapeError
from tests.constraints.cases import DTYPES

H, D = 5, 3
SETS = {
    "default": StableLSTM(),
    "forgets": StableLSTM(forget_bound=0.3, margin=0.1),
    "remembers": StableLSTM(forget_bound=0.9, input_bound=2.0),
    "no input": StableLSTM(input_bound=0.0),
    "tight": StableLSTM(margin=0.999),
}
BIASES = ["both", "single", "none"]
seeds = st.integers(0, 2**32 - 1)
Weights = tuple[Tensor, Tensor, Tensor | None, Tensor | None]


def draw(seed: int, scale: float, biases: str, dtype: torch.dtype = torch.float64) -> Weights:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return scale * torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    first = None if biases == "none" else normal(4 * H)
    return normal(4 * H, D), normal(4 * H, H), first, normal(4 * H) if biases == "both" else None


def feasible(stable: StableLSTM, biases: str) -> bool:
    return biases != "none" or stable.forget_bound >= 0.5


def bound_of_the_proposition(stable: StableLSTM, weights: Weights) -> float:
    """Return MATH 7.1 (i), with the forget gate bounded from the weights themselves."""
    weight_ih, weight_hh, *biases = (None if weight is None else weight.double() for weight in weights)
    assert weight_ih is not None
    assert weight_hh is not None
    i, f, g, o = (float(w.abs().sum(dim=1).max()) for w in weight_hh.split(H))
    rows = slice(H, 2 * H)
    pre = weight_hh[rows].abs().sum(dim=1) + stable.input_bound * weight_ih[rows].abs().sum(dim=1)
    forget = float(torch.sigmoid(pre + sum(bias[rows] for bias in biases if bias is not None)).max())
    return forget + (i + f / (1 - forget) + o) / 4 + g


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, *DTYPES], ids=str)
@pytest.mark.parametrize("biases", BIASES)
@pytest.mark.parametrize("name", SETS)
@given(seed=seeds, scale=st.sampled_from([0.0, 1e-3, 0.1, 1.0, 100.0]))
def test_the_projection_lands_in_the_set_and_stays(name: str, biases: str, dtype: torch.dtype, seed: int, scale: float) -> None:
    stable = SETS[name]
    if not feasible(stable, biases):
        return
    once = stable.project(*draw(seed, scale, biases, dtype))
    assert float(stable.violation(*once)) == 0.0  # as stored, not up to rounding
    for first, second in zip(once, stable.project(*once), strict=True):
        assert (first is None and second is None) or torch.equal(first, second)
        assert first is None or first.dtype == dtype


@pytest.mark.parametrize("scale", [1e-30, 1e10, 1e30])
@pytest.mark.parametrize("biases", BIASES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_wild_weights_land_in_the_set(scale: float, biases: str, dtype: torch.dtype) -> None:
    stable = SETS["default"]
    assert float(stable.violation(*stable.project(*draw(0, scale, biases, dtype)))) == 0.0


@pytest.mark.parametrize("biases", BIASES)
@pytest.mark.parametrize("name", SETS)
@given(seed=seeds)
def test_no_member_is_changed(name: str, biases: str, seed: int) -> None:
    stable = SETS[name]
    if not feasible(stable, biases):
        return
    inside = [None if w is None else 0.7 * w for w in stable.project(*draw(seed, 1.0, biases))]
    if float(stable.violation(*inside)) > 0:  # type: ignore[arg-type]
        return  # a set with a negative bias is not a cone
    for before, after in zip(inside, stable.project(*inside), strict=True):  # type: ignore[arg-type]
        assert (before is None and after is None) or torch.equal(before, after)  # type: ignore[arg-type]


@pytest.mark.parametrize("biases", BIASES)
@pytest.mark.parametrize("name", SETS)
@given(seed=seeds, scale=st.sampled_from([0.1, 1.0, 10.0]))
def test_the_projection_is_the_nearest_member(name: str, biases: str, seed: int, scale: float) -> None:
    stable = SETS[name]
    if not feasible(stable, biases):
        return

    def flat(weights: Weights) -> Tensor:
        return torch.cat([weight.flatten() for weight in weights if weight is not None])

    outside = draw(seed, scale, biases)
    near, other = flat(stable.project(*outside)), flat(stable.project(*draw(seed // 2, 1.0, biases)))
    # a point is nearest in a convex set if and only if every member lies behind it
    assert float((flat(outside) - near) @ (other - near)) <= 1e-9 * scale


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("biases", BIASES)
@pytest.mark.parametrize("name", SETS)
@given(seed=seeds, scale=st.sampled_from([0.1, 1.0, 100.0]))
def test_the_proven_constant_bounds_the_propositions(
    name: str, biases: str, dtype: torch.dtype, seed: int, scale: float
) -> None:
    stable = SETS[name]
    if not feasible(stable, biases):
        return
    contraction = bound_of_the_proposition(stable, stable.project(*draw(seed, scale, biases, dtype)))
    assert contraction <= stable.contraction + 1e-14 < 1


@pytest.mark.parametrize("name", ["default", "forgets", "remembers"])
@given(seed=seeds)
def test_one_step_of_a_projected_lstm_contracts_in_the_maximum_norm(name: str, seed: int) -> None:
    stable, cell = SETS[name], torch.nn.LSTMCell(D, H, dtype=torch.float64)
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    with torch.no_grad():
        for key, value in zip(names, stable.project(*draw(seed, 3.0, "both")), strict=True):
            getattr(cell, key).copy_(value)
        generator = torch.Generator().manual_seed(seed)
        x = stable.input_bound * (2 * torch.rand(64, D, generator=generator, dtype=torch.float64) - 1)
        # reachable states: |h| < 1 and |c| at most 1 / (1 - f)
        h = 2 * torch.rand(2, 64, H, generator=generator, dtype=torch.float64) - 1
        c = (2 * torch.rand(2, 64, H, generator=generator, dtype=torch.float64) - 1) / (1 - stable.forget_bound)
        one, two = cell(x, (h[0], c[0])), cell(x, (h[1], c[1]))
    before = torch.maximum((h[0] - h[1]).abs().amax(dim=1), (c[0] - c[1]).abs().amax(dim=1))
    after = torch.maximum((one[0] - two[0]).abs().amax(dim=1), (one[1] - two[1]).abs().amax(dim=1))
    assert (after <= stable.contraction * before + 1e-14).all()


def test_the_constant_is_reached_on_the_border() -> None:
    stable = StableLSTM(forget_bound=0.64, input_bound=1.0, margin=0.25)
    weight_hh = torch.cat([torch.eye(H, dtype=torch.float64) * radius for radius in stable.radii])
    bias = torch.zeros(4 * H, dtype=torch.float64)
    bias[H : 2 * H] = stable.limits.bound - stable.radii[1]
    weights = (torch.zeros(4 * H, D, dtype=torch.float64), weight_hh, bias, None)
    assert float(stable.violation(*weights)) <= 1e-15
    assert bound_of_the_proposition(stable, weights) == pytest.approx(stable.contraction, rel=1e-14)
    assert stable.contraction == 1 - 0.25 * 0.36


def test_two_biases_move_by_the_same_amount() -> None:
    weights = draw(3, 2.0, "both")
    _, _, bias_ih, bias_hh = SETS["default"].project(*weights)
    assert weights[2] is not None
    assert weights[3] is not None
    assert bias_ih is not None
    assert bias_hh is not None
    torch.testing.assert_close(weights[2] - bias_ih, weights[3] - bias_hh, rtol=0, atol=1e-12)
    assert (weights[2] - bias_ih)[H : 2 * H].max() > 0.1
    for before, after in ((weights[2], bias_ih), (weights[3], bias_hh)):
        outside = torch.cat([before[:H] - after[:H], before[2 * H :] - after[2 * H :]])
        assert not outside.any()


def test_input_weights_of_other_gates_are_free() -> None:
    weights = draw(1, 50.0, "both")
    weight_ih = SETS["default"].project(*weights)[0]
    for gate in (0, 2, 3):
        rows = slice(gate * H, (gate + 1) * H)
        assert torch.equal(weight_ih[rows], weights[0][rows])


def test_the_arguments_are_not_changed() -> None:
    weights = draw(1, 5.0, "both")
    copies = copy.deepcopy(weights)
    SETS["default"].project(*weights)
    for weight, before in zip(weights, copies, strict=True):
        assert torch.equal(weight, before)  # type: ignore[arg-type]


def test_without_any_bias_the_forget_gate_is_still_bounded() -> None:
    weight_ih, weight_hh, _, _ = SETS["default"].project(*draw(2, 10.0, "none"))
    sums = row_sums(weight_hh[H : 2 * H]) + row_sums(weight_ih[H : 2 * H])
    assert torch.sigmoid(sums).max() <= 0.64


def test_without_any_bias_a_forget_bound_below_one_half_is_impossible() -> None:
    with pytest.raises(ArgumentError, match=r"must be at least 0.5 for an LSTM without biases, but is 0.3"):
        SETS["forgets"].project(*draw(0, 1.0, "none"))


def test_the_violation_of_weights_that_are_not_finite_is_no_small_number() -> None:
    weights = draw(0, 0.0, "both")
    weights[1][0, 0] = math.nan
    assert not float(SETS["default"].violation(*weights)) <= 1e300


def test_another_input_bound_leaves_the_rest() -> None:
    stable = StableLSTM(0.7, 3.0, 0.05).with_input_bound(1.25)
    assert stable == StableLSTM(0.7, 1.25, 0.05)


def test_it_is_a_projection_shown_by_its_arguments() -> None:
    assert StableLSTM().kind is Kind.PROJECTION
    assert repr(StableLSTM()) == "StableLSTM(forget_bound=0.64, input_bound=1.0, margin=0.01)"


@given(seed=seeds, radius=st.floats(0.01, 10))
def test_rows_in_a_ball_are_kept_and_others_reach_its_border(seed: int, radius: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(6, 4, generator=generator)
    near = rows_into_ball(rows, radius)
    inside = row_sums(rows) <= radius
    assert torch.equal(near[inside], rows[inside])
    assert (row_sums(near) <= radius).all()
    assert (row_sums(near)[~inside] >= radius * (1 - 1e-5)).all()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"forget_bound": 1.0}, ArgumentError, "`forget_bound` must lie strictly between 0 and 1, but is 1.0"),
        ({"forget_bound": 0.0}, ArgumentError, "`forget_bound` must lie strictly between"),
        ({"forget_bound": 2.0}, ArgumentError, "`forget_bound` must be a number from 0.0 to 1.0"),
        ({"margin": 0.0}, ArgumentError, "`margin` must lie strictly between"),
        ({"margin": "small"}, ArgumentTypeError, "`margin` must be a number"),
        ({"input_bound": -1.0}, ArgumentError, "`input_bound` must be a number from 0.0"),
        ({"input_bound": math.inf}, ArgumentError, "`input_bound` must be finite"),
        ({"input_bound": math.nan}, ArgumentError, "`input_bound` must be a number"),
    ],
)
def test_a_bad_argument_is_refused(arguments: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        StableLSTM(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((20, 3), (20, 4), None, None), r"`weight_ih` must have shape \(16, 3\), four gates of 4 units"),
        (((20, 3), (15, 5), None, None), r"`weight_hh` must have shape \(20, 5\)"),
        (((20,), (20, 5), None, None), "`weight_ih` must have two dimensions"),
        (((20, 3), (20, 5), (5,), None), r"`bias_ih` must have shape \(20,\)"),
        (((20, 3), (20, 5), (20,), (20, 1)), r"`bias_hh` must have shape \(20,\)"),
    ],
)
def test_a_wrong_shape_is_refused(shapes: tuple[tuple[int, ...] | None, ...], message: str) -> None:
    weights = [None if shape is None else torch.zeros(shape) for shape in shapes]
    for method in (SETS["default"].project, SETS["default"].violation):
        with pytest.raises(ShapeError, match=message):
            method(*weights)  # type: ignore[arg-type]


@pytest.mark.parametrize("place", range(4))
def test_a_weight_that_is_not_finite_is_refused_by_name(place: int) -> None:
    weights = draw(0, 1.0, "both")
    weights[place].view(-1)[-1] = math.nan  # type: ignore[union-attr]
    name = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")[place]
    with pytest.raises(NotFiniteError, match=f"`{name}` holds NaN"):
        SETS["default"].project(*weights)
