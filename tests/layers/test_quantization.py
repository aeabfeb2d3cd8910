"""torch's quantization knows torch's own classes only: ours are refused by name and not left out without a word."""

from typing import Any

import pytest
import torch
from torch import nn

from steadyrnn.convert.torch_nn import to_torch
from steadyrnn.errors import ConversionError
from steadyrnn.layers.cells import GRUCell, LSTMCell, RNNCell
from steadyrnn.layers.gru import GRU
from steadyrnn.layers.linear import Linear
from steadyrnn.layers.lstm import LSTM
from steadyrnn.layers.rnn import RNN
from tests.support.layers import KINDS, assert_state_kept

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
MODULES = {
    **{kind: make(4, 4) for kind, make in KINDS.items()},
    **{make.__name__: make(4, 4) for make in (RNNCell, GRUCell, LSTMCell, Linear)},
    "constrained": GRU(4, 4, transition="spectral"),
    "nested": nn.Sequential(nn.Linear(4, 4), RNN(4, 4)),
}
SPECS: list[Any] = [None, {nn.Linear}, pytest.param({nn.LSTM, nn.GRU}, id="LSTM and GRU")]


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("name", MODULES)
def test_dynamic_quantization_is_refused_by_name(name: str, spec: Any) -> None:
    module = MODULES[name]
    with assert_state_kept(module), pytest.raises(ConversionError, match=r"of steadyrnn.*to_torch"):
        torch.ao.quantization.quantize_dynamic(module, spec, dtype=torch.qint8)
    assert not any(hasattr(part, "qconfig") for part in module.modules())


def test_preparation_of_static_quantization_is_refused_by_name() -> None:
    module = nn.Sequential(GRU(4, 4))
    module.qconfig = torch.ao.quantization.default_qconfig
    with pytest.raises(ConversionError, match="GRU of steadyrnn"):
        torch.ao.quantization.prepare(module)


@pytest.mark.parametrize("make", [GRU, LSTM])
def test_converted_layer_is_quantized(make: Any) -> None:
    plain = nn.Sequential(to_torch(make(4, 4, transition="spectral")))
    quantized = torch.ao.quantization.quantize_dynamic(plain, {nn.GRU, nn.LSTM}, dtype=torch.qint8)
    assert "quantized" in type(quantized[0]).__module__
