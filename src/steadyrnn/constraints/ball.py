"""The spectral ball: contractions by projection after each step."""

import math

import torch
from torch import Tensor

from steadyrnn.checks import check_interval
from steadyrnn.linalg.projections import clip_singular_values

from .base import Constraint, Kind, distance_from_interval, working_dtype

__all__ = ["SpectralBall"]


class SpectralBall(Constraint):
    r"""Matrices with :math:`\lVert W \rVert \le` ``bound``, kept by clipping singular values after each step.

    With an activation of slope at most 1 the network is then a contraction with that constant (Note
    [mathematics], section 4.7). Clipping is
    the Frobenius projection onto a convex set, hence non-expansive: what projected gradient descent needs. A step that
    stays inside costs a proof of that (:func:`~steadyrnn.linalg.norm_proof.proves_norm`), and no SVD.

    Args:
        bound: Largest singular value allowed.
        project: See :class:`Constraint`.

    Example:
        >>> ball = sr.constraints.SpectralBall(bound=0.5)
        >>> ball.project(torch.diag(torch.tensor([2.0, 0.25])))
        tensor([[0.5000, 0.0000],
                [0.0000, 0.2500]])

    References:
        Miller, Hardt. When Recurrent Models Don't Need To Be Recurrent (stable RNN).
        Emami et al. Input-Output Equivalence of Unitary and Contractive RNNs (contractive RNN).
    """

    kind = Kind.PROJECTION

    def __init__(self, bound: float = 0.99, *, project: bool = False) -> None:
        super().__init__(project=project)
        self.bound = check_interval("bound", bound, 0.0, math.inf)

    def extra_repr(self) -> str:
        """Show the bound."""
        return f"bound={self.bound}"

    def raw(self, rows: int, columns: int) -> tuple[Tensor, ...]:
        """Return a first weight inside the ball, shape ``(M, N)``: torch's own, clipped."""
        self.fix_shape(rows, columns)
        return (self.project(torch.empty(rows, columns, dtype=working_dtype()).uniform_(-1, 1) / math.sqrt(max(columns, 1))),)

    def forward(self, *raw: Tensor) -> Tensor:
        """Return the raw tensor itself: the ball is kept by :meth:`project`."""
        return raw[0]

    def invert(self, matrix: Tensor) -> tuple[Tensor, ...]:
        """Return the matrix itself."""
        return (matrix.clone(),)

    def violation(self, matrix: Tensor) -> Tensor:
        r"""Return :math:`\max(\lVert W \rVert - \text{bound}, 0)` from a float64 SVD."""
        return distance_from_interval(matrix, 0.0, self.bound)

    def project(self, matrix: Tensor) -> Tensor:
        """Return ``matrix`` with its singular values clipped to the bound; a member comes back unchanged."""
        return clip_singular_values(matrix, 0.0, self.bound)

    def after_step(self, *raw: Tensor) -> tuple[Tensor, ...]:
        """Return the projected weight."""
        return (self.project(raw[0]),)
