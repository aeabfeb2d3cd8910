"""The activation of unitary networks: it acts on pairs, read as complex numbers."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from steadyrnn.errors import ArgumentError

from .base import Activation

__all__ = ["ModReLU"]


@dataclass(frozen=True)
class ModReLU(Activation):
    r"""modReLU on the pairs (j, j + H/2), read as one complex number each.

    .. math:: \varphi(z) = \max(|z| + \theta, 0) \, z / |z|, \qquad \varphi(0) = 0

    One learned real :math:`\theta` a pair. For :math:`\theta \le 0` it is 1-Lipschitz in the 2-norm: it moves every
    point along its ray, by a shifted rectifier of the radius. For :math:`\theta > 0` the phase jumps at 0 and
    it is not. ``slopes`` and ``steepness`` are those of the first case; it is not elementwise.

    Example:
        >>> ModReLU().value(torch.tensor([3.0, 4.0]), torch.tensor([-1.0]))
        tensor([2.4000, 3.2000])

    References:
        Arjovsky, Shah, Bengio. Unitary Evolution Recurrent Neural Networks. ICML 2016.
    """

    name = "modrelu"
    slopes, steepness, smoothness = (0.0, 1.0), (0.0, 1.0), math.inf
    elementwise = False
    kernel = "modrelu"

    def value(self, x: Tensor, theta: Tensor | None = None) -> Tensor:  # noqa: D102
        z, radius, unit, zero = _polar(x)
        shift = x.new_zeros(()) if theta is None else theta
        silent = zero | (radius + shift <= 0)  # so written, NaN is not silent
        return torch.cat(tuple(torch.where(silent, 0.0, z + shift * unit)), dim=-1)

    def derivative(self, x: Tensor) -> Tensor:
        """Raise: the derivative is a 2 x 2 block per pair, not one number per entry."""
        raise ArgumentError("`modrelu` is not elementwise: its derivative is a matrix; use `pullback`.")

    def pullback(self, grad: Tensor, saved: Tensor, theta: Tensor | None, out: Tensor) -> Tensor | None:
        r"""Write the pullback; with :math:`e = z/|z|`, the radial part is kept where active, the rest is scaled."""
        _, radius, unit, zero = _polar(saved)
        g = torch.stack(grad.chunk(2, dim=-1))  # (2, B, H/2)
        shift = grad.new_zeros(()) if theta is None else theta
        silent = zero | (radius + shift <= 0)
        radial = (g * unit).sum(0)  # (B, H/2)
        bent = g + shift / radius * (g - radial * unit)
        torch.cat(tuple(torch.where(silent, 0.0, bent)), dim=-1, out=out)
        return torch.where(silent, 0.0, radial).sum(0)

    def slope_bounds(self, theta: Tensor | None = None) -> tuple[float, float]:
        """Return those of a shift that is not positive; a positive one makes the value jump at 0."""
        if theta is not None and bool((theta > 0).any()):
            return -math.inf, math.inf
        return super().slope_bounds(theta)

    def parameter_size(self, hidden_size: int) -> int:  # noqa: D102
        if hidden_size % 2:
            raise ArgumentError(f"`hidden_size` must be even for `modrelu`, which acts on pairs, but is {hidden_size}.")
        return hidden_size // 2


def _polar(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return pairs z as (2, ..., H/2), their radius, unit vector, and where they are zero (or denormal).

    Scaled by the larger part, which neither radius nor unit vector depends on, so that no square over- or underflows;
    a zero pair gets a radius that keeps every derivative finite.
    """
    z = torch.stack(x.chunk(2, dim=-1))
    scale = z.detach().abs().amax(0)
    zero = scale < torch.finfo(x.dtype).tiny
    scale = torch.where(zero, 1.0, scale)
    scaled = torch.where(zero, 1.0, z / scale)
    length = (scaled * scaled).sum(0).sqrt()  # from 1 to sqrt 2
    return z, scale * length, scaled / length, zero
