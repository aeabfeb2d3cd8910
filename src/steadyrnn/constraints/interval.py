"""Singular values in an interval: the map onto it, its inverse, and the distance of a matrix from it."""

import math

import torch
from torch import Tensor

__all__ = ["distance_from_interval", "from_interval", "into_interval"]


def into_interval(free: Tensor, center: float, radius: float) -> Tensor:
    r"""Map free numbers into an interval.

    .. math:: \sigma_i = c + 2r (\operatorname{sigmoid}(\hat\sigma_i) - \tfrac12)

    A free 0 is the center, and the slope is at most :math:`r / 2`: singular values learn slowly where the interval is
    short.

    Example:
        >>> into_interval(torch.tensor([-100.0, 0.0, 100.0]), 1.0, 0.5)
        tensor([0.5000, 1.0000, 1.5000])
    """
    return center + 2 * radius * (free.sigmoid() - 0.5)


def from_interval(sigma: Tensor, center: float, radius: float) -> Tensor:
    """Return free numbers that :func:`into_interval` maps to ``sigma``, or to the nearest value it reaches.

    A value on the border, or outside by rounding, has no finite logit: it takes that of the nearest number inside.

    Example:
        >>> from_interval(torch.tensor([1.0]), 1.0, 0.5)
        tensor([0.])
    """
    if not radius:
        return torch.zeros_like(sigma)
    eps = torch.finfo(sigma.dtype).eps
    return ((sigma - (center - radius)) / (2 * radius)).clamp(eps, 1 - eps).logit()


def distance_from_interval(matrix: Tensor, low: float, high: float) -> Tensor:
    r"""Return how far the farthest singular value (float64 SVD) is outside ``[low, high]``.

    .. math:: \max_i \max(\sigma_i - \text{high}, \text{low} - \sigma_i, 0)

    This is the distance, in spectral norm, to the matrices whose singular values are all inside; infinite where an
    entry is not finite. With ``low = high = 1`` it is the distance to the orthogonal matrices.

    Example:
        >>> distance_from_interval(torch.diag(torch.tensor([2.0, 1.0])), 1.0, 1.0)
        tensor(1., dtype=torch.float64)
    """
    wide = matrix.detach().double()
    if matrix.numel() == 0:
        return wide.new_zeros(())
    if not bool(wide.isfinite().all()):
        return wide.new_full((), math.inf)
    sigma = torch.linalg.svdvals(wide)
    return torch.maximum(sigma.max() - high, low - sigma.min()).clamp(min=0)
