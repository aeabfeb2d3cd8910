"""The steepest an activation can be near a pre-activation."""

import torch
from torch import Tensor

from steadyrnn.activations import Absolute, Activation, Identity, LeakyReLU, ReLU, Sigmoid, Tanh

__all__ = ["steepest_near"]


def steepest_near(activation: Activation, a: Tensor, radius: Tensor) -> Tensor:
    r"""Return :math:`\sup |\varphi'|` on the interval of ``radius`` around ``a``, entry by entry.

    Sigmoid and tanh are flatter the farther they are from 0; rectifiers have one slope a side. Of an activation that is
    not known here, the steepest it is anywhere is returned.

    Args:
        activation: :math:`\varphi`, elementwise.
        a: Pre-activations.
        radius: How far they may be off, not negative; broadcast against ``a``.

    Example:
        >>> steepest_near(ReLU(), torch.tensor([-1.0, -1.0]), torch.tensor([0.5, 2.0]))
        tensor([0., 1.])
    """
    low, high = activation.steepness
    if isinstance(activation, Tanh | Sigmoid):
        nearest = (a.abs() - radius).clamp(min=0)
        return activation.derivative(activation.value(nearest)).clamp(max=high)
    if isinstance(activation, ReLU | LeakyReLU):
        return torch.where(a + radius > 0, high, low).to(a.dtype)
    if isinstance(activation, Absolute | Identity):
        return torch.ones_like(a + radius)
    return torch.full_like(a + radius, high)
