"""NaN and infinity in raw tensors: they reach the weight, where a guard sees them, and a certificate names them."""

import pytest
import torch
from torch import nn

import steadyrnn as sr
from steadyrnn.constraints.base import Kind
from steadyrnn.constraints.slot import Slot
from steadyrnn.errors import NotFiniteError
from tests.constraints.cases import CASES, rounding
from tests.support.modules import MODULES

both = pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf], ids=str)
BOUNDED = ("spectral", "factorized")  # whose singular values are a sigmoid of the last raw tensor: infinity is its end
RECURRENT = [
    name
    for name, case in MODULES.items()
    if name.startswith(("RNN", "GRU", "LSTM", "SequenceModel")) and not name.startswith("GRU-reset")
]


def spoiled(module: nn.Module, name: str, value: float) -> nn.Module:
    """Put a value into the last entry of a parameter."""
    with torch.no_grad():
        module.get_parameter(name).view(-1)[-1] = value
    return module


@both
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_a_raw_tensor_that_is_not_finite_gives_a_weight_that_is_not(name: str, dtype: torch.dtype, value: float) -> None:
    for raw, parameter in Slot(CASES[name](), 6, 6).named_parameters():
        if not parameter.numel() or (value == value and raw == "raw2" and name.startswith(BOUNDED)):
            continue
        slot = spoiled(Slot(CASES[name](), 6, 6, dtype=dtype), raw, value)
        weight = slot.weight()
        assert not weight.isfinite().all(), raw
        weight.float().square().sum().backward()
        assert not all(p.grad.isfinite().all() for p in slot.parameters() if p.grad is not None)


@pytest.mark.parametrize("scale", [1e10, 1e30])
@pytest.mark.parametrize("name", CASES)
def test_large_raw_tensors_raise_no_error_of_a_library(name: str, scale: float) -> None:
    slot = Slot(CASES[name](), 5 + name.startswith("unitary"), 5 + name.startswith("unitary"))
    with torch.no_grad():
        for parameter in slot.parameters():
            parameter.normal_().mul_(scale)
    weight = slot.weight()
    if slot.constraint.kind is Kind.MAP:
        assert slot.constraint.violation(weight) <= rounding(len(weight), torch.float32)


@pytest.mark.parametrize("name", RECURRENT)
def test_certify_names_the_parameter_that_is_not_finite(name: str) -> None:
    module = MODULES[name].make()
    layer = module.rnn if isinstance(module, sr.SequenceModel) else module
    for parameter in [key for key, tensor in layer.named_parameters() if tensor.numel()]:
        broken = MODULES[name].make()
        spoiled(broken.rnn if isinstance(broken, sr.SequenceModel) else broken, parameter, torch.nan)
        with pytest.raises(NotFiniteError, match=rf"`(rnn\.)?{parameter}` holds NaN or infinity"):
            sr.certify(broken, input_bound=1.0)


def test_certify_names_the_parameter_of_torchs_parametrization() -> None:
    rnn = sr.constrain(nn.RNN(3, 4), "weight_hh_l0", "exp")
    with torch.no_grad():
        rnn.parametrizations["weight_hh_l0"].original0.fill_(torch.nan)
    with pytest.raises(NotFiniteError, match=r"`parametrizations\.weight_hh_l0\.original0` holds NaN"):
        sr.certify(rnn, input_bound=1.0)
