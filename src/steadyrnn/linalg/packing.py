"""The free entries of a lower trapezoid as one vector, and back."""

from functools import lru_cache

import torch
from torch import Tensor

from steadyrnn.errors import ArgumentError, ShapeError
from steadyrnn.gpu.torch_private import (
    DispatchModeKey,
    count_dispatch_modes,
    disable_dispatch_modes,
    get_dispatch_mode,
    peek_interpreter_stack,
)

__all__ = [
    "pack",
    "pack_difference",
    "pack_skew",
    "packed_size",
    "trapezoid_index",
    "unpack",
    "unpack_below",
    "unpack_skew",
]

_TRACING = (DispatchModeKey.FAKE, DispatchModeKey.PROXY, DispatchModeKey.FUNCTIONAL)


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


def trapezoid_index(rows: int, count: int, device: torch.device | str = "cpu") -> Tensor:
    r"""List where the free entries of a lower trapezoid lie.

    Entry :math:`(i, j)` is free if :math:`i \ge j`; its place in the row-major matrix is :math:`iK + j`. The places
    are in ascending order, so that reading them is one pass over the matrix. Costs :math:`O(NK)` the first time; the
    tensor is then shared by all who ask for the same sizes and device, so do not change it in place.

    Args:
        rows: :math:`N`, the length of a column.
        count: :math:`K \le N`, the number of columns.
        device: Where the index is wanted.

    Returns:
        The places, int64, shape ``(packed_size(rows, count),)``.

    Example:
        >>> trapezoid_index(3, 2)
        tensor([0, 2, 3, 4, 5])
    """
    device = device if isinstance(device, torch.device) else torch.device(device)
    return _index(rows, count, (count, 1, 0), device)


def _index(rows: int, count: int, steps: tuple[int, int, int], device: torch.device) -> Tensor:
    """Return the places of a trapezoid: ``steps`` from one row to the next, from one column to the next, and to the first."""
    return (_shared_index if _may_be_shared(device) else _places)(rows, count, steps, device)


def _places(rows: int, count: int, steps: tuple[int, int, int], device: torch.device) -> Tensor:
    _check_trapezoid(rows, count)
    place = torch.tril_indices(rows, count, device=device)  # (2, size)
    return place[0] * steps[0] + place[1] * steps[1] + steps[2]


@lru_cache(maxsize=64)
def _shared_index(rows: int, count: int, steps: tuple[int, int, int], device: torch.device) -> Tensor:
    # autograd would refuse to save a tensor made in inference mode, and a mode may make tensors of its own kind
    with torch.inference_mode(False), disable_dispatch_modes():
        # copied from the CPU: the copy is finished when it returns, on whatever stream it is read next
        return _places(rows, count, steps, torch.device("cpu")).to(device)


def _may_be_shared(device: torch.device) -> bool:
    """Say whether a tensor made now is an ordinary one, of use to later calls.

    It is not while a graph is traced or captured, with fake tensors, under a ``torch.func`` transform, which wraps what
    is made inside, and on the meta device, where tensors hold nothing.
    """
    if torch.compiler.is_compiling():
        return False
    if count_dispatch_modes() and any(get_dispatch_mode(key) is not None for key in _TRACING):
        return False
    if device.type == "meta" or peek_interpreter_stack() is not None:
        return False
    if device.type == "cuda":  # without a number it is another one after `torch.cuda.set_device`
        return device != torch.device("cuda") and not torch.cuda.is_current_stream_capturing()
    return True


def unpack(packed: Tensor, rows: int, count: int) -> Tensor:
    r"""Spread packed entries over the trapezoid they came from, with zeros elsewhere.

    The map is linear and its adjoint is :func:`pack`, so a gradient through it is a gradient of the free entries.
    Costs :math:`O(NK)`.

    Args:
        packed: The free entries, shape ``(packed_size(rows, count),)``.
        rows: :math:`N`.
        count: :math:`K`.

    Returns:
        The columns, shape ``(N, K)``.

    Example:
        >>> unpack(torch.tensor([1.0, 2.0, 3.0]), 2, 2)
        tensor([[1., 0.],
                [2., 3.]])
    """
    _check_packed(packed, rows, count)
    index = trapezoid_index(rows, count, packed.device)
    return packed.new_zeros(rows * count).scatter(0, index, packed).reshape(rows, count)


def unpack_below(packed: Tensor, size: int) -> Tensor:
    r"""Spread packed entries below the diagonal of a square matrix, with zeros elsewhere.

    Without its first row and last column the matrix is ``unpack(packed, size - 1, size - 1)``.

    Args:
        packed: The entries, row by row, shape ``(N(N-1)/2,)``.
        size: :math:`N`.

    Returns:
        The strictly lower triangular matrix, shape ``(N, N)``.

    Example:
        >>> unpack_below(torch.tensor([1.0, 2.0, 3.0]), 3)
        tensor([[0., 0., 0.],
                [1., 0., 0.],
                [2., 3., 0.]])
    """
    _check_packed(packed, size - 1, size - 1)
    index = _below(size, packed.device)
    return packed.new_zeros(size * size).scatter(0, index, packed).reshape(size, size)


def _below(size: int, device: torch.device) -> Tensor:
    """Return the places below the diagonal of a square matrix."""
    return _index(size - 1, size - 1, (size, 1, size), device)  # from the second row on


def unpack_skew(packed: Tensor, size: int) -> Tensor:
    r"""Return the skew matrix :math:`A = L - L^\top` with the packed entries below its diagonal, shape ``(N, N)``.

    Its adjoint is :func:`pack_difference`.

    Example:
        >>> unpack_skew(torch.tensor([5.0]), 2)
        tensor([[ 0., -5.],
                [ 5.,  0.]])
    """
    below = unpack_below(packed, size)
    return below - below.mT.contiguous()  # copied first, a transpose is read in blocks


def pack_skew(skew: Tensor) -> Tensor:
    """Return the entries below the diagonal of a skew matrix, shape ``(N(N-1)/2,)``.

    Example:
        >>> pack_skew(torch.tensor([[0.0, -5.0], [5.0, 0.0]]))
        tensor([5.])
    """
    return pack(skew[1:, :-1].contiguous())


def pack_difference(matrix: Tensor) -> Tensor:
    r"""Return the entries below the diagonal of :math:`A - A^\top`, shape ``(N(N-1)/2,)``.

    A gradient :math:`A` of a skew matrix gives that of its packed entries, each of which stands in two places.

    Example:
        >>> pack_difference(torch.tensor([[1.0, 2.0], [5.0, 1.0]]))
        tensor([3.])
    """
    size, entries = len(matrix), matrix.reshape(-1)
    above = _index(size - 1, size - 1, (1, size, 1), matrix.device)  # where the transpose has its entries below
    return entries.index_select(0, _below(size, matrix.device)) - entries.index_select(0, above)


def _check_packed(packed: Tensor, rows: int, count: int) -> None:
    size = packed_size(rows, count)
    if packed.shape != (size,):
        raise ShapeError(
            f"`packed` must have shape {(size,)} for a trapezoid of {rows} rows and {count} columns, "
            f"but has shape {tuple(packed.shape)}."
        )


def pack(columns: Tensor) -> Tensor:
    r"""Read the free entries of a trapezoid; what lies above them is left out.

    ``pack(unpack(p, N, K))`` is ``p``. Costs :math:`O(NK)`.

    Args:
        columns: A matrix, shape ``(N, K)`` with :math:`K \le N`.

    Returns:
        The free entries, shape ``(packed_size(N, K),)``.

    Example:
        >>> pack(torch.tensor([[1.0, 9.0], [2.0, 3.0]]))
        tensor([1., 2., 3.])
    """
    if columns.dim() != 2 or columns.shape[1] > columns.shape[0]:
        raise ShapeError(
            f"`columns` must be a matrix with at least as many rows as columns, but has shape {tuple(columns.shape)}."
        )
    rows, count = columns.shape
    return columns.reshape(-1).index_select(0, trapezoid_index(rows, count, columns.device))
