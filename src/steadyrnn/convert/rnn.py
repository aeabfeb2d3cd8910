"""What conversions of an RNN start from and end with: an RNN of ours, and another one with the same options."""

from typing import Literal

import torch
from torch import nn

from steadyrnn.errors import ConversionError
from steadyrnn.layers.base import RecurrentLayer
from steadyrnn.layers.cells import RecurrentStep
from steadyrnn.layers.from_torch import from_torch
from steadyrnn.layers.rnn import RNN
from steadyrnn.layers.saturation import refuse_saturation

__all__ = ["as_rnn", "fresh_rnn"]


def as_rnn(rnn: nn.Module) -> RNN:
    """Return an RNN of ours, made from torch's if need be; refuse everything else by name."""
    refuse_saturation(rnn, ConversionError, "it cannot be converted")
    if isinstance(rnn, RNN):
        return rnn
    if isinstance(rnn, nn.RNN):
        return from_torch(rnn)  # type: ignore[return-value]
    name = type(rnn).__name__
    if isinstance(rnn, RecurrentLayer | RecurrentStep | nn.RNNBase | nn.RNNCellBase):
        raise ConversionError(
            f"`rnn` is of type {name}, but the theorems (Emami et al.) are about an RNN over a sequence, "
            "h_t = phi(W h_(t-1) + F x_t + b); none is known for gated networks. Convert an `RNN`."
        )
    raise ConversionError(
        f"`rnn` must be an RNN of steadyrnn or torch.nn, but is of type {name}. Convert each RNN in it by itself."
    )


def fresh_rnn(rnn: RNN, hidden_size: int, bias: bool | Literal["single"], learn_initial_state: bool) -> RNN:
    """Return another RNN with a free recurrent weight and else the options of this one; no random number is used up.

    Example:
        >>> fresh_rnn(sr.RNN(2, 3, nonlinearity="relu", transition="polar"), 5, bias=True, learn_initial_state=False)
        RNN(2, 5, nonlinearity=ReLU())
    """
    weight = rnn.weight_ih_l0
    with torch.random.fork_rng(devices=[weight.device] if weight.device.type == "cuda" else []):
        return RNN(
            rnn.input_size, hidden_size, rnn.num_layers, rnn.activation, bias, rnn.batch_first,
            rnn.dropout if rnn.num_layers > 1 else 0.0, rnn.bidirectional,
            device=weight.device, dtype=weight.dtype, learn_initial_state=learn_initial_state, engine=rnn.engine,
            recompute=rnn.recompute,
        )  # fmt: skip
