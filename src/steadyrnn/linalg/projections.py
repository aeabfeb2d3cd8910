"""Projections onto sets of matrices: orthogonal ones, bounded singular values, rows of bounded 1-norm."""

import torch
from torch import Tensor

from steadyrnn.checks import check_finite, check_matrix
from steadyrnn.errors import ArgumentError, ShapeError

from .norm_proof import proves_norm

__all__ = ["clip_singular_values", "polar_factor", "project_rows_l1"]


@torch.no_grad()
def polar_factor(matrix: Tensor) -> Tensor:
    r"""Return the nearest matrix with orthonormal columns, or rows if there are fewer of them.

    .. math:: W = U \Sigma V^\top \;\mapsto\; U V^\top

    :math:`\lVert W - X \rVert_F^2` is smallest where :math:`\langle W, X \rangle` is largest, and that is at most the
    sum of the singular values of :math:`W`, reached at :math:`U V^\top`. Close to the set the iteration
    :math:`X \leftarrow X (3I - X^\top X) / 2`, which moves the singular values to 1 and leaves the
    vectors alone, takes the place of the SVD and is many times cheaper. Computed in float64.

    Args:
        matrix: :math:`W`, shape ``(M, N)``. If its rank is not full, the nearest matrix is one of many.

    Returns:
        The polar factor, shape ``(M, N)``.

    Example:
        >>> polar_factor(torch.tensor([[2.0, 0.0], [0.0, -0.5]]))
        tensor([[ 1.,  0.],
                [ 0., -1.]])

    References:
        Higham. Functions of Matrices, chapter 8. SIAM 2008.
    """
    wide = _check("matrix", matrix)
    if matrix.shape[0] < matrix.shape[1]:
        return polar_factor(matrix.mT).mT.contiguous()
    identity = torch.eye(matrix.shape[1], dtype=wide.dtype, device=wide.device)
    for _ in range(8):  # the distance is squared each time: from 1/2 to rounding in six steps
        excess = wide.mT @ wide - identity
        distance = float(excess.norm())
        if distance <= torch.finfo(wide.dtype).eps * len(wide):
            return wide.to(matrix.dtype)
        if not distance <= 0.5:  # not a number where products overflow
            break
        wide = wide - wide @ excess / 2
    left, _, right = _svd(wide)
    return (left @ right).to(matrix.dtype)


@torch.no_grad()
def clip_singular_values(matrix: Tensor, low: float, high: float) -> Tensor:
    r"""Return the nearest matrix with singular values in an interval.

    .. math:: U \,\mathrm{diag}(\sigma)\, V^\top \;\mapsto\; U \,\mathrm{diag}(\mathrm{clip}(\sigma, a, b))\, V^\top

    No matrix is closer than by the distance of its singular values (Mirsky), and this one is that close. For
    :math:`a = 0` the set is convex, hence the projection non-expansive. Rounding the entries moves a singular value by
    up to :math:`u \lVert W \rVert_F`, which would leave the set: the interval is narrowed by that much, so that
    what is returned lies inside, and a member comes back as it is. Computed in float64, one SVD; for :math:`a = 0` only
    where :func:`~steadyrnn.linalg.norm_proof.proves_norm` does not prove, at a small part of the cost, that the matrix is
    a member.

    Args:
        matrix: :math:`W`, shape ``(M, N)``.
        low: :math:`a \ge 0`.
        high: :math:`b \ge a`.

    Returns:
        The projection, shape ``(M, N)``.

    Example:
        >>> clip_singular_values(torch.tensor([[3.0, 0.0], [0.0, 0.5]]), 0.0, 1.0).round(decimals=5)
        tensor([[1.0000, 0.0000],
                [0.0000, 0.5000]])

    References:
        Miller, Hardt. Stable Recurrent Models. ICLR 2019. https://arxiv.org/abs/1805.10369
    """
    if not 0 <= low <= high:
        raise ArgumentError(f"`low` and `high` must satisfy 0 <= low <= high, but are {low} and {high}.")
    wide = _check("matrix", matrix)
    if matrix.numel() == 0 or matrix.is_meta:
        return matrix.clone()
    if low == 0 and proves_norm(wide, high):
        return matrix.clone()
    left, sigma, right = _svd(wide)
    if low <= float(sigma[-1]) and float(sigma[0]) <= high:
        return matrix.clone()
    margin = _margin(matrix) * float(sigma.clamp(low, high).norm())
    middle = (low + high) / 2
    inner_low = min(low + margin, middle) if low > 0 else 0.0
    return ((left * sigma.clamp(inner_low, max(high - margin, middle))) @ right).to(matrix.dtype)


@torch.no_grad()
def project_rows_l1(rows: Tensor, radius: float | Tensor) -> Tensor:
    r"""Return the nearest matrix whose rows have a bounded 1-norm.

    .. math:: w \;\mapsto\; \mathrm{sign}(w) \circ \max(|w| - \mu, 0), \qquad \lVert w \rVert_1 = r

    The level :math:`\mu` is the largest of :math:`(\sum_{i \le k} |w|_{(i)} - r) / k` over :math:`k`, with the entries
    sorted from the largest down: subtracting more than that would leave slack, less would not reach the ball. A row
    inside comes back as it is. Computed in float64, inside by the rounding of the result; costs one sort per row.

    Args:
        rows: Shape ``(M, N)``.
        radius: :math:`r \ge 0`, a number or one for each row, shape ``(M,)``.

    Returns:
        The projected rows, shape ``(M, N)``.

    Example:
        >>> project_rows_l1(torch.tensor([[3.0, 2.0, 0.5], [0.1, 0.2, 0.3]]), 2.0).round(decimals=5)
        tensor([[1.5000, 0.5000, 0.0000],
                [0.1000, 0.2000, 0.3000]])

    References:
        Duchi, Shalev-Shwartz, Singer, Chandra. Efficient projections onto the l1-ball for learning in high dimensions.
        ICML 2008. https://doi.org/10.1145/1390156.1390191
    """
    wide = _check("rows", rows)
    if rows.numel() == 0:
        return rows.clone()
    bound = torch.as_tensor(radius, dtype=wide.dtype, device=wide.device).reshape(-1, 1)
    if len(bound) not in (1, len(rows)):
        raise ShapeError(f"`radius` must be a number or one for each of the {len(rows)} rows, but has {len(bound)} entries.")
    if not bool((bound >= 0).all()):
        raise ArgumentError("`radius` must not be negative nor NaN: no row has a negative norm.")
    size = wide.abs()
    steps = torch.arange(1, rows.shape[1] + 1, dtype=wide.dtype, device=wide.device)
    sums = size.sort(dim=1, descending=True).values.cumsum(dim=1)
    level = ((sums - bound * (1 - _margin(rows))) / steps).amax(dim=1, keepdim=True)
    shrunk = _shrink(wide, level).to(rows.dtype)
    return torch.where(size.sum(dim=1, keepdim=True) <= bound, rows, shrunk)


def _check(name: str, matrix: Tensor) -> Tensor:
    return check_finite(name, check_matrix(name, matrix)).double()


def _svd(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    left, sigma, right = torch.linalg.svd(matrix, full_matrices=False)
    return left, sigma, right


def _margin(matrix: Tensor) -> float:
    """Return what a result must be inside by, relative: its rounding to the dtype, and that of its computation."""
    return torch.finfo(matrix.dtype).eps + 4 * max(matrix.shape) * torch.finfo(torch.float64).eps


def _shrink(x: Tensor, level: Tensor) -> Tensor:
    return x.sign() * (x.abs() - level).clamp(min=0)
