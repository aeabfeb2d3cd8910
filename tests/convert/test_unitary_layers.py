"""Unitary equivalents of whatever a layer can be: its options, its calls, its bad input; the module and its report."""

import copy
import json
import math
from typing import Any

import pytest
import torch
from torch import nn

from steadyrnn.convert import unitary_plan
from steadyrnn.convert.dilate import Ball
from steadyrnn.convert.unitary import to_unitary
from steadyrnn.errors import ArgumentError, ArgumentTypeError, ConversionError, NotFiniteError, ShapeError
from steadyrnn.layers.rnn import RNN
from tests.convert.networks import (
    assert_same,
    bounded,
    contraction,
    extra_units,
    network,
)
from tests.linalg.matrices import gaussian, orthogonal, orthogonality
from tests.support.errors import assert_equal_up_to_rounding, unit_roundoff

# Whatever a layer can be.


@pytest.mark.parametrize("scale", [1.0, 3.0])
@pytest.mark.parametrize("bias", [True, "single", False])
@pytest.mark.parametrize(("layers", "both"), [(1, True), (2, False), (3, True)])
def test_stacks_and_directions_are_converted_with_all_their_options(layers: int, both: bool, bias: Any, scale: float) -> None:
    weight = torch.tensor([[0.5, scale, 0.0], [0.0, 0.4, 0.1], [0.0, 0.1, 0.3]], dtype=torch.float64)
    options: dict[str, Any] = {"num_layers": layers, "bidirectional": both, "bias": bias, "batch_first": True}
    rnn = network(weight / max(1.0, float(torch.linalg.matrix_norm(weight, 2))) if scale == 1 else weight, **options)
    unitary = to_unitary(rnn, input_bound=1.0, initial_bound=1.0)
    hx = bounded(layers * (2 if both else 1), 4, 3, seed=1)
    x = bounded(4, 30, 3)
    assert_same(unitary, rnn, x)
    assert_same(unitary, rnn, x, hx)
    assert_same(unitary, rnn, x, hx, lengths=[30, 0, 7, 29])
    assert_same(unitary, rnn, x[0], hx[:, 0])
    assert_same(unitary, rnn, x[:, :0], hx)
    assert_same(unitary, rnn, x[:0], hx[:, :0])
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([3, 30, 7, 1]), batch_first=True, enforce_sorted=False)
    assert_same(unitary, rnn, packed, hx)
    assert not extra_units(unitary, x).any()


def test_layers_of_different_rank_get_one_width() -> None:
    rnn = network(0.5 * torch.eye(4, dtype=torch.float64), num_layers=2, bidirectional=True)
    with torch.no_grad():
        rnn.weight_hh_l0.copy_(0.5 * torch.eye(4, dtype=torch.float64).roll(1, dims=0))  # 1 extra unit
        rnn.weight_hh_l1_reverse.copy_(orthogonal(4))  # none
    unitary = to_unitary(rnn, input_bound=1.0)
    assert [part.rank for part in unitary.report.parts] == [1, 4, 4, 0]
    for end in ("l0", "l0_reverse", "l1", "l1_reverse"):
        assert orthogonality(getattr(unitary.layer, f"weight_hh_{end}").detach()) <= 30
    assert_same(unitary, rnn, bounded(50, 2, 3))
    assert not extra_units(unitary, bounded(50, 2, 3)).any()


def test_a_layer_below_that_does_not_contract_needs_a_horizon_for_the_one_above() -> None:
    rnn = network(0.5 * orthogonal(4), num_layers=2)
    with torch.no_grad():
        rnn.weight_hh_l0.copy_(orthogonal(4))
    with pytest.raises(ConversionError, match="does not contract in l0"):
        to_unitary(rnn, input_bound=1.0)
    unitary = to_unitary(rnn, input_bound=1.0, horizon=60)
    assert_same(unitary, rnn, bounded(60, 2, 3))


def test_dropout_between_layers_is_counted_in_the_radius_above() -> None:
    plain, dropped = (network(contraction(4, 0.9), num_layers=2, dropout=p) for p in (0.0, 0.75))
    radii = [to_unitary(rnn, input_bound=1.0).report.parts[1].radius for rnn in (plain, dropped)]
    assert radii[1] > 2 * radii[0]
    unitary = to_unitary(dropped.train(), input_bound=1.0)
    assert unitary.training
    assert not extra_units(unitary, bounded(200, 8, 3)).any()  # with dropout at work
    assert_same(unitary.eval(), dropped.eval(), bounded(50, 2, 3))


@pytest.mark.parametrize("transition", ["spectral", "ball", "free", "polar"])
def test_constrained_layers_are_read_as_they_compute(transition: str) -> None:
    rnn = RNN(3, 5, nonlinearity="relu", dtype=torch.float64, transition=transition)
    if transition in ("spectral", "free"):
        rnn.weight_hh_l0 = nn.Parameter(0.95 * orthogonal(5))
    assert_same(to_unitary(rnn, input_bound=1.0), rnn, bounded(50, 2, 3))


def test_a_layer_of_torch_is_taken() -> None:
    torch.manual_seed(0)
    rnn = nn.RNN(3, 4, num_layers=2, nonlinearity="relu", dtype=torch.float64)
    with torch.no_grad():
        for name, parameter in rnn.named_parameters():
            if name.startswith("weight_hh"):
                parameter.mul_(0.9 / torch.linalg.matrix_norm(parameter, 2))
    assert_same(to_unitary(rnn, input_bound=1.0), rnn, bounded(50, 2, 3))


def test_gradients_of_the_input_agree_too() -> None:
    rnn, x = network(contraction(5, 0.9)), bounded(20, 2, 3).requires_grad_()
    unitary = to_unitary(rnn, input_bound=1.0)
    ours, theirs = (torch.autograd.grad(module(x)[0].square().sum(), x)[0] for module in (unitary, rnn))
    assert_equal_up_to_rounding(ours, theirs, 8)


def test_nan_stays_in_its_row() -> None:
    x = bounded(10, 3, 3)
    x[2, 1] = torch.nan
    output = to_unitary(network(contraction(4, 0.9)), input_bound=1.0)(x)[0]
    assert output.isnan().any(-1).any(0).tolist() == [False, True, False]


# Initial states.


def test_a_learned_initial_state_enters_the_radius() -> None:
    rnn = network(contraction(5, 0.9), learn_initial_state=True)
    with torch.no_grad():
        rnn.initial_state_l0.copy_(100 * gaussian(5))
    unitary = to_unitary(rnn, input_bound=1.0)
    assert unitary.report.radius >= float(rnn.initial_state_l0.detach().norm())
    assert_same(unitary, rnn, bounded(50, 2, 3))


@pytest.mark.parametrize("scaled", [False, True])
def test_a_given_initial_state_may_be_as_large_as_promised_and_no_larger(scaled: bool) -> None:
    weight = torch.tensor([[0.5, 10.0], [0.0, 0.4]], dtype=torch.float64) if scaled else contraction(2, 0.9)
    rnn, x = network(weight), bounded(50, 3, 3)
    unitary, hx = to_unitary(rnn, input_bound=1.0, initial_bound=300.0), bounded(1, 3, 2, bound=300.0)
    assert_same(unitary, rnn, x, hx)
    with pytest.raises(ArgumentError, match=r"`hx` must have .* Convert with a larger `initial_bound`"):
        unitary(x, 1e9 * hx)


def test_a_long_sequence_may_be_run_in_pieces() -> None:
    rnn, x = network(contraction(5, 0.99)), bounded(300, 2, 3)
    unitary = to_unitary(rnn, input_bound=1.0)  # no initial bound: the states of an earlier call are inside anyway
    with torch.no_grad():
        hx, outputs = None, []
        for piece in x.split(100):
            output, hx = unitary(piece, hx)
            outputs.append(output)
        assert_equal_up_to_rounding(torch.cat(outputs), rnn(x)[0], 4)


# Bad input.


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"input_bound": -1.0}, ArgumentError, "`input_bound`"),
        ({"input_bound": math.inf}, ArgumentError, "`input_bound` must be finite"),
        ({"input_bound": "1"}, ArgumentTypeError, "`input_bound`"),
        ({"input_bound": None}, ConversionError, "`input_bound` is None"),
        ({"horizon": 0}, ArgumentError, "`horizon`"),
        ({"horizon": 1.5}, ArgumentTypeError, "`horizon`"),
        ({"initial_bound": math.nan}, ArgumentError, "`initial_bound`"),
        ({"initial_bound": math.inf}, ArgumentError, "`initial_bound`"),
        ({"precision": 0.0}, ArgumentError, "`precision`"),
    ],
)
def test_bad_arguments_are_refused_by_name(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        to_unitary(network(contraction(3, 0.5)), **{"input_bound": 1.0, **options})


def test_weights_that_are_not_finite_are_refused() -> None:
    rnn = network(contraction(3, 0.5))
    with torch.no_grad():
        rnn.bias_ih_l0[1] = torch.nan
    with pytest.raises(NotFiniteError, match="bias_ih_l0"):
        to_unitary(rnn, input_bound=1.0)


@pytest.mark.parametrize("factor", [1.001, 1e30, math.inf])
def test_an_input_beyond_its_bound_is_refused(factor: float) -> None:
    unitary, x = to_unitary(network(contraction(3, 0.5)), input_bound=1.0), bounded(5, 2, 3)
    x[3, 1] *= factor
    with pytest.raises(ArgumentError, match=r"`input` must have 2-norm at most 1, .* larger `input_bound`"):
        unitary(x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_inputs_on_the_bound_are_taken_with_their_rounding(dtype: torch.dtype) -> None:
    unitary = to_unitary(network(contraction(3, 0.5), inputs=50).to(dtype), input_bound=1.0)
    unitary(nn.functional.normalize(torch.randn(500, 1, 50, dtype=dtype), dim=-1))


def test_padding_may_hold_anything() -> None:
    rnn, x = network(contraction(3, 0.5)), bounded(6, 2, 3)
    x[4:, 1] = 1e9
    assert_same(to_unitary(rnn, input_bound=1.0), rnn, x, lengths=[6, 4])


def test_states_of_another_shape_are_refused_by_their_own_size() -> None:
    unitary = to_unitary(network(contraction(3, 0.5)), input_bound=1.0)
    with pytest.raises(ShapeError, match=r"`hx` must have shape \(1, 2, 3\)"):
        unitary(bounded(5, 2, 3), torch.zeros(1, 2, 6, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_refused(dtype: torch.dtype) -> None:
    with pytest.raises(ConversionError, match="too coarse"):
        to_unitary(network(contraction(3, 0.5)).to(dtype), input_bound=1.0)


def test_a_bias_beyond_the_dtype_is_refused() -> None:
    rnn = network(contraction(3, 0.99))
    with pytest.raises(ConversionError, match=r"beyond torch\.float32"):
        to_unitary(copy.deepcopy(rnn).float(), input_bound=1e38)
    assert to_unitary(rnn, input_bound=1e38).report.rank == 3


def test_a_horizon_over_which_rounding_alone_could_grow_beyond_all_bounds_is_refused() -> None:
    rnn = network(orthogonal(4) @ torch.diag(torch.tensor([1.0, 1.0, 0.5, 0.5], dtype=torch.float64)) @ orthogonal(4).mT)
    with pytest.raises(ConversionError, match="smaller one than was given"):
        to_unitary(rnn.float(), input_bound=1.0, horizon=10**10)


def test_a_conversion_that_went_wrong_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_small(*_: object) -> Ball:
        return Ball(torch.ones(3, dtype=torch.float64), 1e-3, math.inf)

    monkeypatch.setattr(unitary_plan, "find_ball", too_small)
    with pytest.raises(ConversionError, match="not silent"):
        to_unitary(network(contraction(3, 0.9)), input_bound=1.0)


def test_a_wrong_weight_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    fill = unitary_plan._fill

    def wrong(layer: RNN, end: str, *rest: Any) -> None:
        fill(layer, end, *rest)
        layer._parameters[f"bias_ih{end}"][0] += 1e-9  # type: ignore[index]

    monkeypatch.setattr(unitary_plan, "_fill", wrong)
    with pytest.raises(ConversionError, match="differs from `rnn` by"):
        to_unitary(network(contraction(3, 0.9)), input_bound=1.0)


# The module and its report.


def test_the_module_is_copied_saved_and_loaded() -> None:
    rnn = network(torch.tensor([[0.5, 10.0], [0.0, 0.4]], dtype=torch.float64))
    unitary, x = to_unitary(rnn, input_bound=1.0), bounded(20, 2, 3)
    unitary(x)[0].sum().backward()
    twin = copy.deepcopy(unitary)
    assert torch.equal(twin(x)[0], unitary(x)[0])
    other = copy.deepcopy(unitary)
    with torch.no_grad():
        for tensor in other.state_dict().values():
            tensor.zero_()
    other.load_state_dict(unitary.state_dict())
    assert torch.equal(other(x)[0], unitary(x)[0])


def test_a_conversion_leaves_layer_and_random_numbers_alone() -> None:
    rnn = network(contraction(4, 0.9))
    before = {name: tensor.clone() for name, tensor in rnn.state_dict().items()}
    state = torch.get_rng_state()
    to_unitary(rnn.train(), input_bound=1.0)
    assert torch.equal(torch.get_rng_state(), state)
    assert rnn.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in rnn.state_dict().items())


def test_the_report_says_all_in_words_and_as_json() -> None:
    unitary = to_unitary(network(0.5 * torch.eye(8, dtype=torch.float64).roll(1, dims=0), batch_first=True), input_bound=2.0)
    text = str(unitary.report)
    for part in ("9 units for one of 8", "Theorem 1 of Emami", "extra units 1", "norm 1", "scaled by", "2-norm up to 2"):
        assert part in text
    assert "any number of steps" in text
    entries = json.loads(json.dumps(unitary.report.to_dict(), allow_nan=False))
    assert (entries["rank"], entries["size_after"], entries["error_bound"]) == (1, 9, 0.0)
    assert entries["parts"][0]["scaling"] == [2.0**k for k in range(-4, 4)]
    assert "rank=1" in repr(unitary)


def test_the_radius_of_the_report_holds_and_is_the_theorems() -> None:
    rnn, x = network(contraction(6, 0.9)), bounded(2000, 4, 3)
    report = to_unitary(rnn, input_bound=1.0).report
    bias = (rnn.bias_ih_l0 + rnn.bias_hh_l0).detach()
    drive = float(torch.linalg.matrix_norm(rnn.weight_ih_l0.detach(), 2)) + float(bias.clamp(min=0).norm())
    with torch.no_grad():
        assert float(rnn(x)[0].norm(dim=-1).max()) <= report.radius
    assert drive / 0.1 <= report.radius <= drive / 0.1 * (1 + 1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_converted_layer_has_the_dtype_and_engine_of_its_original(dtype: torch.dtype) -> None:
    unitary = to_unitary(network(contraction(4, 0.9), engine="reference").to(dtype), input_bound=1.0)
    assert all(parameter.dtype == dtype for parameter in unitary.parameters())
    assert unitary.layer.engine == "reference"
    assert unitary.report.self_check <= 64 * 4 * unit_roundoff(dtype)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_second_layer_is_planned_for_what_both_directions_give_at_once(bidirectional: bool) -> None:
    """A constant input drives every unit to its bound in the middle of a sequence, forwards and backwards."""
    rnn = RNN(1, 1, 2, "relu", bias=False, bidirectional=bidirectional, dtype=torch.float64)
    with torch.no_grad():
        for name, weight in rnn.named_parameters():
            weight.fill_(0.5 if "hh" in name else 1.0)
    plan = unitary_plan.make_plan(rnn, unitary_plan.Wish(1.0, None, False, 0.0, 1e-6))
    reached = float(rnn(torch.ones(400, 1, 1, dtype=torch.float64))[0][200].detach().max())
    assert reached == pytest.approx(8.0 if bidirectional else 4.0)
    assert all(part.ball is not None and part.ball.radius >= reached for part in plan.layers[1])
