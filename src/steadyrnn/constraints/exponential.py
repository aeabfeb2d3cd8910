"""Orthogonal matrices as exponentials of skew ones, with three ways to take the gradient."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from steadyrnn.errors import ArgumentError, not_among
from steadyrnn.linalg.exponential import exp_packed, exp_skew, log_orthogonal
from steadyrnn.linalg.projections import polar_factor

from .base import Kind
from .factor import Factor, FactorConstraint, Turn
from .orthogonality import distance_to_orthogonal

__all__ = ["ExpOrthogonal"]


def _determinant_on_the_last(matrix: Tensor) -> Tensor:
    """Return signs of the columns, shape (N,), that make the determinant +1: all 1 but the last."""
    signs = matrix.new_ones(matrix.shape[0])
    signs[-1] = torch.linalg.slogdet(matrix).sign
    return signs


def _exp_printed(skew: Tensor) -> Tensor:
    r"""Return :math:`\exp(B)` with the derivative :math:`dW = dB \, W`, which is right at :math:`B = 0` only."""
    here = skew.detach()
    value = exp_skew(here)
    return value + (skew - here) @ value


def _angle(angle: Tensor) -> Tensor:
    """Return the entry whose exponential turns by an angle: the angle."""
    return angle


class _Rule(NamedTuple):
    kind: Kind
    turn: Turn
    moving: bool


_EXACT = Turn(exp_skew, log_orthogonal, _determinant_on_the_last, _angle, math.pi, exp_packed)
_RULES = {
    "exact": _Rule(Kind.MAP, _EXACT, moving=False),
    "lie": _Rule(Kind.RECENTRED, _EXACT, moving=True),
    "printed": _Rule(Kind.BASELINE, Turn(_exp_printed, *_EXACT[1:4], math.pi / 2), moving=False),
}


class ExpOrthogonal(FactorConstraint):
    r"""Orthogonal matrices as exponentials.

    .. math:: W = \exp(B) R, \qquad B = -B^\top

    The exponential of a skew matrix is orthogonal, since :math:`\exp(B)^\top = \exp(-B)`, and every rotation has one; R
    is the identity, or flips the last column so that a matrix of determinant -1 can be assigned. Steps do not cross
    from one determinant to the other. The raw tensor holds the :math:`N(N-1)/2` entries of B below its diagonal. A
    fresh matrix turns disjoint planes by angles uniform in :math:`\pm\pi` (:math:`\pm\pi/2` for ``"printed"``), so that
    :math:`\lVert B \rVert < \pi`: where two angles differ by :math:`2\pi` the derivative of exp is singular.

    Args:
        gradient: ``"exact"``: the derivative of exp. ``"lie"``: :math:`W = \exp(B) W_0`; after each step
            :math:`W_0 \leftarrow W` and :math:`B \leftarrow 0`, so that every step is the multiplicative
            :math:`W \leftarrow \exp(-\eta (GW^\top - WG^\top)) W` of a plain optimizer, always downhill; an adaptive
            one keeps its moments in the Lie algebra. Needs :func:`steadyrnn.attach_projection`, without which it is
            ``"exact"`` around a fixed point. ``"printed"``: a baseline, the paper's direction
            :math:`GW^\top - WG^\top` (with the sign that descends) added to B wherever B is; it is the gradient at
            :math:`B = 0` only, and may point uphill once :math:`\lVert B \rVert > \pi/2`.
        project: See :class:`Constraint`.

    Example:
        >>> orthogonal = sr.constraints.ExpOrthogonal()
        >>> swap = torch.tensor([[0.0, 1.0], [1.0, 0.0]])  # determinant -1
        >>> torch.allclose(orthogonal(*orthogonal.right_inverse(swap)), swap, atol=1e-6)
        True

    References:
        Lin, Wang. uRNN: An Approach to Bounded Gradients (``"printed"``, with the corrections of Note [corrections]).
        Lezcano-Casado, Martinez-Rubio. Cheap Orthogonal Constraints in Neural Networks. ICML 2019.
        https://arxiv.org/abs/1901.08428 (the exact gradient; the first angles, after Henaff, Szlam, LeCun 2016)
    """

    def __init__(self, gradient: str = "exact", *, project: bool = False) -> None:
        super().__init__(project=project)
        if gradient not in _RULES:
            raise ArgumentError(not_among("gradient", gradient, _RULES))
        self.gradient = gradient
        self.kind, turn, moving = _RULES[gradient]
        self.factor = Factor(turn, moving=moving)

    def extra_repr(self) -> str:
        """Show the gradient's name."""
        return f"gradient={self.gradient!r}"

    def violation(self, matrix: Tensor) -> Tensor:
        """Return the distance to the orthogonal matrices in spectral norm."""
        return distance_to_orthogonal(matrix)

    def project(self, matrix: Tensor) -> Tensor:
        """Return the nearest orthogonal matrix."""
        return polar_factor(matrix)

    def after_step(self, *raw: Tensor) -> tuple[Tensor, ...] | None:
        """Move the base to where the matrix is, for ``"lie"``."""
        return (self.factor.recentre(self.factor.matrix(raw[0])),) if self.factor.moving else None
