"""An orthogonal factor: packed entries of a skew matrix, turned into a rotation, times a base that makes all reachable."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from steadyrnn.checks import check_same_meta
from steadyrnn.linalg.packing import pack_skew, packed_size, unpack_skew
from steadyrnn.linalg.projections import polar_factor

from .base import Constraint, working_dtype
from .orthogonality import nearest_signs, orthonormal

__all__ = ["Factor", "FactorConstraint", "Turn", "no_signs", "plane_entries", "skew_size"]


class Turn(NamedTuple):
    """A way from skew matrices to rotations.

    ``value`` maps a skew matrix to a rotation and ``inverse`` back. ``signs`` chooses, for an orthogonal matrix, signs of
    its columns, shape (N,), with which it is passed to ``inverse``. ``entry`` is the skew entry that turns a plane by an
    angle; ``reach`` the largest angle of a fresh rotation. ``from_packed`` is ``value`` of the packed entries and the
    size, where that is faster; pickles of earlier versions lack it.
    """

    value: Callable[[Tensor], Tensor]
    inverse: Callable[[Tensor], Tensor]
    signs: Callable[[Tensor], Tensor]
    entry: Callable[[Tensor], Tensor]
    reach: float
    from_packed: Callable[[Tensor, int], Tensor] | None = None

    def rotation(self, packed: Tensor, size: int) -> Tensor:
        """Return the rotation of the skew matrix with the packed entries below its diagonal, shape (N, N)."""
        return self.value(unpack_skew(packed, size)) if self.from_packed is None else self.from_packed(packed, size)


def no_signs(matrix: Tensor) -> Tensor:
    """Return ones, shape (N,): every matrix is represented as it is.

    Example:
        >>> no_signs(torch.eye(2))
        tensor([1., 1.])
    """
    return matrix.new_ones(matrix.shape[0])


class Factor(nn.Module):
    r"""An orthogonal matrix from the packed entries of a skew one.

    .. math:: Q = \operatorname{turn}(A) \operatorname{diag}(s) \qquad\text{or}\qquad Q = \operatorname{turn}(A) \, Q_0

    The signs :math:`s` are chosen when a matrix is assigned, and fixed after. A moving base :math:`Q_0` takes the
    value of :math:`Q` when it is re-centred, and :math:`A` becomes 0; reading it removes its rounding errors first,
    so they do not add up over the steps. A fresh factor turns disjoint planes by angles drawn uniformly.

    Args:
        turn: The way from skew matrices to rotations.
        moving: Whether there is a moving base instead of signs.
    """

    base: Tensor

    def __init__(self, turn: Turn, *, moving: bool) -> None:
        super().__init__()
        self.turn = turn
        self.moving = moving
        self.size = 0

    def raw(self, size: int) -> Tensor:
        """Return the packed entries of a fresh factor, shape ``(N(N-1)/2,)``."""
        self.size = size
        angles = torch.empty(size // 2, dtype=working_dtype()).uniform_(-self.turn.reach, self.turn.reach)
        packed = plane_entries(self.turn.entry(angles), size)
        if not self.moving:
            self.register_buffer("base", packed.new_ones(size))
            return packed
        self.register_buffer("base", self.turn.rotation(packed, size).contiguous())
        return torch.zeros_like(packed)

    def matrix(self, packed: Tensor) -> Tensor:
        """Return the orthogonal matrix, shape ``(N, N)``."""
        base = check_same_meta("`base`", self.base, packed).to(packed.dtype)
        turned = self.turn.rotation(packed, self.size)
        return turned @ orthonormal(base) if self.moving else turned * base

    def invert(self, matrix: Tensor) -> Tensor:
        """Choose the base for an orthogonal matrix and return its packed entries."""
        if self.moving:
            return self.recentre(matrix)
        signs = self.turn.signs(matrix)
        packed = pack_skew(self.turn.inverse(matrix * signs))
        self._set_base(signs)
        return packed

    def recentre(self, matrix: Tensor) -> Tensor:
        """Take an orthogonal matrix as the base and return its packed entries: zeros."""
        self._set_base(matrix)
        return matrix.new_zeros(skew_size(self.size))

    def mend(self) -> None:
        """Take the nearest orthogonal base, or the nearest signs, after a change from outside."""
        base = polar_factor(self.base) if self.moving else nearest_signs(self.base)
        self.base.copy_(base)

    def _set_base(self, base: Tensor) -> None:
        """Copy in place where possible: whoever holds the buffer sees it; else keep all the digits that came."""
        if (self.base.dtype, self.base.device) == (base.dtype, base.device):
            self.base.copy_(base)
        else:
            self.base = base.detach().clone(memory_format=torch.contiguous_format)


class FactorConstraint(Constraint):
    """A constraint whose matrix is one factor; a final class chooses the factor and says which matrices are members."""

    factor: Factor

    def raw(self, rows: int, columns: int) -> tuple[Tensor, ...]:
        """Return the packed entries of a fresh factor, shape ``(N(N-1)/2,)``; zero where its base is drawn instead."""
        self.fix_shape(rows, columns, square=True)
        return (self.factor.raw(rows),)

    def forward(self, *raw: Tensor) -> Tensor:
        """Return the matrix, shape ``(N, N)``."""
        return self.factor.matrix(raw[0])

    def invert(self, matrix: Tensor) -> tuple[Tensor, ...]:
        """Return the packed entries of a matrix, or zeros if it becomes the new base."""
        return (self.factor.invert(matrix),)

    def mend(self) -> None:
        """Put the base back: the nearest orthogonal one, or signs."""
        self.factor.mend()


def skew_size(size: int) -> int:
    """Count the entries below the diagonal of an ``(N, N)`` matrix, :math:`N(N-1)/2`.

    Example:
        >>> skew_size(3)
        3
    """
    return packed_size(size - 1, size - 1)


def plane_entries(entries: Tensor, size: int) -> Tensor:
    """Return the packed skew matrix that couples coordinates 0 and 1 by the first entry, 2 and 3 by the second, ...

    Its exponential turns each pair of coordinates by the entry as an angle.

    Args:
        entries: Shape ``(N // 2,)``.
        size: :math:`N`.

    Example:
        >>> plane_entries(torch.tensor([0.5]), 3)
        tensor([0.5000, 0.0000, 0.0000])
    """
    below = entries.new_zeros(size, size)
    below.diagonal(-1)[::2].copy_(entries)
    return pack_skew(below)
