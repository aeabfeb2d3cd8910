"""Modules of which certificates were stored by an older version: ``stored.json`` holds them, by name."""

from collections.abc import Callable

import torch
from torch import nn

import steadyrnn as sr

__all__ = ["STORED"]


def filled(module: nn.Module, scale: float = 0.3) -> nn.Module:
    """Return a module whose parameters are a fixed pattern, exact in float32."""
    with torch.no_grad():
        for place, parameter in enumerate(module.parameters()):
            numbers = (torch.arange(parameter.numel()) * (7 + place)) % 16 - 8
            parameter.copy_(scale * 2.0**-3 * numbers.view_as(parameter))
    return module


STORED: dict[str, tuple[Callable[[], nn.Module], float | None]] = {
    "rnn": (lambda: filled(nn.RNN(2, 4), 0.25), 1.0),
    "rnn-abs": (lambda: filled(sr.RNN(2, 4, nonlinearity="abs"), 0.25), 1.0),
    "modrelu": (lambda: filled(sr.RNN(2, 4, nonlinearity="modrelu"), 0.25), 1.0),
    "gru": (lambda: filled(nn.GRU(2, 3), 0.125), 0.5),
    "gru without a bound": (lambda: filled(nn.GRU(2, 3), 0.125), None),
    "lstm": (lambda: filled(nn.LSTM(2, 3), 0.125), 0.5),
    "lstm without a bound": (lambda: filled(nn.LSTM(2, 3), 0.125), None),
    "both directions": (lambda: filled(nn.RNN(2, 4, bidirectional=True), 0.25), 1.0),
}
"""How each is made, and the bound on its inputs that it was certified for."""
