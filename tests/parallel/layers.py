"""Layers that contract, inputs they are certified for, and how far a time-parallel run is off."""

from typing import Any

import torch
from torch import Tensor, nn

import steadyrnn as sr
from steadyrnn.parallel.module import Parallel

__all__ = ["GATED", "error", "gated_of", "promised", "rnn_of", "states_of", "unit_inputs"]

GATED = ("LSTM", "GRU", "GRU, reset before")


def rnn_of(
    rate: float, nonlinearity: str | sr.Activation = "tanh", size: int = 12, dtype: torch.dtype = torch.float64, **options: Any
) -> sr.RNN:
    """Return an RNN whose recurrent weights are Gaussian with spectral norm ``rate``."""
    rnn = sr.RNN(5, size, nonlinearity=nonlinearity, dtype=dtype, **options)
    with torch.no_grad():
        for layer in range(rnn.num_layers):
            w = torch.randn(size, size, dtype=torch.float64)
            getattr(rnn, f"weight_hh_l{layer}").copy_(w * (rate * (1 - 1e-6) / torch.linalg.matrix_norm(w, 2)))
    return rnn


def gated_of(kind: str, dtype: torch.dtype = torch.float64, **options: Any) -> nn.Module:
    """Return a gated layer that is certified for inputs of norm up to 1."""
    if kind == "LSTM":
        layer: nn.Module = sr.LSTM(5, 8, dtype=dtype, **options)
    else:
        layer = sr.GRU(5, 8, dtype=dtype, reset_after=kind == "GRU", **options)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            parameter.mul_(0.15 if "weight_hh" in name else 0.4)
    return layer


def unit_inputs(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    """Return vectors of norm below 1."""
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (0.999 * x / x.norm(dim=-1, keepdim=True)).to(dtype)


def states_of(state: Any) -> tuple[Tensor, ...]:
    return state if isinstance(state, tuple) else (state,)


@torch.no_grad()
def error(fast: Parallel, x: Tensor, hx: Any = None, **options: Any) -> float:
    """Return the largest 2-norm of an error of an output or a final state, against the layer itself."""
    output, state = fast(x, hx, **options)
    truth, last = fast.layer(x, hx, **options)
    assert output.shape == truth.shape
    assert output.dtype == truth.dtype
    pairs = [(output, truth), *zip(states_of(state), states_of(last), strict=True)]
    return float(max((a.double() - b.double()).norm(dim=-1).max() for a, b in pairs))


def promised(fast: Parallel) -> float:
    assert fast.report.truncation <= fast.tol
    return fast.report.truncation + fast.report.rounding
