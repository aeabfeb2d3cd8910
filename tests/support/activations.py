"""Activations as a user would write them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from steadyrnn.activations import Activation

__all__ = ["Softsign", "Swell"]


@dataclass(frozen=True)
class Softsign(Activation):
    """x / (1 + |x|): no numbers of its own, derivative from the pre-activation."""

    name = "test_softsign"
    slopes, steepness, smoothness = (0.0, 1.0), (0.0, 1.0), 2.0

    def value(self, x: Tensor, theta: Tensor | None = None) -> Tensor:
        return x / (1 + x.abs())

    def derivative(self, x: Tensor) -> Tensor:
        return (1 + x.abs()) ** -2


@dataclass(frozen=True)
class Swell(Activation):
    """tanh(theta * x) * scale, theta one learned number per unit: with a field, a parameter and a pullback."""

    scale: float = 0.5
    name = "test_swell"
    slopes, steepness, smoothness = (0.0, 1.0), (0.0, 1.0), 2.0

    def value(self, x: Tensor, theta: Tensor | None = None) -> Tensor:
        return self.scale * (x if theta is None else x * theta).tanh()

    def derivative(self, x: Tensor) -> Tensor:
        return self.scale * (1 - x.tanh() ** 2)

    def pullback(self, grad: Tensor, saved: Tensor, theta: Tensor | None, out: Tensor) -> Tensor | None:
        if theta is None:
            torch.mul(grad, self.derivative(saved), out=out)
            return None
        inner = grad * self.derivative(saved * theta)
        torch.mul(inner, theta, out=out)
        return (inner * saved).sum(0)

    def parameter_size(self, hidden_size: int) -> int:
        return hidden_size
