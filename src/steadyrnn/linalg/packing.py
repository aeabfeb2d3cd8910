"""The free entries of a lower trapezoid as one vector, and back."""

import torch
from torch import Tensor

from steadyrnn.errors import ArgumentError, ShapeError

__all__ = ["pack", "packed_size", "trapezoid_index", "unpack"]


def _check_trapezoid(rows: int, count: int) -> None:
    if not 0 <= count <= rows:
        raise ArgumentError(
            f"`count` must be a number of columns from 0 to `rows` = {rows}, but is {count}: "
            "a reflection acts on at least one coordinate."
        )


def packed_size(rows: int, count: int) -> int:
    r"""Count the free entries of a lower trapezoid.

    .. math:: \sum_{j=0}^{K-1} (N - j) = NK - \frac{K(K-1)}{2}

    Column :math:`j` is a reflector that acts on the last :math:`N - j` coordinates, so its first :math:`j` entries
    are zero and no parameter.

    Args:
        rows: :math:`N`, the length of a column.
        count: :math:`K \le N`, the number of columns.

    Returns:
        The number of free entries.

    Example:
        >>> packed_size(4, 3)
        9

    References:
        Zhang, Lei, Dhillon. Stabilizing Gradients for Deep Neural Networks via
        Efficient SVD Parameterization. ICML 2018. https://arxiv.org/abs/1803.09327
    """
    _check_trapezoid(rows, count)
    return rows * count - count * (count - 1) // 2


def trapezoid_index(rows: int, count: int) -> Tensor:
    r"""List where the free entries of a lower trapezoid lie.

    Entry :math:`(i, j)` is free if :math:`i \ge j`; its place in the row-major matrix is :math:`iK + j`. The places
    are in ascending order, so that reading them is one pass over the matrix. Costs :math:`O(NK)`; compute it once.

    Args:
        rows: :math:`N`, the length of a column.
        count: :math:`K \le N`, the number of columns.

    Returns:
        The places, int64, shape ``(packed_size(rows, count),)``.

    Example:
        >>> trapezoid_index(3, 2)
        tensor([0, 2, 3, 4, 5])
    """
    _check_trapezoid(rows, count)
    place = torch.tril_indices(rows, count)  # (2, size)
    return place[0] * count + place[1]


def unpack(packed: Tensor, index: Tensor, rows: int, count: int) -> Tensor:
    r"""Spread packed entries over the trapezoid they came from, with zeros elsewhere.

    The map is linear and its adjoint is :func:`pack`, so a gradient through it is a gradient of the free entries.
    Costs :math:`O(NK)`.

    Args:
        packed: The free entries, shape ``(packed_size(rows, count),)``.
        index: Their places, from :func:`trapezoid_index`, same shape.
        rows: :math:`N`.
        count: :math:`K`.

    Returns:
        The columns, shape ``(N, K)``.

    Example:
        >>> unpack(torch.tensor([1.0, 2.0, 3.0]), trapezoid_index(2, 2), 2, 2)
        tensor([[1., 0.],
                [2., 3.]])
    """
    if packed.shape != index.shape:
        raise ShapeError(
            f"`packed` must have shape {tuple(index.shape)} for a trapezoid of {rows} rows and {count} columns, "
            f"but has shape {tuple(packed.shape)}."
        )
    return packed.new_zeros(rows * count).scatter(0, index, packed).reshape(rows, count)


def pack(columns: Tensor, index: Tensor) -> Tensor:
    r"""Read the free entries of a trapezoid; what lies above them is left out.

    ``pack(unpack(p, index, N, K), index)`` is ``p``. Costs :math:`O(NK)`.

    Args:
        columns: A matrix, shape ``(N, K)``.
        index: The places of the free entries, from :func:`trapezoid_index` with the same :math:`N, K`.

    Returns:
        The free entries, in the shape of ``index``.

    Example:
        >>> pack(torch.tensor([[1.0, 9.0], [2.0, 3.0]]), trapezoid_index(2, 2))
        tensor([1., 2., 3.])
    """
    if columns.dim() != 2 or packed_size(*columns.shape) != index.numel():
        raise ShapeError(
            f"`columns` must be a matrix whose trapezoid has {index.numel()} free entries, "
            f"but has shape {tuple(columns.shape)}."
        )
    return columns.reshape(-1).index_select(0, index)
