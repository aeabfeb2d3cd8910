"""A change of basis keeps the input-output map, and only those matrices are taken that do."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from steadyrnn.activations import Activation
from steadyrnn.convert.basis import change_basis
from steadyrnn.errors import ArgumentError, ConversionError, NotFiniteError, ShapeError
from steadyrnn.layers.gru import GRU
from steadyrnn.layers.rnn import RNN
from tests.convert.networks import ReLU6, ShiftedReLU, contraction, network
from tests.linalg.matrices import gaussian, orthogonal
from tests.support.errors import assert_equal_up_to_rounding

N = 4
PERMUTATION = torch.eye(N, dtype=torch.float64)[[2, 0, 3, 1]]
SCALED = PERMUTATION * torch.tensor([0.3, 1.0, 7.0, 2.0], dtype=torch.float64)


def assert_same_map(rnn: nn.Module, matrix: Tensor, condition: float = 1.0) -> None:
    changed, inverse = change_basis(rnn, matrix)
    x = gaussian(30, 3, 3)
    with torch.no_grad():
        for value, expected in zip(changed(x), rnn(x), strict=True):
            units = value.unflatten(-1, (-1, N)) @ inverse.mT
            assert_equal_up_to_rounding(units.flatten(-2), expected, int(8 * condition))


@pytest.mark.parametrize(
    ("activation", "matrix"),
    [
        ("identity", gaussian(N, N, seed=9)),
        ("identity", orthogonal(N)),
        ("identity", -SCALED),
        ("identity", SCALED),
        ("relu", SCALED),
        ("leaky_relu", SCALED),
        ("abs", SCALED),
        ("tanh", PERMUTATION),
        ("sigmoid", PERMUTATION),
        (ReLU6(), PERMUTATION),
    ],
    ids=str,
)
@pytest.mark.parametrize("bias", [True, "single", False])
def test_the_input_output_map_is_kept(activation: str | Activation, matrix: Tensor, bias: Any) -> None:
    rnn = network(contraction(N, 0.9), activation, bias=bias, learn_initial_state=True)
    assert_same_map(rnn, matrix, float(torch.linalg.cond(matrix)))


@pytest.mark.parametrize(("layers", "both"), [(2, False), (1, True), (3, True)])
def test_stacks_and_directions_are_changed_alike(layers: int, both: bool) -> None:
    rnn = network(contraction(N, 0.9), "relu", num_layers=layers, bidirectional=both, dropout=0.5 if layers > 1 else 0.0)
    assert_same_map(rnn.eval(), SCALED)
    assert not change_basis(rnn, SCALED).rnn.training


def test_leaving_the_bias_as_it_was_changes_the_map() -> None:
    rnn = network(contraction(N, 0.9), "relu")
    changed, inverse = change_basis(rnn, SCALED)
    x = gaussian(30, 3, 3)
    with torch.no_grad():
        for name in ("bias_ih_l0", "bias_hh_l0"):  # as the paper's list has it
            getattr(changed, name).copy_(getattr(rnn, name))
        assert float((changed(x)[0] @ inverse.mT - rnn(x)[0]).abs().max()) > 0.1


def test_a_readout_is_multiplied_by_the_inverse() -> None:
    rnn, readout, x = network(contraction(N, 0.9), "relu"), gaussian(2, N, seed=3), gaussian(20, 1, 3)
    changed, inverse = change_basis(rnn, SCALED)
    with torch.no_grad():
        assert_equal_up_to_rounding(changed(x)[0] @ (readout @ inverse).mT, rnn(x)[0] @ readout.mT, 8)


def test_powers_of_two_and_permutations_change_no_digit() -> None:
    rnn = network(contraction(N, 0.9), "relu").float()
    matrix = PERMUTATION * torch.tensor([0.5, 4.0, 1.0, 0.125], dtype=torch.float64)
    changed, inverse = change_basis(rnn, matrix)
    again, _ = change_basis(changed, torch.linalg.inv(matrix))
    for name, parameter in rnn.named_parameters():
        assert torch.equal(getattr(again, name), parameter)
    assert inverse.dtype == torch.float32


def test_a_constrained_layer_of_ours_and_a_layer_of_torch_are_taken() -> None:
    assert_same_map(RNN(3, N, nonlinearity="relu", transition="spectral", dtype=torch.float64), SCALED)
    assert_same_map(nn.RNN(3, N, nonlinearity="relu", dtype=torch.float64), SCALED)


@pytest.mark.parametrize(
    ("activation", "matrix", "allowed"),
    [
        ("relu", gaussian(N, N), "a permutation times a positive diagonal does"),
        ("relu", -PERMUTATION, "a permutation times a positive diagonal does"),
        ("relu", torch.zeros(N, N), "a permutation times a positive diagonal does"),
        ("tanh", SCALED, "a permutation does"),
        (ShiftedReLU(0.3), SCALED, "a permutation does"),
        ("modrelu", PERMUTATION, "no matrix that is known does"),
    ],
    ids=str,
)
def test_what_does_not_commute_with_the_activation_is_refused(
    activation: str | Activation, matrix: Tensor, allowed: str
) -> None:
    rnn = RNN(3, N, nonlinearity=activation)
    with pytest.raises(ConversionError, match=f"commute with the activation {rnn.nonlinearity}: {allowed}"):
        change_basis(rnn, matrix)


def test_a_singular_matrix_is_refused() -> None:
    with pytest.raises(ArgumentError, match="singular"):
        change_basis(RNN(3, N, nonlinearity="identity"), torch.ones(N, N))


@pytest.mark.parametrize(
    ("matrix", "error", "message"),
    [
        (torch.eye(3), ShapeError, r"must have 4 rows \(hidden_size\)"),
        (torch.zeros(4, 3), ShapeError, "`matrix` must be square"),
        (torch.full((4, 4), torch.nan), NotFiniteError, "`matrix`"),
    ],
)
def test_bad_matrices_are_refused_by_name(matrix: Tensor, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        change_basis(RNN(3, N, nonlinearity="relu"), matrix)


def test_other_modules_are_refused_by_name() -> None:
    with pytest.raises(ConversionError, match="of type GRU"):
        change_basis(GRU(3, N), torch.eye(N))
