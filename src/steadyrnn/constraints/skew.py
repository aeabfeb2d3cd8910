"""The free entries of a skew matrix as one vector, and back; first ones as angles of plane rotations."""

from torch import Tensor
from torch.nn.functional import pad

from steadyrnn.linalg.packing import pack, packed_size, unpack

__all__ = ["pack_skew", "plane_entries", "skew_size", "unpack_skew"]


def skew_size(size: int) -> int:
    """Count the entries below the diagonal of an ``(N, N)`` matrix, :math:`N(N-1)/2`.

    Example:
        >>> skew_size(3)
        3
    """
    return packed_size(size - 1, size - 1)


def unpack_skew(packed: Tensor, size: int) -> Tensor:
    r"""Return the skew matrix :math:`A = L - L^\top` with the packed entries below its diagonal, shape ``(N, N)``.

    Example:
        >>> unpack_skew(torch.tensor([5.0]), 2)
        tensor([[ 0., -5.],
                [ 5.,  0.]])
    """
    below = pad(unpack(packed, size - 1, size - 1), (0, 1, 1, 0))  # without its first row and last column it is packed
    return below - below.mT


def pack_skew(skew: Tensor) -> Tensor:
    """Return the entries below the diagonal of a skew matrix, shape ``(N(N-1)/2,)``.

    Example:
        >>> pack_skew(torch.tensor([[0.0, -5.0], [5.0, 0.0]]))
        tensor([5.])
    """
    return pack(skew[1:, :-1].contiguous())


def plane_entries(entries: Tensor, size: int) -> Tensor:
    """Return the packed skew matrix that couples coordinates 0 and 1 by the first entry, 2 and 3 by the second, ...

    Its exponential turns each pair of coordinates by the entry as an angle.

    Args:
        entries: Shape ``(N // 2,)``.
        size: :math:`N`.

    Example:
        >>> plane_entries(torch.tensor([0.5]), 3)
        tensor([0.5000, 0.0000, 0.0000])
    """
    below = entries.new_zeros(size, size)
    below.diagonal(-1)[::2].copy_(entries)
    return pack_skew(below)
