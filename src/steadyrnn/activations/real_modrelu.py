"""modReLU on real numbers: the activation of the expRNN and its kin, one learned shift per unit."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from steadyrnn.errors import ArgumentError

from .base import Activation

__all__ = ["RealModReLU"]


@dataclass(frozen=True)
class RealModReLU(Activation):
    r"""modReLU on each entry by itself, with one learned shift per unit.

    .. math:: \varphi(x) = \max(|x| + \theta, 0) \operatorname{sign}(x), \qquad \varphi(0) = 0

    For :math:`\theta \le 0` this is a soft threshold: the slope is 0 where :math:`|x| \le -\theta` and 1 elsewhere, so it is
    1-Lipschitz. For :math:`\theta > 0` the value jumps at 0 and it is not. ``slopes`` and ``steepness`` are those of
    the first case. The slope depends on the learned shift, which theorems on elementwise activations do not know:
    ``elementwise`` is False, and certificates use the Lipschitz constant only. :class:`ModReLU` acts on pairs.
    Our GPU kernels do not have it; layers run on the CPU engine or the reference engine.

    Example:
        >>> RealModReLU().value(torch.tensor([3.0, -4.0, 0.5]), torch.tensor([-1.0, 2.0, -1.0]))
        tensor([ 2., -6.,  0.])

    References:
        Lezcano-Casado, Martinez-Rubio. Cheap Orthogonal Constraints in Neural Networks. ICML 2019.
        https://arxiv.org/abs/1901.08428 (after Helfrich, Willmott, Ye. ICML 2018)
    """

    name = "modrelu_real"
    slopes, steepness, smoothness = (0.0, 1.0), (0.0, 1.0), math.inf
    elementwise = False

    def value(self, x: Tensor, theta: Tensor | None = None) -> Tensor:  # noqa: D102
        shift = x.new_zeros(()) if theta is None else theta
        return torch.where(_silent(x, shift), 0.0, x + shift * x.sign())

    def derivative(self, x: Tensor) -> Tensor:
        """Raise: the derivative depends on the learned shift."""
        raise ArgumentError("`modrelu_real` has a derivative that depends on its learned shift; use `pullback`.")

    def pullback(self, grad: Tensor, saved: Tensor, theta: Tensor | None, out: Tensor) -> Tensor | None:
        """Write the gradient where the unit is not silent; that of the shift is its product with the sign, summed."""
        shift = grad.new_zeros(()) if theta is None else theta
        passed = torch.where(_silent(saved, shift), 0.0, grad)
        out.copy_(passed)
        return (passed * saved.sign()).sum(0)

    def slope_bounds(self, theta: Tensor | None = None) -> tuple[float, float]:
        """Return those of a shift that is not positive; a positive one makes the value jump at 0."""
        if theta is not None and bool((theta > 0).any()):
            return -math.inf, math.inf
        return super().slope_bounds(theta)

    def parameter_size(self, hidden_size: int) -> int:  # noqa: D102
        return hidden_size


def _silent(x: Tensor, shift: Tensor) -> Tensor:
    """Say where the value is 0; so written, NaN is not silent."""
    return (x == 0) | (x.abs() + shift <= 0)
