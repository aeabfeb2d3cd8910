"""Dead units: those whose slope is 0 wherever one looks."""

import pytest
import torch
from torch import nn

from steadyrnn.activations import Activation, LeakyReLU
from steadyrnn.errors import ArgumentError, ShapeError
from steadyrnn.layers.gru import GRU
from steadyrnn.layers.rnn import RNN
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.probes.dead_units import dead_units


def rectifier(dead: int, layers: int = 1, nonlinearity: str | Activation = "relu") -> RNN:
    """Return a layer of 6 units, the first of which in the first layer are held at 0 by their bias."""
    torch.manual_seed(0)
    rnn = RNN(2, 6, layers, nonlinearity=nonlinearity, bias="single")
    with torch.no_grad():
        rnn.bias_ih_l0[:dead] = -100.0
        rnn.bias_ih_l0[dead:] = 5.0
        if layers > 1:
            rnn.bias_ih_l1.fill_(100.0)
    return rnn


@pytest.mark.parametrize("dead", [0, 1, 4, 6])
def test_units_held_at_zero_are_dead_and_no_others(dead: int) -> None:
    assert dead_units(rectifier(dead), torch.rand(9, 3, 2)).dead == pytest.approx(dead / 6)


def test_layers_count_alike() -> None:
    assert dead_units(rectifier(3, layers=2), torch.rand(9, 3, 2)).dead == pytest.approx(3 / 12)


def test_a_unit_that_is_alive_in_one_step_of_one_row_is_not_dead() -> None:
    rnn, x = RNN(1, 1, nonlinearity="relu", bias=False), torch.zeros(4, 3, 1)
    with torch.no_grad():
        rnn.weight_ih_l0.fill_(1.0)
        rnn.weight_hh_l0.fill_(0.0)
    x[2, 1] = 1.0
    found = dead_units(rnn, x)
    assert (found.dead, found.inactive) == (0.0, pytest.approx(11 / 12))
    assert dead_units(rnn, x, torch.tensor([4, 2, 4])) == (1.0, 1.0)  # the step lies behind the row's length


@pytest.mark.parametrize("nonlinearity", ["abs", "tanh", "identity", "sigmoid", LeakyReLU(0.1)], ids=str)
def test_an_activation_whose_slope_is_never_zero_has_no_dead_units(nonlinearity: str | Activation) -> None:
    torch.manual_seed(0)
    assert dead_units(RNN(2, 6, 2, nonlinearity=nonlinearity), torch.randn(9, 3, 2)) == (0.0, 0.0)


def test_gradients_of_dead_units_are_zero() -> None:
    rnn, x = rectifier(2), torch.rand(9, 3, 2)
    rnn(x)[0].sum().backward()
    silent = (rnn.weight_ih_l0.grad == 0).all(1)
    assert float(silent.double().mean()) == pytest.approx(dead_units(rnn, x).dead)


def test_layers_of_torch_and_models_are_measured() -> None:
    rnn, x = rectifier(2), torch.rand(9, 3, 2)
    other = nn.RNN(2, 6, nonlinearity="relu")
    with torch.no_grad():
        other.weight_ih_l0.copy_(rnn.weight_ih_l0)
        other.weight_hh_l0.copy_(rnn.weight_hh_l0)
        other.bias_ih_l0.copy_(rnn.bias_ih_l0)
        other.bias_hh_l0.zero_()
    assert dead_units(other, x) == dead_units(SequenceModel(rnn, 1), x) == dead_units(rnn, x)


def test_what_has_no_slope_of_its_own_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"the cell is 'gru': units with gates have no one slope"):
        dead_units(GRU(2, 3), torch.ones(2, 1, 2))
    with pytest.raises(ArgumentError, match=r"'modrelu' mixes units"):
        dead_units(RNN(2, 4, nonlinearity="modrelu"), torch.ones(2, 1, 2))


def test_bad_lengths_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"`lengths` must have shape \(3,\)"):
        dead_units(rectifier(1), torch.rand(9, 3, 2), torch.tensor([1]))
    with pytest.raises(ArgumentError, match=r"`lengths` are all 0"):
        dead_units(rectifier(1), torch.rand(9, 3, 2), torch.zeros(3, dtype=torch.long))
