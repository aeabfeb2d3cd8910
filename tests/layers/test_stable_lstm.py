"""A layer under a joint constraint: what it starts from, loads and takes stays in the set."""

import pytest
import torch
from torch import nn

from steadyrnn.constraints.stable_lstm import StableLSTM
from steadyrnn.errors import ConstraintError
from steadyrnn.layers.lstm import LSTM


def weights(layer: LSTM, end: str) -> list[torch.Tensor]:
    return [getattr(layer, f"{name}{end}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]


def test_a_second_layer_reckons_with_states_scaled_by_dropout() -> None:
    torch.manual_seed(0)
    layer = LSTM(3, 4, 2, dropout=0.5, transition=StableLSTM(input_bound=5.0))
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_().mul_(3)
    layer.after_optimizer_step()
    assert float(StableLSTM(input_bound=5.0).violation(*weights(layer, "_l0"))) == 0
    assert float(StableLSTM(input_bound=2.0).violation(*weights(layer, "_l1"))) == 0
    assert float(StableLSTM(input_bound=5.0).violation(*weights(layer, "_l1"))) > 0


@pytest.mark.parametrize("assign", [False, True])
def test_a_state_dict_outside_the_set_is_refused_and_changes_nothing(assign: bool) -> None:
    layer, plain = LSTM(3, 4, transition="stable-lstm"), nn.LSTM(3, 4)
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    outside = {name: 50 * value for name, value in plain.state_dict().items()}
    with pytest.raises(ConstraintError, match="violation"):
        layer.load_state_dict(outside, assign=assign)
    assert all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())


def test_a_state_dict_inside_the_set_loads() -> None:
    layer, other = LSTM(3, 4, transition="stable-lstm"), LSTM(3, 4, transition="stable-lstm")
    layer.load_state_dict(other.state_dict())
    assert torch.equal(layer.weight_hh_l0, other.weight_hh_l0)


def test_a_parameter_outside_the_set_is_not_taken() -> None:
    layer = LSTM(3, 4, transition="stable-lstm")
    before = layer.weight_hh_l0
    with pytest.raises(ConstraintError, match="violation"):
        layer.weight_hh_l0 = nn.Parameter(torch.ones(16, 4))
    assert layer.weight_hh_l0 is before


def test_a_layer_on_the_meta_device_is_made_without_numbers() -> None:
    assert LSTM(3, 4, transition="stable-lstm", device="meta").weight_hh_l0.is_meta
