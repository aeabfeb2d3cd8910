"""How far outside its set rounding alone may leave a weight: relative to the weight, never an absolute number."""

import math

import torch
from torch import Tensor

__all__ = ["entry_rounding", "membership_tolerance"]


def entry_rounding(tensor: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    r"""Return how far rounding to a dtype may have moved each entry, in float64.

    .. math:: |w - \operatorname{fl}(w)| \le \max\bigl(\tfrac{\epsilon}{2} |\operatorname{fl}(w)|, \tfrac{\mu}{2}\bigr)

    :math:`\epsilon` is the spacing of the numbers at 1, and :math:`\mu` the least positive one, which is the spacing near 0.

    Args:
        tensor: The rounded entries.
        dtype: What they were rounded to; None is the dtype of ``tensor``.

    Example:
        >>> entry_rounding(torch.tensor([2.0, 0.0]), torch.float16)
        tensor([9.7656e-04, 2.9802e-08], dtype=torch.float64)
    """
    info = torch.finfo(tensor.dtype if dtype is None else dtype)
    return (tensor.detach().double().abs() * (info.eps / 2)).clamp(min=info.smallest_normal * info.eps / 2)


def membership_tolerance(matrix: Tensor, dtype: torch.dtype | None = None) -> float:
    r"""Return how far outside its set, in spectral norm, rounding alone may leave a matrix.

    .. math:: \min\bigl(2\omega,\ 2(r + c) + 2\epsilon \lVert W \rVert\bigr) + 16 \max(M, N) \, \epsilon_c \lVert W \rVert

    *Storing.* A member that is rounded moves by E with :math:`|E_{ij}| \le R_{ij}`, see :func:`entry_rounding`. To that
    comes the rounding of raw tensors in the same dtype, such as clipped singular values. Two bounds hold for the sum,
    and the smaller one is taken. The first one is proven: :math:`\lVert E \rVert \le \omega`, the smaller one of
    :math:`\lVert R \rVert_F` and :math:`\sqrt{\lVert R \rVert_1 \lVert R \rVert_\infty}`, once for the matrix and once
    for raw tensors.

    The second one does not grow with the size. It is a bound in probability. Errors of different entries are almost
    independent, and the norm of such a matrix is about :math:`r' + c'`, the largest root mean square of a row and of a
    column. Here r and c are the largest 2-norms of a row and a column of R, at least :math:`\sqrt 3 r'` and
    :math:`\sqrt 3 c'`. They count twice. Entries that are equal are rounded equally, which adds a multiple of W:
    :math:`\tfrac32 \epsilon \lVert W \rVert` for these and for large single errors, and
    :math:`\tfrac12 \epsilon \lVert W \rVert` for raw tensors. As all three norms are at least
    :math:`\lVert R \rVert_F / \sqrt{\max(M, N)}`, this bound is proven up to 49 rows and columns. Above, a random member
    moves by about an eighth of it. Errors that are arranged on purpose exceed it, and so may those of a matrix with few
    distinct entries: the Kronecker power of one plane rotation does so for about one angle in 100 at 512 rows, and one
    in 6 at 2048. Such a member may be refused, and ``project=True`` takes it. Nothing false is claimed of any weight, as
    certificates read the stored weight and never this tolerance. Entries below the least normal number are not rounded
    in relation to their size, so they count with their :math:`2\omega` in both.

    *Computing.* Products of reflections, exponentials and decompositions are computed in float32 or wider, with round-off
    :math:`\epsilon_c`, and are backward stable: their error is relative to the norm.

    Both terms scale with the matrix, so a small set gets a small tolerance. As r and c are at most
    :math:`\tfrac{\epsilon}{2} \lVert W \rVert`, the first one is at most :math:`4 \epsilon \lVert W \rVert`: 3 % of the
    norm in bfloat16, whatever the size.

    Args:
        matrix: :math:`W`, shape ``(M, N)``.
        dtype: A dtype that the matrix was rounded to before, or will be rounded to. The coarser of it and of
            the dtype of ``matrix`` counts.

    Returns:
        The tolerance; 0 for a matrix that is empty or not finite, and where float64 cannot hold the tolerance: rounding
        excuses none of these.

    Example:
        >>> membership_tolerance(torch.eye(4, dtype=torch.float64)) < 66 * 2**-52
        True
        >>> membership_tolerance(torch.zeros(4, 4)) < 1e-40
        True

    References:
        Higham. Accuracy and Stability of Numerical Algorithms, chapters 2, 6 and 19. SIAM 2002.
        Bandeira, van Handel. Sharp nonasymptotic bounds on the norm of random matrices with independent entries.
        Annals of Probability 2016. https://arxiv.org/abs/1408.6185
    """
    wide = matrix.detach().double()
    if not wide.numel() or not bool(wide.isfinite().all()):
        return 0.0
    dtypes = (matrix.dtype, matrix.dtype if dtype is None else dtype)
    norm = _spectral_norm(wide)
    stored = max(_storing(wide, kind, norm) for kind in dtypes)
    computed = max(min(torch.finfo(kind).eps, torch.finfo(torch.float32).eps) for kind in dtypes)
    allowed = stored + 16 * max(matrix.shape) * computed * norm
    return allowed if math.isfinite(allowed) else 0.0


def _spectral_norm(wide: Tensor) -> float:
    """Return the spectral norm, from entries of at most 1: squares of large or tiny ones leave the range of float64."""
    scale = float(wide.abs().max())
    return scale * float(torch.linalg.matrix_norm(wide / scale, 2)) if scale else 0.0


def _storing(wide: Tensor, dtype: torch.dtype, norm: float) -> float:
    """Return how far storing in a dtype may move a matrix of that norm, (M, N), and its raw tensors."""
    moved = entry_rounding(wide, dtype)
    scale = float(moved.max())
    if not scale:
        return 0.0
    moved = moved / scale  # squares of large or tiny ones leave the range of float64
    normal = moved.masked_fill(wide.abs() < torch.finfo(dtype).smallest_normal, 0.0)
    independent = float(normal.norm(dim=1).max()) + float(normal.norm(dim=0).max()) + _largest_norm(moved - normal)
    return min(2 * scale * _largest_norm(moved), 2 * scale * independent + 2 * torch.finfo(dtype).eps * norm)


def _largest_norm(moved: Tensor) -> float:
    """Return a bound on the spectral norm of every matrix with entries of at most these sizes, (M, N)."""
    rows, columns = float(moved.sum(dim=1).max()), float(moved.sum(dim=0).max())
    return min(float(moved.norm()), math.sqrt(rows * columns))
