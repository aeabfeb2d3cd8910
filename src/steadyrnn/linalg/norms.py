"""A bound on the spectral norm that is never below it."""

import math

import torch
from torch import Tensor

from steadyrnn.checks import check_finite, check_matrix
from steadyrnn.errors import ArgumentError

__all__ = ["spectral_norm_bound"]

_ROUND_OFF = 2.0**-53
_TINY = 2.0**-960  # more than all underflows together, and nothing beside an entry of 1


@torch.no_grad()
def spectral_norm_bound(matrix: Tensor, squarings: int = 6) -> float:
    r"""Return a proven upper bound on the spectral norm, without an SVD.

    .. math:: \lVert W \rVert \le \bigl\lVert (W^\top W)^{2^p} \bigr\rVert_F^{1/2^{p+1}}

    since the spectral norm of the power is the :math:`2^{p+1}`-th power of that of :math:`W`, and the Frobenius norm
    is at least the spectral one. It is at most :math:`\sqrt{r}` times it, :math:`r = \min(M, N)`, so the bound exceeds
    the norm by a factor of at most :math:`r^{1/2^{p+2}}`. The squarings are done in float64, each rescaled by a power
    of two. The error of a computed product :math:`AB` is at most
    :math:`\gamma_n \lVert A \rVert_F \lVert B \rVert_F` whatever the order of summation, and is added before each root
    is taken, so the result holds for the exact norm of the matrix as stored. Costs :math:`p + 1` matrix products.

    Args:
        matrix: :math:`W`, shape ``(M, N)``, of any floating dtype.
        squarings: :math:`p \ge 0`.

    Returns:
        The bound; 0.0 for a matrix of zeros or without entries.

    Example:
        >>> spectral_norm_bound(torch.diag(torch.tensor([3.0, 4.0]))) - 4.0 < 1e-10
        True

    References:
        Higham. Accuracy and Stability of Numerical Algorithms, section 3.5. SIAM 2002.
    """
    if isinstance(squarings, bool) or not isinstance(squarings, int) or squarings < 0:
        raise ArgumentError(f"`squarings` must be an integer from 0 on, but is {squarings}.")
    wide = check_finite("matrix", check_matrix("matrix", matrix)).double()
    largest = float(wide.abs().max()) if wide.numel() else 0.0
    if largest == 0:
        return 0.0
    exponent = math.frexp(largest)[1]
    wide = _scale(wide, -exponent)
    if wide.shape[0] < wide.shape[1]:
        wide = wide.mT
    try:
        return math.ldexp(_above(math.sqrt(_norm_of_square(wide, squarings))), exponent)
    except OverflowError:
        return math.inf


def _norm_of_square(wide: Tensor, squarings: int) -> float:
    """Return a bound on the norm of ``W^T W`` for a matrix with entries up to 1."""
    terms = len(wide) + 2  # the sums of a product, and the mean with the transpose
    error = _above(terms * _ROUND_OFF * _frobenius(wide) ** 2 + _TINY)
    square = wide.mT @ wide
    square = (square + square.mT) / 2
    return _above(_norm_of_symmetric(square, squarings) + error)


def _norm_of_symmetric(matrix: Tensor, squarings: int) -> float:
    if squarings == 0:
        return _frobenius(matrix)
    exponent = math.frexp(float(matrix.abs().max()))[1]
    norm = math.sqrt(_norm_of_square(_scale(matrix, -exponent), squarings - 1))
    return _above(math.ldexp(norm, exponent))


def _scale(matrix: Tensor, exponent: int) -> Tensor:
    """Multiply by a power of two, in two steps that are each within the range of float64."""
    half = exponent // 2
    return matrix * math.ldexp(1.0, half) * math.ldexp(1.0, exponent - half)


def _frobenius(matrix: Tensor) -> float:
    """Return a bound on the Frobenius norm of a matrix with entries of moderate size."""
    return _above(float(matrix.norm()) * (1 + matrix.numel() * _ROUND_OFF))


def _above(value: float) -> float:
    """Return a number above what a few roundings have made ``value`` of."""
    return value * (1 + 16 * _ROUND_OFF)
