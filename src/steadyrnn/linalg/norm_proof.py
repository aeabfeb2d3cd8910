"""A proof that the spectral norm of a matrix is below a bound, without an SVD."""

import math

import torch
from torch import Tensor

from steadyrnn.checks import check_finite, check_matrix
from steadyrnn.errors import ArgumentError

__all__ = ["proves_norm"]

_ROUND_OFF = 2.0**-53
_SMALLEST, _LARGEST = 2.0**-400, 2.0**400  # bounds whose square, and its rounding, are normal numbers
_SMALLEST_NARROW = 2.0**-100  # of other dtypes, whose subnormal numbers a processor may be told to read as 0
_UNDERFLOW = 2.0**-900  # more than all underflows together, where the bound is about 1


@torch.no_grad()
def proves_norm(matrix: Tensor, bound: float) -> bool:
    r"""Try to prove that the spectral norm of a matrix is at most a bound.

    .. math:: \lVert W \rVert \le b \iff b^2 I - W^\top W \succeq 0

    and a Cholesky decomposition exists only where that is so. It is computed in float64 of
    :math:`(b^2 - s) I - W^\top W`. If it runs to its end, the matrix differs from a positive semidefinite one by at most
    :math:`\gamma_{r+1} / (1 - \gamma_{r+1})` times its trace (Higham, Theorem 10.3; Rump), and the computed product from
    the exact one by at most :math:`\gamma_k \lVert W \rVert_F^2`. The slack :math:`s` is more than both,

    .. math:: s = 4 u (k + r + 8) (r b^2 + \lVert W \rVert_F^2), \qquad k = \max(M, N), \quad r = \min(M, N)

    so ``True`` is a proof for the matrix as stored. ``False`` says nothing: the norm is larger, or so close to the bound
    that the slack does not fit between. Norms that the Frobenius norm decides cost :math:`MN`, others one product and a
    Cholesky decomposition, :math:`2 M N r + r^3 / 3` operations: a small part of an SVD.

    Args:
        matrix: :math:`W`, shape ``(M, N)``, of any floating dtype, finite.
        bound: :math:`b \ge 0`; may be infinite.

    Returns:
        Whether the proof succeeded.

    Example:
        >>> proves_norm(torch.tensor([[0.6, 0.6], [-0.6, 0.6]]), 0.85), proves_norm(torch.eye(2), 0.999)
        (True, False)

    References:
        Higham. Accuracy and Stability of Numerical Algorithms, sections 3.5 and 10.1. SIAM 2002.
        Rump. Verification of positive definiteness. BIT 2006. https://doi.org/10.1007/s10543-006-0056-1
    """
    if not bound >= 0:
        raise ArgumentError(f"`bound` must be a number from 0 on, but is {bound}.")
    wide = check_finite("matrix", check_matrix("matrix", matrix)).double()
    if wide.numel() == 0 or bound == math.inf:
        return True
    smallest = _SMALLEST if matrix.dtype == torch.float64 else _SMALLEST_NARROW
    if not smallest <= bound <= _LARGEST:
        return False
    exponent = math.frexp(bound)[1]
    scaled, bound = wide * 2.0**-exponent, math.ldexp(bound, -exponent)  # exact, except for what underflows
    tall = scaled if scaled.shape[0] >= scaled.shape[1] else scaled.mT
    terms, rank = tall.shape
    frobenius = float(tall.square().sum()) * (1 + 4 * tall.numel() * _ROUND_OFF) + _UNDERFLOW
    if not frobenius <= 2 * rank * bound**2:  # then the norm is above the bound, as the mean of the squares is
        return False
    slack = 4 * _ROUND_OFF * (terms + rank + 8) * (rank * bound**2 + frobenius) + _UNDERFLOW
    if frobenius + slack <= bound**2:
        return True
    gap = -(tall.mT @ tall)
    gap.diagonal().add_(bound**2 - slack)
    if bool((gap.diagonal() <= 0).any()):  # a column is longer than the bound
        return False
    return not bool(torch.linalg.cholesky_ex(gap).info)
