"""Random numbers as a pure function of (seed, stream, index, position): integer hashing in tensor operations."""

import math
from enum import IntEnum

import torch
from torch import Tensor

from steadyrnn.errors import ArgumentError

__all__ = ["Stream", "bits", "gaussian", "integers", "permutation", "to_integers_", "to_uniform_", "uniform"]

_WORD = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio, the step of splitmix64
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # the multipliers of its finalizer (variant 13 of Stafford)
_SHIFTS = (30, 27, 31)


class Stream(IntEnum):
    """Separate domains: numbers of two streams have nothing to do with each other, whatever index and position are."""

    TRAIN = 0
    VALIDATION = 1
    TEST = 2
    ORDER = 3  # of the examples of an epoch
    SYSTEM = 4  # of what a task draws once: a teacher's weights, a split, a permutation of pixels
    NOISE = 5  # added to stored examples
    SHIFT = 6  # of stored examples in time
    LENGTH = 7  # of a training batch


def bits(
    seed: int, stream: int, index: Tensor | int, position: Tensor | int, device: torch.device | str | None = None
) -> Tensor:
    r"""Return 64 random bits, as a signed integer, of each pair of an index and a position.

    .. math::
        \operatorname{bits} = m\bigl(m(k + (i + 1)\, g) + (p + 1)\, g\bigr), \qquad
        k = m(m(\text{seed} + g) + \text{stream}\; g)

    with i the index, p the position, :math:`g = \lfloor 2^{64} / \text{golden ratio} \rfloor` and m the finalizer of
    splitmix64, a bijection of 64-bit words that passes the usual batteries of tests. So the numbers of an index are a
    splitmix64 sequence, read at any position, and the starts of these sequences come from another one. Sums and products are
    taken modulo :math:`2^{64}`, as integers of every device do: the result is bit-equal on all of them. Cost: one finalizer
    (11 operations) an entry.

    Args:
        seed: From 0 to 2^63 - 1.
        stream: A member of :class:`Stream`, or any integer.
        index: Number of an example, any shape.
        position: Number of a draw within the example, any shape that broadcasts with ``index``; may be negative.
        device: Where the result lies if neither is a tensor; a tensor's own device otherwise.

    Returns:
        Integers (int64), of the shape ``index`` and ``position`` broadcast to.

    Example:
        >>> bits(0, Stream.TRAIN, torch.arange(2), torch.arange(3).unsqueeze(1)).shape
        torch.Size([3, 2])

    References:
        Steele, Lea, Flood. Fast splittable pseudorandom number generators. OOPSLA 2014.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 1 << 63:
        raise ArgumentError(f"`seed` must be an integer from 0 to 2^63 - 1, but is {seed!r}.")
    key = _mix_number(_mix_number(seed + _GOLDEN) + int(stream) * _GOLDEN)
    where = next((x.device for x in (index, position) if isinstance(x, Tensor)), device)
    start = _mix_(_weyl(key, torch.as_tensor(index, dtype=torch.int64, device=where)))
    step = _weyl(0, torch.as_tensor(position, dtype=torch.int64, device=where))
    return _mix_(start + step)


def uniform(
    seed: int, stream: int, index: Tensor | int, position: Tensor | int, device: torch.device | str | None = None
) -> Tensor:
    """Return multiples of 2^-24 in [0, 1), each equally likely, in float32: bit-equal on any device.

    The upper 24 bits are an integer that float32 holds exactly, and multiplication by a power of two does not round.

    Example:
        >>> bool((uniform(0, Stream.TRAIN, torch.arange(1000), 0) < 1).all())
        True
    """
    return to_uniform_(bits(seed, stream, index, position, device))


def integers(
    seed: int, stream: int, index: Tensor | int, position: Tensor | int, below: int, device: torch.device | str | None = None
) -> Tensor:
    """Return integers from 0 to ``below - 1`` (int64), bit-equal on any device.

    The upper 32 bits, times ``below``, shifted right by 32. A value's probability differs from ``1 / below`` by less than
    2^-32: for ten values a relative 2e-9, which no sample of fewer than 10^17 draws would show.

    Args:
        seed: As in :func:`bits`, like ``stream``, ``index``, ``position`` and ``device``.
        stream: See there.
        index: See there.
        position: See there.
        below: From 1 to 2^31, so that the product fits into 63 bits.
        device: See there.

    Example:
        >>> sorted(set(integers(0, Stream.TRAIN, torch.arange(100), 0, below=3).tolist()))
        [0, 1, 2]
    """
    if not 1 <= below <= 1 << 31:
        raise ArgumentError(f"`below` must be an integer from 1 to 2^31, but is {below}.")
    return to_integers_(bits(seed, stream, index, position, device), below)


def gaussian(
    seed: int,
    stream: int,
    index: Tensor | int,
    position: Tensor | int,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> Tensor:
    r"""Return standard normal numbers.

    Box and Muller: of 64 bits, the upper half gives the radius :math:`\sqrt{-2 \ln u}`, the lower half the angle. The
    largest absolute value is 6.8. **Not** promised to be bit-equal on two devices: their logarithms and cosines round
    differently. On one device the same call gives the same bits.

    Example:
        >>> gaussian(0, Stream.TRAIN, torch.arange(100_000), 0).std().round(decimals=2)
        tensor(1.)
    """
    word = bits(seed, stream, index, position, device)
    angle = (word & 0xFFFFFFFF).to(dtype).mul_(2 * math.pi * 2.0**-32)
    radius = _upper_(word, 32).to(dtype).add_(0.5).mul_(2.0**-32).log_().mul_(-2).sqrt_()
    return radius.mul_(angle.cos_())


def permutation(seed: int, stream: int, n: int, device: torch.device | str | None = None, *, index: int = 0) -> Tensor:
    """Return a permutation of 0..n-1, bit-equal on any device: the order of their hashes, equal ones by number.

    Args:
        seed: As in :func:`bits`.
        stream: As in :func:`bits`.
        n: How many.
        device: Where the result lies.
        index: Numbers the permutation, such as the epoch it is for.

    Example:
        >>> permutation(0, Stream.ORDER, 5).sort().values
        tensor([0, 1, 2, 3, 4])
    """
    return bits(seed, stream, index, torch.arange(n, device=device)).argsort(stable=True)


def to_uniform_(word: Tensor) -> Tensor:
    """Return what :func:`uniform` makes of 64 random bits, which are overwritten.

    Example:
        >>> to_uniform_(torch.tensor([1 << 62, 3 << 61]))
        tensor([0.2500, 0.3750])
    """
    return _upper_(word, 24).float().mul_(2.0**-24)


def to_integers_(word: Tensor, below: int) -> Tensor:
    """Return what :func:`integers` makes of 64 random bits, in their place.

    Example:
        >>> to_integers_(torch.tensor([1 << 62, -1]), 10)
        tensor([2, 9])
    """
    return _upper_(word, 32).mul_(below).bitwise_right_shift_(32)


def _mix_number(word: int) -> int:
    """Return the finalizer of splitmix64 of a Python integer, modulo 2^64."""
    word &= _WORD
    word = (word ^ word >> _SHIFTS[0]) * _FIRST & _WORD
    word = (word ^ word >> _SHIFTS[1]) * _SECOND & _WORD
    return word ^ word >> _SHIFTS[2]


def _to_signed(word: int) -> int:
    """Return the int64 of the same 64 bits."""
    word &= _WORD
    return word - (1 << 64) if word >> 63 else word


def _weyl(start: int, number: Tensor) -> Tensor:
    """Return ``start + (number + 1) g`` modulo 2^64."""
    return (number * _to_signed(_GOLDEN)).add_(_to_signed(start + _GOLDEN))


def _upper_(word: Tensor, count: int) -> Tensor:
    """Keep the upper ``count`` bits, in place, as a number that is not negative."""
    # a right shift of int64 copies the sign: the mask takes the copies away
    return word.bitwise_right_shift_(64 - count).bitwise_and_((1 << count) - 1)


def _mix_(word: Tensor) -> Tensor:
    """Apply the finalizer of splitmix64 in place."""
    for shift, factor in zip(_SHIFTS, (_FIRST, _SECOND, None), strict=True):
        word.bitwise_xor_((word >> shift).bitwise_and_((1 << 64 - shift) - 1))
        if factor is not None:
            word.mul_(_to_signed(factor))
    return word
