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

    .. math:: 2 \lVert R \rVert + 16 \max(M, N) \, \epsilon_c \lVert W \rVert

    *Storing.* A member that is rounded moves by E with :math:`|E_{ij}| \le R_{ij}`, see :func:`entry_rounding`. So
    :math:`\lVert E \rVert \le \lVert R \rVert`, which is at most :math:`\lVert R \rVert_F` and
    :math:`\sqrt{\lVert R \rVert_1 \lVert R \rVert_\infty}`; the smaller one is taken. It counts twice: once for the
    matrix, once for raw tensors that are stored in the same dtype, such as clipped singular values.
    *Computing.* Products of reflections, exponentials and decompositions are computed in float32 or wider, with round-off
    :math:`\epsilon_c`, and are backward stable: their error is relative to the norm. Both terms scale with the matrix,
    so a small set gets a small tolerance.

    Args:
        matrix: :math:`W`, shape ``(M, N)``.
        dtype: A dtype that the matrix was rounded to before, or will be rounded to. The coarser of it and of
            the dtype of ``matrix`` counts.

    Returns:
        The tolerance; 0 for a matrix that is empty or not finite, which rounding does not excuse.

    Example:
        >>> membership_tolerance(torch.eye(4, dtype=torch.float64)) < 66 * 2**-52
        True
        >>> membership_tolerance(torch.zeros(4, 4)) < 1e-40
        True

    References:
        Higham. Accuracy and Stability of Numerical Algorithms, chapters 2, 6 and 19. SIAM 2002.
    """
    wide = matrix.detach().double()
    if not wide.numel() or not bool(wide.isfinite().all()):
        return 0.0
    dtypes = (matrix.dtype, matrix.dtype if dtype is None else dtype)
    stored = max(2 * _largest_norm(entry_rounding(wide, kind)) for kind in dtypes)
    computed = max(min(torch.finfo(kind).eps, torch.finfo(torch.float32).eps) for kind in dtypes)
    return stored + 16 * max(matrix.shape) * computed * float(torch.linalg.matrix_norm(wide, 2))


def _largest_norm(moved: Tensor) -> float:
    """Return a bound on the spectral norm of every matrix with entries of at most these sizes, (M, N)."""
    rows, columns = float(moved.sum(dim=1).max()), float(moved.sum(dim=0).max())
    return min(float(moved.norm()), math.sqrt(rows * columns))
