"""Orthogonal matrices by projection after each step."""

import torch
from torch import Tensor

from steadyrnn.linalg.polar_stack import polar_factors
from steadyrnn.linalg.projections import polar_factor

from .base import Constraint, Kind, working_dtype
from .orthogonality import distance_to_orthogonal

__all__ = ["PolarOrthogonal"]


class PolarOrthogonal(Constraint):
    r"""Matrices with orthonormal rows or columns, kept by taking the polar factor after each step.

    .. math:: W \leftarrow U V^\top \qquad\text{of}\qquad W = U \Sigma V^\top

    No orthogonal matrix is nearer in Frobenius norm (not the only one if W is singular). The raw tensor is the weight
    itself: the gradient is the plain one, and :func:`steadyrnn.attach_projection` is needed to stay in the set. Both
    signs of the determinant are members, and a large step may cross. See Note [projections].

    Args:
        project: See :class:`Constraint`.

    Example:
        >>> polar = sr.constraints.PolarOrthogonal()
        >>> polar.project(torch.diag(torch.tensor([2.0, -0.5])))
        tensor([[ 1.,  0.],
                [ 0., -1.]])

    References:
        Emami, Sahraee-Ardakan, Rangan, Fletcher. Input-Output Equivalence of Unitary and Contractive RNNs.
        NeurIPS 2019. https://arxiv.org/abs/1910.13672
    """

    kind = Kind.PROJECTION

    def __init__(self, *, project: bool = False) -> None:
        super().__init__(project=project)

    def raw(self, rows: int, columns: int) -> tuple[Tensor, ...]:
        """Return a random matrix with orthonormal rows or columns, shape ``(M, N)``."""
        self.fix_shape(rows, columns)
        return (torch.nn.init.orthogonal_(torch.empty(rows, columns, dtype=working_dtype())),)

    def forward(self, *raw: Tensor) -> Tensor:
        """Return the raw tensor itself: the set is kept by :meth:`project`."""
        return raw[0]

    def invert(self, matrix: Tensor) -> tuple[Tensor, ...]:
        """Return the matrix itself."""
        return (matrix.clone(),)

    def violation(self, matrix: Tensor) -> Tensor:
        """Return the distance, in spectral norm, to the matrices with orthonormal rows or columns."""
        return distance_to_orthogonal(matrix)

    def project(self, matrix: Tensor) -> Tensor:
        """Return the polar factor."""
        return polar_factor(matrix)

    def after_step(self, *raw: Tensor) -> tuple[Tensor, ...]:
        """Return the projected weight."""
        return (self.project(raw[0]),)

    def after_steps(self, *raw: Tensor) -> tuple[Tensor, ...] | None:
        """Return the projected weights of many members at once, ``(R, M, N)``; none of a class with a projection of its own."""
        if type(self) is not PolarOrthogonal:
            return None
        return (polar_factors(raw[0]),)
