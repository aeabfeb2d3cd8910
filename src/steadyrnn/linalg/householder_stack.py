"""Products of Householder reflections of many networks at once."""

from math import inf

import torch
from torch import Tensor

from steadyrnn.errors import DtypeError, ShapeError

from .householder import block_size
from .packing import packed_size, trapezoid_index

__all__ = ["householder_products", "unpack_stack"]


def unpack_stack(packed: Tensor, rows: int, count: int) -> Tensor:
    """Spread the packed entries of R trapezoids, as :func:`~steadyrnn.linalg.packing.unpack` does for one.

    Args:
        packed: The free entries, shape ``(R, packed_size(rows, count))``.
        rows: N.
        count: K.

    Returns:
        The columns, shape ``(R, N, K)``.

    Example:
        >>> unpack_stack(torch.tensor([[1.0, 2.0, 3.0]]), 2, 2)
        tensor([[[1., 0.],
                 [2., 3.]]])
    """
    size = packed_size(rows, count)
    if packed.dim() != 2 or packed.shape[1] != size:
        raise ShapeError(
            f"`packed` must have shape (R, {size}) for trapezoids of {rows} rows and {count} columns, but has shape "
            f"{tuple(packed.shape)}."
        )
    index = trapezoid_index(rows, count, packed.device).expand(len(packed), -1)
    return packed.new_zeros(len(packed), rows * count).scatter(1, index, packed).view(len(packed), rows, count)


def householder_products(columns: Tensor) -> Tensor:
    r"""Multiply out R products of Householder reflections.

    .. math:: Q_r = H(u_{r1}) H(u_{r2}) \cdots H(u_{rK})

    Each is the :func:`~steadyrnn.linalg.householder.householder_product` of its own columns, up to rounding, by the same
    compact form on the same blocks, in batched products. So the number of tensor operations does not grow with R: for small
    matrices, whose operations take longer to start than to run, all cost about as much as one. NaN stays in its own product.

    Args:
        columns: The :math:`u_{rk}`, shape ``(R, N, K)``, float32 or float64; a zero column is the identity.

    Returns:
        The matrices, shape ``(R, N, N)``.

    Example:
        >>> householder_products(torch.tensor([[[3.0], [0.0]], [[0.0], [0.5]]]))
        tensor([[[-1.,  0.],
                 [ 0.,  1.]],
        <BLANKLINE>
                [[ 1.,  0.],
                 [ 0., -1.]]])
    """
    if columns.dim() != 3:
        raise ShapeError(f"`columns` must have shape (R, N, K), but has shape {tuple(columns.shape)}.")
    if columns.dtype not in (torch.float32, torch.float64):
        raise DtypeError(
            f"`columns` must be float32 or float64, but is {columns.dtype}. Compute in float32 and cast the result."
        )
    _, rows, count = columns.shape
    out = torch.eye(rows, dtype=columns.dtype, device=columns.device).expand(len(columns), rows, rows)
    for block in columns.split(block_size(count, columns.dtype), dim=2) if columns.numel() else ():
        y, lead = _compact_form(block)
        out = torch.baddbmm(out, out.bmm(y.mT), lead, alpha=-1)
    return out


def _compact_form(columns: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``Y^T`` and ``S^{-1} Y^T`` of one block, both (R, K, N), with ``Q = I - Y S^{-1} Y^T``."""
    u = columns.mT
    scale = u.detach().abs().amax(dim=2, keepdim=True)
    live = scale != 0  # not `> 0`: NaN must stay visible
    y = u / torch.where(live, scale, inf)
    wide = y.double()  # the triangle of float32 reflectors needs the digits
    gram = wide.bmm(wide.mT)
    half = torch.where(live.squeeze(2), gram.diagonal(dim1=1, dim2=2) / 2, 0.5)
    triangle = torch.diagonal_scatter(gram.triu(), half, dim1=1, dim2=2)
    return y, torch.linalg.solve_triangular(triangle, wide, upper=True).to(y.dtype)
