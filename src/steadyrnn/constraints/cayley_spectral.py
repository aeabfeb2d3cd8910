"""The factorized parametrisation: singular values in an interval between two Cayley transforms."""

import torch
from torch import Tensor

from steadyrnn.checks import check_interval
from steadyrnn.errors import ArgumentError, not_among
from steadyrnn.linalg.projections import clip_singular_values

from .base import Constraint, Kind, distance_from_interval, working_dtype
from .cayley import CAYLEY
from .factor import Factor
from .spectral import from_interval, into_interval

__all__ = ["CayleySpectral"]

_KINDS = {"exact": Kind.MAP, "lie": Kind.RECENTRED}


def _away_from_half_turns(matrix: Tensor) -> Tensor:
    r"""Return signs of the columns of an orthogonal matrix, shape (N,), that leave it no eigenvalue -1.

    :math:`I + Q \operatorname{diag}(s) = (\operatorname{diag}(s) + Q) \operatorname{diag}(s)` is singular if and only
    if there is one. Eliminate column by column in :math:`Q + \operatorname{diag}(s)`, and choose each sign as that of
    the entry it is added to: every pivot is at least 1, so the matrix is regular.
    """
    rest = matrix.double().clone()
    signs = rest.new_ones(rest.shape[0])
    for k in range(rest.shape[0]):
        signs[k] = 1.0 if rest[k, k] >= 0 else -1.0
        pivot = rest[k, k] + signs[k]
        rest[k + 1 :, k + 1 :] -= torch.outer(rest[k + 1 :, k] / pivot, rest[k, k + 1 :])
    return signs.to(matrix.dtype)


_SIGNED_CAYLEY = CAYLEY._replace(signs=_away_from_half_turns)


class CayleySpectral(Constraint):
    r"""Matrices whose singular values lie in ``[center - radius, center + radius]``, between two Cayley transforms.

    .. math::
        W = U \operatorname{diag}(\sigma) V^\top, \qquad U = C(A_1) D_1, \quad V = C(A_2) D_2,
        \qquad C(A) = (I + A)^{-1} (I - A)

    with :math:`\sigma_i = c + 2r (\operatorname{sigmoid}(\hat\sigma_i) - \tfrac12)`. Both factors are orthogonal, so
    the entries of the diagonal are the singular values. The sign matrices :math:`D` are fixed when a matrix is
    assigned, for every orthogonal Q there is one with :math:`QD` free of the eigenvalue -1 that a Cayley transform
    cannot reach. The raw tensors hold :math:`2 \cdot N(N-1)/2 + N = N^2` numbers. Fresh factors turn disjoint planes by
    angles uniform in :math:`\pm\pi/2`; fresh singular values are ``center``.

    Args:
        center: Middle of the interval.
        radius: Half its width.
        gradient: ``"exact"``: the derivative of the formula. ``"lie"``: the paper's geodesic step. U and V are
            :math:`C(A) Q_0` with a base that takes their value after each step, when A returns to 0, so that every step
            is :math:`Q \leftarrow C(\eta (GQ^\top - QG^\top)) Q` up to a factor; needs
            :func:`steadyrnn.attach_projection`.
        project: See :class:`Constraint`.

    Example:
        >>> factorized = sr.constraints.CayleySpectral(radius=0.25)
        >>> torch.linalg.svdvals(factorized.sample(4, 4)).round(decimals=4)
        tensor([1., 1., 1., 1.])

    References:
        Vorontsov, Trabelsi, Kadoury, Pal. On orthogonality and learning recurrent networks with long term dependencies.
        ICML 2017. https://arxiv.org/abs/1702.00071
    """

    def __init__(
        self,
        center: float = 1.0,
        radius: float = 0.1,
        gradient: str = "exact",
        *,
        project: bool = False,
    ) -> None:
        super().__init__(project=project)
        if gradient not in _KINDS:
            raise ArgumentError(not_among("gradient", gradient, _KINDS))
        self.center = check_interval("center", center, 0.0, 1e6)
        self.radius = check_interval("radius", radius, 0.0, self.center)
        self.gradient = gradient
        self.kind = _KINDS[gradient]
        moving = self.kind is Kind.RECENTRED
        self.left, self.right = Factor(_SIGNED_CAYLEY, moving=moving), Factor(_SIGNED_CAYLEY, moving=moving)

    def extra_repr(self) -> str:
        """Show the arguments."""
        return f"center={self.center}, radius={self.radius}, gradient={self.gradient!r}"

    def raw(self, rows: int, columns: int) -> tuple[Tensor, ...]:
        """Return the packed entries of both skew matrices and the free singular values, which start at ``center``."""
        self.fix_shape(rows, columns, square=True)
        return self.left.raw(rows), self.right.raw(rows), torch.zeros(rows, dtype=working_dtype())

    def forward(self, *raw: Tensor) -> Tensor:
        """Return the matrix, shape ``(N, N)``."""
        left, right, free = raw
        sigma = into_interval(free, self.center, self.radius)
        return (self.left.matrix(left) * sigma) @ self.right.matrix(right).mT

    def invert(self, matrix: Tensor) -> tuple[Tensor, ...]:
        """Return raw tensors of a matrix through its SVD."""
        u, sigma, vh = torch.linalg.svd(matrix)
        return self.left.invert(u), self.right.invert(vh.mT), from_interval(sigma, self.center, self.radius)

    def violation(self, matrix: Tensor) -> Tensor:
        """Return how far the farthest singular value (float64 SVD) is outside the interval."""
        return distance_from_interval(matrix, self.center - self.radius, self.center + self.radius)

    def project(self, matrix: Tensor) -> Tensor:
        """Return ``matrix`` with its singular values clipped to the interval."""
        return clip_singular_values(matrix, self.center - self.radius, self.center + self.radius)

    def mend(self) -> None:
        """Put both bases back: the nearest orthogonal ones, or signs."""
        self.left.mend()
        self.right.mend()

    def after_step(self, *raw: Tensor) -> tuple[Tensor, ...] | None:
        """Move both bases to where the factors are, for ``"lie"``."""
        if self.kind is not Kind.RECENTRED:
            return None
        left, right, free = raw
        return self.left.recentre(self.left.matrix(left)), self.right.recentre(self.right.matrix(right)), free
