"""The free entries of a skew matrix as one vector, and back; first ones as angles of plane rotations."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from steadyrnn.linalg.packing import pack, trapezoid_index, unpack

__all__ = ["pack_skew", "plane_entries", "skew_index", "unpack_skew"]


def skew_index(size: int) -> Tensor:
    """List where the entries below the diagonal of an ``(N, N)`` matrix lie once its first row and last column are cut.

    There are :math:`N(N-1)/2`; see :func:`steadyrnn.linalg.packing.trapezoid_index`.

    Example:
        >>> skew_index(3)
        tensor([0, 2, 3])
    """
    return trapezoid_index(size - 1, size - 1)


def unpack_skew(packed: Tensor, index: Tensor, size: int) -> Tensor:
    r"""Return the skew matrix :math:`A = L - L^\top` with the packed entries below its diagonal, shape ``(N, N)``.

    Example:
        >>> unpack_skew(torch.tensor([5.0]), skew_index(2), 2)
        tensor([[ 0., -5.],
                [ 5.,  0.]])
    """
    below = pad(unpack(packed, index, size - 1, size - 1), (0, 1, 1, 0))
    return below - below.mT


def pack_skew(skew: Tensor, index: Tensor) -> Tensor:
    """Return the entries below the diagonal of a skew matrix, shape ``(N(N-1)/2,)``.

    Example:
        >>> pack_skew(torch.tensor([[0.0, -5.0], [5.0, 0.0]]), skew_index(2))
        tensor([5.])
    """
    return pack(skew[1:, :-1].contiguous(), index)


def plane_entries(entries: Tensor, index: Tensor, size: int) -> Tensor:
    """Return the packed skew matrix that couples coordinates 0 and 1 by the first entry, 2 and 3 by the second, ...

    Its exponential turns each pair of coordinates by the entry as an angle.

    Args:
        entries: Shape ``(N // 2,)``.
        index: From :func:`skew_index`.
        size: :math:`N`.

    Example:
        >>> plane_entries(torch.tensor([0.5]), skew_index(3), 3)
        tensor([0.5000, 0.0000, 0.0000])
    """
    below = entries.new_zeros(size, size)
    pairs = torch.arange(0, size - 1, 2)
    below[pairs + 1, pairs] = entries
    return pack_skew(below, index)
