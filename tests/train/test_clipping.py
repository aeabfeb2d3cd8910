"""Clipping by norm and by entry, and which parameters are recurrent."""

import pytest
import torch
from torch import nn

from steadyrnn.constraints.attach import constrain
from steadyrnn.layers.cells import GRUCell
from steadyrnn.layers.linear import Linear
from steadyrnn.layers.lstm import LSTM
from steadyrnn.layers.rnn import RNN
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.train.clipping import clip, gradient_norm, recurrent_parameters
from steadyrnn.train.settings import ClipSettings


def with_gradients(*values: list[float]) -> list[nn.Parameter]:
    parameters = [nn.Parameter(torch.zeros(len(value))) for value in values]
    for parameter, value in zip(parameters, values, strict=True):
        parameter.grad = torch.tensor(value)
    return parameters


def grads(parameters: list[nn.Parameter]) -> list[list[float]]:
    return [parameter.grad.tolist() for parameter in parameters if parameter.grad is not None]


@pytest.mark.parametrize(
    ("build", "names"),
    [
        (lambda: nn.LSTM(2, 3, num_layers=2), ["weight_hh_l0", "weight_hh_l1"]),
        (lambda: RNN(2, 3, bidirectional=True), ["weight_hh_l0", "weight_hh_l0_reverse"]),
        (lambda: RNN(2, 3, transition="ornn"), ["transition_l0.h.raw0"]),
        (lambda: GRUCell(2, 3, transition="ball"), ["transition.n.raw0", "transition.r.raw0", "transition.z.raw0"]),
        (lambda: LSTM(2, 3, transition="stable-lstm"), ["weight_hh_l0"]),
        (lambda: constrain(nn.RNNCell(2, 3), "weight_hh", "ornn"), ["parametrizations.weight_hh.original0"]),
        (lambda: SequenceModel(RNN(2, 3, transition="polar"), 1), ["rnn.transition_l0.h.raw0"]),
        (lambda: nn.Sequential(Linear(2, 3), nn.Linear(3, 1)), []),
    ],
)
def test_recurrent_parameters_are_found(build: object, names: list[str]) -> None:
    assert sorted(recurrent_parameters(build())) == names  # type: ignore[operator]


def test_the_norm_is_that_of_all_gradients_together() -> None:
    assert float(gradient_norm(with_gradients([1.0, 2.0], [2.0]))) == 3.0
    assert float(gradient_norm([nn.Parameter(torch.zeros(2))])) == 0.0


def test_a_large_norm_is_brought_down_and_a_small_one_left() -> None:
    large, small = with_gradients([3.0, 0.0], [4.0]), with_gradients([0.3, 0.0], [0.4])
    for parameters in (large, small):
        clip(ClipSettings(norm=1.0), parameters, [], gradient_norm(parameters))
    assert float(gradient_norm(large)) == pytest.approx(1.0, rel=1e-5)
    assert grads(small) == [pytest.approx([0.3, 0.0]), pytest.approx([0.4])]


def test_entries_are_clipped_on_recurrent_weights_alone() -> None:
    parameters = with_gradients([3.0, -0.1], [-4.0])
    clip(ClipSettings(norm=None, recurrent=0.5), parameters, parameters[:1], gradient_norm(parameters))
    assert grads(parameters) == [pytest.approx([0.5, -0.1]), [-4.0]]


def test_entries_are_clipped_on_both_sides() -> None:
    parameters = with_gradients([3.0, -2.0, -0.1])
    clip(ClipSettings(norm=None, recurrent=0.5), parameters, parameters, gradient_norm(parameters))
    assert grads(parameters) == [pytest.approx([0.5, -0.5, -0.1])]


def test_entries_are_clipped_before_the_norm() -> None:
    parameters = with_gradients([100.0], [4.0])
    clip(ClipSettings(norm=1.0, recurrent=3.0), parameters, parameters[:1], gradient_norm(parameters))
    assert grads(parameters) == [pytest.approx([0.6], rel=1e-5), pytest.approx([0.8], rel=1e-5)]


def test_without_settings_nothing_is_clipped() -> None:
    parameters = with_gradients([1e9])
    clip(ClipSettings(norm=None), parameters, parameters, gradient_norm(parameters))
    assert grads(parameters) == [[1e9]]
