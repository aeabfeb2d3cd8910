"""Recurrent networks for tests of conversions, and activations as a user would write them."""

import functools
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import steadyrnn as sr
from steadyrnn.activations import Activation
from steadyrnn.layers.rnn import RNN
from tests.linalg.matrices import gaussian
from tests.support.errors import assert_equal_up_to_rounding

__all__ = ["NEVER_SILENT", "SILENT", "ReLU6", "ShiftedReLU", "assert_same", "bounded", "contraction", "extra_units", "network"]


@dataclass(frozen=True)
class Clip(Activation):
    """The identity between 0 and ``top``, constant outside; ``at_zero`` is its slope at 0."""

    top: float = 1.0
    at_zero: float = 1.0
    name = "test_clip"
    slopes, steepness, smoothness = (0.0, 1.0), (0.0, 1.0), math.inf

    def value(self, x: Tensor, theta: Tensor | None = None) -> Tensor:
        return x.clamp(0, self.top)

    def derivative(self, x: Tensor) -> Tensor:
        return torch.where(x == 0, self.at_zero, ((x > 0) & (x < self.top)).to(x.dtype)).to(x.dtype)


ReLU6 = functools.partial(Clip, 6.0, 0.0)


@dataclass(frozen=True)
class ShiftedReLU(Activation):
    """relu(x - shift): silent below ``shift``, which may be negative."""

    shift: float = 0.3
    name = "test_shifted_relu"
    slopes, steepness, smoothness = (0.0, 1.0), (0.0, 1.0), math.inf

    def value(self, x: Tensor, theta: Tensor | None = None) -> Tensor:
        return (x - self.shift).relu()

    def derivative(self, x: Tensor) -> Tensor:
        return (x > self.shift).to(x.dtype)


@dataclass(frozen=True)
class ELU(Activation):
    name = "test_elu"
    slopes, steepness, smoothness = (0.0, 1.0), (0.0, 1.0), 1.0

    def value(self, x: Tensor, theta: Tensor | None = None) -> Tensor:
        return nn.functional.elu(x)

    def derivative(self, x: Tensor) -> Tensor:
        return torch.where(x > 0, 1.0, x.exp())


@dataclass(frozen=True)
class Softplus(Activation):
    """A steep one that rounds to 0 below -4, where its slope does not."""

    name = "test_softplus"
    slopes, steepness, smoothness = (0.0, 1.0), (0.0, 1.0), 2.5

    def value(self, x: Tensor, theta: Tensor | None = None) -> Tensor:
        return torch.log(1 + torch.exp(10 * x)) / 10

    def derivative(self, x: Tensor) -> Tensor:
        return torch.sigmoid(10 * x)


@dataclass(frozen=True)
class Steep(Activation):
    name = "test_steep"
    slopes, steepness, smoothness = (0.0, 2.0), (0.0, 2.0), math.inf

    def value(self, x: Tensor, theta: Tensor | None = None) -> Tensor:
        return 2 * x.relu()

    def derivative(self, x: Tensor) -> Tensor:
        return 2 * (x > 0).to(x.dtype)


SILENT: dict[str, Activation] = {
    "relu": sr.ReLU(),
    "relu6": ReLU6(),
    "clip": Clip(),
    "thresholded relu": ShiftedReLU(0.3),
    "relu that starts below zero": ShiftedReLU(-0.3),
}
NEVER_SILENT: dict[str, Activation] = {
    "leaky relu": sr.LeakyReLU(0.1),
    "elu": ELU(),
    "abs": sr.Absolute(),
    "identity": sr.Identity(),
    "softplus": Softplus(),
    "steep": Steep(),
}


def contraction(n: int, norm: float, seed: int = 0) -> Tensor:
    w = gaussian(n, n, seed=seed)
    return w * (norm / torch.linalg.matrix_norm(w, 2))


def network(weight: Tensor, activation: str | Activation = "relu", inputs: int = 3, seed: int = 0, **options: Any) -> RNN:
    """Return an RNN in float64 with this recurrent weight in every layer and direction, and Gaussian others."""
    rnn = RNN(inputs, len(weight), nonlinearity=activation, dtype=torch.float64, **options)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in rnn.named_parameters():
            draw = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(weight if name.startswith("weight_hh") else draw / math.sqrt(parameter.shape[-1]))
    return rnn


def bounded(*shape: int, bound: float = 1.0, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return inputs on the sphere of radius ``bound``."""
    return (nn.functional.normalize(gaussian(*shape, seed=seed), dim=-1) * bound).to(dtype)


def extra_units(unitary: Any, x: Tensor) -> Tensor:
    output, _ = unitary.layer(x)
    return output.unflatten(-1, (unitary.layer.directions, -1))[..., unitary.hidden_size :]


def assert_same(unitary: nn.Module, rnn: nn.Module, *arguments: Any, **options: Any) -> None:
    with torch.no_grad():
        for value, expected in zip(unitary(*arguments, **options), rnn(*arguments, **options), strict=True):
            value, expected = (t.data if hasattr(t, "batch_sizes") else t for t in (value, expected))
            assert value.shape == expected.shape
            assert_equal_up_to_rounding(value, expected, 4)
