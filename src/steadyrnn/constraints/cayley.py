"""Rotations as Cayley transforms of skew matrices."""

import math

import torch
from torch import Tensor

from steadyrnn.linalg.cayley import cayley, cayley_inverse

from .factor import Factor, FactorConstraint, Turn, no_signs
from .orthogonality import distance_to_orthogonal, nearest_rotation

__all__ = ["CAYLEY", "CayleyOrthogonal"]


def _half_tangent(angle: Tensor) -> Tensor:
    """Return the entry whose Cayley transform turns by an angle, up to the sense of the turn."""
    return (angle / 2).tan()


CAYLEY = Turn(cayley, cayley_inverse, no_signs, _half_tangent, math.pi / 2)
"""The Cayley transform; fresh angles stay within a quarter turn, where its entries stay within 1."""


class CayleyOrthogonal(FactorConstraint):
    r"""Rotations without the eigenvalue -1, as Cayley transforms.

    .. math:: W = (I + A)^{-1} (I - A), \qquad A = -A^\top

    The two factors commute and :math:`I \pm A` are each other's transposes, so :math:`W^\top W = I`; the determinant
    is +1. A half turn (eigenvalue -1) would need an infinite A: assigning a matrix that has one is refused. It takes
    one linear solve and no eigenvalues, but rounding is amplified by :math:`\lVert A \rVert`: on a GPU and in a compiled
    graph a matrix close to a half turn is orthogonal to fewer digits; on a CPU that is put right. The raw tensor holds
    the :math:`N(N-1)/2` entries of A below its diagonal. A fresh matrix turns disjoint planes by angles uniform in
    :math:`\pm\pi/2`.

    Args:
        project: See :class:`Constraint`.

    Example:
        >>> rotation = sr.constraints.CayleyOrthogonal()
        >>> weight = rotation.sample(4, 4)
        >>> torch.allclose(weight.mT @ weight, torch.eye(4), atol=1e-6)
        True

    References:
        Helfrich, Willmott, Ye. Orthogonal Recurrent Neural Networks with Scaled Cayley Transform. ICML 2018.
        https://arxiv.org/abs/1707.09520
    """

    def __init__(self, *, project: bool = False) -> None:
        super().__init__(project=project)
        self.factor = Factor(CAYLEY, moving=False)

    def violation(self, matrix: Tensor) -> Tensor:
        """Return the distance to the rotations in spectral norm; an orthogonal matrix of determinant -1 is 2 away."""
        distance = distance_to_orthogonal(matrix)
        if bool(distance < 1) and float(torch.linalg.slogdet(matrix.detach().double()).sign) < 0:
            # the product with any rotation has determinant -1, hence an eigenvalue close to -1
            return 2 - distance
        return distance

    def project(self, matrix: Tensor) -> Tensor:
        """Return the nearest rotation."""
        return nearest_rotation(matrix)
