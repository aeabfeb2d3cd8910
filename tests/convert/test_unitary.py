"""Theorem 1: unitary equivalents compute the same outputs, and their extra units are silent."""

import copy
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import steadyrnn as sr
from steadyrnn.activations import Activation
from steadyrnn.convert.dilate import silent_below
from steadyrnn.convert.unitary import to_unitary
from steadyrnn.errors import ArgumentError, ConversionError
from steadyrnn.layers.rnn import RNN
from steadyrnn.linalg.dilation import orthogonal_dilation
from tests.convert.networks import (
    NEVER_SILENT,
    SILENT,
    ReLU6,
    ShiftedReLU,
    assert_same,
    bounded,
    contraction,
    extra_units,
    network,
)
from tests.linalg.matrices import gaussian, orthogonal, orthogonality
from tests.support.errors import distance

# Theorem 1.


@pytest.mark.parametrize(("n", "norm"), [(4, 0.9), (16, 0.99), (64, 0.9999)])
def test_ten_thousand_steps_agree_and_the_extra_units_are_zero_in_both_precisions(n: int, norm: float) -> None:
    rnn, x = network(contraction(n, norm)), bounded(10_000, 1, 3)
    unitary = to_unitary(rnn, input_bound=1.0)
    with torch.no_grad():
        truth = rnn(x)[0]
        assert distance(unitary(x)[0], truth) <= 1e-13
        assert not extra_units(unitary, x).any()
        narrow, inputs = copy.deepcopy(rnn).float(), x.float()
        converted = to_unitary(narrow, input_bound=1.0)
        allowed = 2 * max(distance(narrow(inputs)[0], truth), 16 * 2.0**-24)
        assert distance(converted(inputs)[0], truth) <= allowed
        assert not extra_units(converted, inputs).any()
    assert orthogonality(unitary.layer.weight_hh_l0.detach()) <= 30
    assert orthogonality(converted.layer.weight_hh_l0.detach()) <= 30
    assert torch.equal(unitary.layer.weight_hh_l0[:n, :n], rnn.weight_hh_l0)


def test_a_trained_contractive_network_has_a_unitary_equivalent() -> None:
    torch.manual_seed(1)
    rnn = sr.RNN(2, 12, nonlinearity="relu", transition=sr.SpectralBall(0.95), dtype=torch.float64)
    head = nn.Linear(12, 1, dtype=torch.float64)
    optimizer = torch.optim.Adam([*rnn.parameters(), *head.parameters()], lr=0.02)
    sr.attach_projection(optimizer, rnn)
    x = torch.rand(30, 16, 2, dtype=torch.float64) - 0.5
    target, losses = x[..., :1].cumsum(0), []
    for _ in range(60):
        optimizer.zero_grad()
        loss = (head(rnn(x)[0]) - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    unitary, long = to_unitary(rnn, input_bound=0.75), torch.rand(10_000, 1, 2, dtype=torch.float64) - 0.5
    with torch.no_grad():
        assert distance(unitary(long)[0], rnn(long)[0]) <= 1e-13
        assert not extra_units(unitary, long).any()
    assert unitary.report.rank == 12


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bias", [0.1, 0.3, 0.7])
@pytest.mark.parametrize("weight", [0.1, 0.5, 0.9, 0.99, 0.9999])
def test_the_extra_unit_is_zero_where_the_state_comes_as_near_to_the_radius_as_rounding_lets_it(
    weight: float, bias: float, dtype: torch.dtype
) -> None:
    rnn = RNN(1, 1, nonlinearity="relu", bias="single", dtype=dtype)
    with torch.no_grad():
        for name, value in (("weight_hh_l0", weight), ("weight_ih_l0", 1.3), ("bias_ih_l0", bias)):
            getattr(rnn, name).fill_(value)
    unitary, x = to_unitary(rnn, input_bound=0.7), torch.full((500, 1, 1), 0.7, dtype=dtype)
    radius = torch.full((1, 1, 1), unitary.report.radius * (1 - torch.finfo(dtype).eps), dtype=dtype)
    with torch.no_grad():
        output, h_n = unitary.layer(x, unitary.enlarged(radius))
    assert float(h_n[..., 0]) >= 0.97 * unitary.report.radius
    assert not output[..., 1].any()


@pytest.mark.parametrize("activation", SILENT.values(), ids=SILENT)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_any_activation_that_is_silent_below_a_threshold_will_do(activation: Activation, dtype: torch.dtype) -> None:
    rnn, x = network(contraction(6, 0.95), activation).to(dtype), bounded(300, 2, 3, bound=2.0, dtype=dtype)
    unitary = to_unitary(rnn, input_bound=2.0)
    assert_same(unitary, rnn, x)
    assert not extra_units(unitary, x).any()


@pytest.mark.parametrize(("shift", "threshold"), [(0.3, 0.0), (0.0, 0.0), (-0.3, -0.3), (-20.0, -20.0)])
def test_the_threshold_of_an_activation_is_found(shift: float, threshold: float) -> None:
    found = silent_below(ShiftedReLU(shift))
    assert found is not None
    assert threshold - 1e-11 <= found <= threshold
    assert ShiftedReLU(shift).value(torch.tensor(found, dtype=torch.float64)) == 0


@pytest.mark.parametrize("activation", [*NEVER_SILENT.values(), sr.Tanh(), sr.Sigmoid(), sr.ModReLU()], ids=str)
def test_an_activation_that_is_not_silent_has_no_threshold(activation: Activation) -> None:
    assert silent_below(activation) is None


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_only_singular_values_below_one_cost_a_unit(rank: int) -> None:
    values = torch.tensor([0.5] * rank + [1.0] * (5 - rank), dtype=torch.float64)
    rnn = network(orthogonal(5) @ values.diag() @ orthogonal(5, seed=1).mT)
    unitary = to_unitary(rnn, input_bound=1.0, horizon=100)
    assert (unitary.layer.hidden_size, unitary.report.rank) == (5 + rank, rank)
    assert_same(unitary, rnn, bounded(100, 1, 3))


@given(n=st.integers(1, 7), inputs=st.integers(1, 4), seed=st.integers(0, 2**31), norm=st.sampled_from([0.0, 0.3, 0.999]))
def test_outputs_agree_for_any_size(n: int, inputs: int, seed: int, norm: float) -> None:
    rnn = network(contraction(n, norm, seed), inputs=inputs, seed=seed)
    assert_same(to_unitary(rnn, input_bound=1.0), rnn, bounded(40, 2, inputs, seed=seed))


# Why every part of the construction is needed.


def run_by_hand(phi: Callable[[Tensor], Tensor], radius: float, start: float, bias_factor: float = 1.0) -> tuple[float, float]:
    """Run a network and its dilation with a bias for this radius; return the largest error and the steady-state radius."""
    n, w, f, b = 4, contraction(4, 0.9), 0.05 * gaussian(4, 2, seed=1), torch.zeros(4, dtype=torch.float64)
    q = orthogonal_dilation(w)
    h = nn.functional.normalize(gaussian(n, seed=2), dim=0) * start
    steady = float(torch.linalg.matrix_norm(f, 2)) / (1 - 0.9)
    lower = -(radius or steady) * bias_factor * q[n:, :n].norm(dim=1)
    state, worst = torch.cat([h, torch.zeros(n, dtype=torch.float64)]), 0.0
    for x in bounded(200, 2, seed=3):
        h = phi(w @ h + f @ x + b)
        state = phi(q @ state + torch.cat([f @ x + b, lower]))
        worst = max(worst, float((state[:n] - h).norm()))
    return worst, steady


def test_leaving_the_initial_state_out_of_the_radius_is_an_error() -> None:
    without, steady = run_by_hand(torch.relu, 0.0, start=10.0)
    assert steady < 2
    assert without > 0.5  # 6.7 for the numbers of Note [mathematics], section 1.2
    assert run_by_hand(torch.relu, 10.0, start=10.0)[0] <= 1e-14


def test_a_bias_scaled_by_three_hundredths_is_an_error() -> None:
    assert (
        run_by_hand(torch.relu, 10.0, start=10.0, bias_factor=0.03)[0] > 1
    )  # 3.9 for the numbers of Note [mathematics], section 1.2


@pytest.mark.parametrize(
    ("phi", "least"), [(lambda x: nn.functional.leaky_relu(x, 0.1), 1.0), (nn.functional.elu, 0.5)], ids=["leaky", "elu"]
)
def test_the_construction_fails_for_activations_that_are_not_silent(phi: Callable[[Tensor], Tensor], least: float) -> None:
    assert run_by_hand(phi, 40.0, start=10.0)[0] > least  # 5.1 and 1.2 for the numbers of Note [mathematics], section 1.3


# Norm 1 and horizons.


def test_a_norm_of_one_needs_a_horizon_and_keeps_it() -> None:
    weight = orthogonal(4) @ torch.diag(torch.tensor([1.0, 1.0, 0.5, 0.5], dtype=torch.float64)) @ orthogonal(4).mT
    rnn = network(weight, bias=False)
    with pytest.raises(ConversionError, match=r"Theorem 1 .* needs a `horizon`"):
        to_unitary(rnn, input_bound=1.0)
    unitary = to_unitary(rnn, input_bound=1.0, horizon=200)
    drive = float(torch.linalg.matrix_norm(rnn.weight_ih_l0.detach(), 2))
    assert 200 * drive <= unitary.report.radius <= 200 * drive * (1 + 1e-10)
    assert_same(unitary, rnn, bounded(200, 1, 3))
    with pytest.raises(ArgumentError, match="201 steps, but this unitary network holds for 200"):
        unitary(bounded(201, 1, 3))
    with pytest.raises(ArgumentError, match="`hx`"):  # after a horizon states may have left the ball
        unitary(bounded(5, 1, 3), torch.ones(1, 1, 4, dtype=torch.float64))


def test_a_norm_of_one_needs_no_horizon_where_another_norm_contracts() -> None:
    weight = torch.tensor([[0.0, 1.0], [0.0, 0.5]], dtype=torch.float64)
    weight = weight / torch.linalg.matrix_norm(weight, 2)
    rnn = network(weight, ReLU6())  # which may not be rescaled
    unitary = to_unitary(rnn, input_bound=1.0)
    assert unitary.report.horizon is None
    assert_same(unitary, rnn, bounded(300, 1, 3))


@pytest.mark.parametrize("activation", ["relu", "tanh", "abs"])
def test_what_is_orthogonal_already_is_copied_whatever_its_activation_and_inputs(activation: str) -> None:
    rnn = network(orthogonal(6), activation)
    unitary = to_unitary(rnn, input_bound=None)
    assert (unitary.report.rank, unitary.report.input_bound, unitary.report.horizon) == (0, None, None)
    assert "orthogonal already" in str(unitary.report)
    assert_same(unitary, rnn, 100 * gaussian(30, 1, 3))


def test_a_norm_that_rounding_could_lift_to_one_is_converted_and_said_to_be() -> None:
    rnn = network((1 - 3e-5) * orthogonal(64)).float()
    unitary = to_unitary(rnn, input_bound=1.0)
    assert (unitary.report.rank, unitary.report.rounding_proven) == (64, False)
    assert "rounding not counted in" in str(unitary.report)
    assert not extra_units(unitary, bounded(2000, 1, 3, dtype=torch.float32)).any()
    proven = to_unitary(rnn, input_bound=1.0, horizon=2000)
    assert (proven.report.rounding_proven, proven.report.horizon) == (True, 2000)


@pytest.mark.parametrize("norm", [1.0001, 3.0])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_a_norm_above_one_is_refused_with_its_value(norm: float, activation: str) -> None:
    rnn = network(norm * torch.eye(3, dtype=torch.float64), activation)
    with pytest.raises(ConversionError, match=rf"norm {norm:g}.* Theorem 1"):
        to_unitary(rnn, input_bound=1.0, horizon=10, approximate=True)


# Scaling.


def test_a_shift_of_gain_one_half_becomes_one_of_nine_units_without_a_digit_changed() -> None:
    rnn, x = network(0.5 * torch.eye(8, dtype=torch.float64).roll(1, dims=0)), bounded(500, 2, 3)
    unitary = to_unitary(rnn, input_bound=1.0)
    assert (unitary.report.size_before, unitary.report.size_after) == (8, 9)
    with torch.no_grad():
        assert torch.equal(unitary(x)[0], rnn(x)[0])


@pytest.mark.parametrize(
    ("rows", "gains", "cycles"),
    [
        ([1, 2, 0, 4, 3, 5], [2.0, 0.1, 3.0, 0.5, 0.5, 0.9], 3),
        ([1, 2, 3, 4, 5, 0], [5.0, 0.2, 3.0, 0.3, 0.7, 0.9], 1),
        ([0, 1, 2, 3, 4, 5], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], 6),
    ],
)
def test_a_permutation_times_a_diagonal_gets_one_extra_unit_a_cycle(rows: list[int], gains: list[float], cycles: int) -> None:
    weight = torch.zeros(6, 6, dtype=torch.float64)
    weight[rows, range(6)] = torch.tensor(gains, dtype=torch.float64)
    rnn = network(weight)
    unitary = to_unitary(rnn, input_bound=1.0)
    assert (unitary.report.rank, unitary.report.horizon) == (cycles, None)
    assert_same(unitary, rnn, bounded(300, 2, 3))


def test_a_relu_network_of_norm_ten_is_converted_after_scaling() -> None:
    rnn = network(torch.tensor([[0.5, 10.0], [0.0, 0.4]], dtype=torch.float64))
    assert float(torch.linalg.matrix_norm(rnn.weight_hh_l0.detach(), 2)) == pytest.approx(10.02, abs=0.005)
    unitary = to_unitary(rnn, input_bound=1.0)
    assert unitary.report.parts[0].norm <= 0.770  # that of d = (0.05, 1)
    assert unitary.report.parts[0].scaling is not None
    assert_same(unitary, rnn, bounded(2000, 1, 3))


def test_the_scaling_of_the_check_figure_gives_the_norm_of_the_check_figure() -> None:
    w, d = torch.tensor([[0.5, 10.0], [0.0, 0.4]], dtype=torch.float64), torch.tensor([0.05, 1.0], dtype=torch.float64)
    assert float(torch.linalg.matrix_norm(d.unsqueeze(1) * w / d, 2)) == pytest.approx(0.770, abs=5e-4)


def test_only_relu_is_rescaled() -> None:
    with pytest.raises(ConversionError, match="spectral norm 10"):
        to_unitary(network(torch.tensor([[0.5, 10.0], [0.0, 0.4]], dtype=torch.float64), ReLU6()), input_bound=1.0)
