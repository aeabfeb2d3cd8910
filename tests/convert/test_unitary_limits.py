"""Where Theorem 1 ends: sigmoid and tanh up to a proven error, the rest refused by theorem, and the lower bound."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import steadyrnn as sr
from steadyrnn.activations import Activation
from steadyrnn.convert.unitary import minimal_unitary_size, to_unitary
from steadyrnn.errors import ArgumentError, ConversionError
from steadyrnn.layers.rnn import RNN
from tests.convert.networks import (
    NEVER_SILENT,
    bounded,
    contraction,
    network,
)
from tests.linalg.matrices import gaussian, orthogonal, orthogonality

# Sigmoid and tanh.


@pytest.mark.parametrize("precision", [1e-3, 1e-6, 1e-12])
@pytest.mark.parametrize(("layers", "both"), [(1, False), (2, False), (2, True)])
@pytest.mark.parametrize("activation", ["sigmoid", "tanh"])
def test_saturating_networks_are_approximated_within_a_proven_error(
    activation: str, layers: int, both: bool, precision: float
) -> None:
    rnn = network(contraction(5, 0.9), activation, num_layers=layers, bidirectional=both)
    unitary = to_unitary(rnn, input_bound=None, approximate=True, precision=precision)
    assert 0.5 * precision <= unitary.report.error_bound <= precision
    with torch.no_grad():
        x = 10 * gaussian(200, 3, 3)
        gap = unitary(x)[0] - rnn(x)[0]
    error = float(gap.unflatten(-1, (rnn.directions, 5)).norm(dim=-1).max())
    assert error <= unitary.report.error_bound + 64 * 5 * 2.0**-53
    assert error >= 1e-5 * precision  # the bound is not idle
    assert orthogonality(unitary.layer.weight_hh_l0.detach()) <= 30


@pytest.mark.parametrize("activation", ["sigmoid", "tanh"])
def test_an_approximation_supports_initial_states_and_pieces(activation: str) -> None:
    rnn, x, hx = network(contraction(5, 0.9), activation), gaussian(90, 2, 3), bounded(1, 2, 5, bound=7.0)
    unitary = to_unitary(rnn, input_bound=None, approximate=True, initial_bound=7.0)
    with torch.no_grad():
        expected, outputs = rnn(x, hx)[0], []
        for piece in x.split(30):
            output, hx = unitary(piece, hx)
            outputs.append(output)
    assert float((torch.cat(outputs) - expected).norm(dim=-1).max()) <= unitary.report.error_bound + 64 * 5 * 2.0**-53
    with pytest.raises(ArgumentError, match="largest entry at most 7"):
        unitary(x, torch.full((1, 2, 5), 8.0, dtype=torch.float64))


def test_the_layer_of_an_approximation_starts_in_the_right_state_by_itself() -> None:
    rnn, x = network(contraction(5, 0.9), "tanh"), gaussian(30, 2, 3)
    unitary = to_unitary(rnn, input_bound=None, approximate=True)
    with torch.no_grad():
        assert torch.equal(unitary.layer(x)[0][..., :5], unitary(x)[0])
    assert not unitary.layer.initial_state_l0.requires_grad


def test_a_tanh_network_of_norm_one_needs_a_horizon_and_a_sigmoid_network_does_not() -> None:
    weight = orthogonal(4) @ torch.diag(torch.tensor([1.0, 1.0, 0.5, 0.5], dtype=torch.float64))
    with pytest.raises(ConversionError, match=r"converse of Theorem 3 .* needs a `horizon`"):
        to_unitary(network(weight, "tanh"), input_bound=None, approximate=True)
    unitary = to_unitary(network(weight, "tanh"), input_bound=None, horizon=50, approximate=True)
    assert unitary.report.horizon == 50
    with pytest.raises(ArgumentError, match="51 steps"):
        unitary(gaussian(51, 1, 3))
    assert to_unitary(network(weight, "sigmoid"), input_bound=None, approximate=True).report.horizon is None


# What has no equivalent.


@pytest.mark.parametrize("approximate", [False, True])
@pytest.mark.parametrize("activation", NEVER_SILENT.values(), ids=NEVER_SILENT)
def test_activations_that_are_not_silent_are_refused_by_theorem_three(activation: Activation, approximate: bool) -> None:
    rnn = network(contraction(3, 0.5), activation)
    with pytest.raises(ConversionError, match=rf"{activation.name}, but .*Theorem 3") as caught:
        to_unitary(rnn, input_bound=1.0, approximate=approximate)
    assert "approximate=True" not in str(caught.value)


@pytest.mark.parametrize("activation", ["sigmoid", "tanh"])
def test_saturating_activations_are_refused_with_an_offer(activation: str) -> None:
    with pytest.raises(ConversionError, match=r"Theorem 3.*approximate=True"):
        to_unitary(network(contraction(3, 0.5), activation), input_bound=1.0)


def test_modrelu_is_refused_by_name() -> None:
    with pytest.raises(ConversionError, match="modrelu, which is not one fixed function of each unit"):
        to_unitary(RNN(3, 4, nonlinearity="modrelu"), input_bound=1.0)


@pytest.mark.parametrize("convert", [lambda m: to_unitary(m, input_bound=1.0), minimal_unitary_size], ids=["convert", "bound"])
@pytest.mark.parametrize(
    "module",
    [sr.GRU(2, 3), sr.LSTM(2, 3), nn.GRU(2, 3), nn.LSTM(2, 3), sr.RNNCell(2, 3), nn.GRUCell(2, 3)],
    ids=lambda m: f"{type(m).__module__.split('.')[0]} {type(m).__name__}",
)
def test_other_recurrent_modules_are_refused_by_name(module: nn.Module, convert: Callable[[nn.Module], Any]) -> None:
    with pytest.raises(ConversionError, match=f"of type {type(module).__name__}, but the theorems"):
        convert(module)


def test_other_modules_are_refused_by_name() -> None:
    with pytest.raises(ConversionError, match=r"must be an RNN of steadyrnn or torch\.nn, but is of type Linear"):
        to_unitary(nn.Linear(2, 3), input_bound=1.0)


# Theorem 2.


@pytest.mark.parametrize("n", [1, 3])
def test_a_network_without_memory_needs_twice_its_units_and_gets_them(n: int) -> None:
    rnn = network(torch.zeros(n, n, dtype=torch.float64), inputs=n)
    assert minimal_unitary_size(rnn) == to_unitary(rnn, input_bound=1.0).layer.hidden_size == 2 * n


@pytest.mark.parametrize("kernel", [0, 1, 2, 5])
def test_the_lower_bound_counts_the_kernel_and_is_not_above_what_is_constructed(kernel: int) -> None:
    weight = contraction(5, 0.9)
    weight[:, :kernel] = 0
    rnn = network(weight, inputs=6)
    assert minimal_unitary_size(rnn) == 5 + kernel
    assert minimal_unitary_size(rnn) <= to_unitary(rnn, input_bound=1.0).layer.hidden_size


@pytest.mark.parametrize(
    ("rnn", "message"),
    [
        (RNN(4, 4), "about ReLU, but `rnn` has tanh"),
        (RNN(4, 4, num_layers=2, nonlinearity="relu"), "one layer in one direction"),
        (RNN(4, 4, bidirectional=True, nonlinearity="relu"), "one layer in one direction"),
        (RNN(2, 4, nonlinearity="relu"), "must have rank 4, but has 2"),
    ],
)
def test_where_theorem_two_does_not_apply_there_is_no_bound(rnn: RNN, message: str) -> None:
    with pytest.raises(ConversionError, match=message):
        minimal_unitary_size(rnn)
