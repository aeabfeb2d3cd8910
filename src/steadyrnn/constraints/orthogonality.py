"""How far singular values are from an interval, or from 1; and the short way back to an orthogonal matrix."""

import torch
from torch import Tensor

from steadyrnn.linalg.projections import polar_factor

from .base import distance_from_interval

__all__ = ["distance_to_orthogonal", "nearest_rotation", "nearest_signs", "orthonormal"]


def distance_to_orthogonal(matrix: Tensor) -> Tensor:
    r"""Return :math:`\max_i |\sigma_i - 1|`, the distance to the orthogonal matrices in spectral norm.

    Example:
        >>> distance_to_orthogonal(2 * torch.eye(3))
        tensor(1., dtype=torch.float64)
    """
    return distance_from_interval(matrix, 1.0, 1.0)


def orthonormal(matrix: Tensor) -> Tensor:
    r"""Remove the rounding errors of an almost orthogonal matrix, shape ``(N, N)``.

    .. math:: Q \leftarrow \tfrac12 Q (3I - Q^\top Q), \qquad \text{twice}

    One Newton step for the polar factor takes an error :math:`e` in the singular values to :math:`\tfrac32 e^2`, so two
    take what bfloat16 rounding leaves to float32's, and what float32 leaves to float64's. Costs :math:`8N^3`.

    Example:
        >>> orthonormal(1.0001 * torch.eye(2))
        tensor([[1., 0.],
                [0., 1.]])
    """
    for _ in range(2):
        matrix = 1.5 * matrix - 0.5 * matrix @ (matrix.mT @ matrix)
    return matrix


def nearest_rotation(matrix: Tensor) -> Tensor:
    r"""Return the orthogonal matrix of determinant +1 that is nearest in Frobenius norm, shape ``(N, N)``.

    Of :math:`W = U \Sigma V^\top` it is :math:`U V^\top`, or, where that has determinant -1, the same with the sign of
    the smallest singular value's direction turned: the cheapest direction to turn.

    Example:
        >>> nearest_rotation(torch.diag(torch.tensor([3.0, -2.0])))
        tensor([[1., 0.],
                [0., 1.]])

    References:
        Higham. Matrix nearness problems and applications. 1989.
    """
    factor = polar_factor(matrix)
    if float(torch.linalg.slogdet(factor.double()).sign) > 0:
        return factor
    _, _, vh = torch.linalg.svd(matrix, full_matrices=False)
    last: Tensor = vh[-1]
    return factor - 2 * torch.outer(factor @ last, last)


def nearest_signs(values: Tensor) -> Tensor:
    """Return 1 or -1 for each entry, whichever is nearer; 1 for 0.

    Example:
        >>> nearest_signs(torch.tensor([0.9, -0.2, 0.0]))
        tensor([ 1., -1.,  1.])
    """
    return torch.where(values < 0, -1.0, 1.0).to(values.dtype)
