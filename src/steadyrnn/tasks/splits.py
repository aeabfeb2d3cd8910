"""Which examples a batch holds: of an endless stream, of a split in order, of a finite set in a new order each epoch."""

from collections.abc import Mapping

import torch
from torch import Tensor

from steadyrnn.checks import check_positive_int
from steadyrnn.errors import ArgumentError, ArgumentTypeError, not_among

from .hashing import Stream, bits
from .settings import TaskSettings

__all__ = ["EpochOrder", "check_step", "cut", "split_counts", "stream_rows", "stream_steps"]

_ROUND = 100  # batches that make an epoch of a stream
_KEPT = 1 << 14  # examples whose order is computed at once, unless a batch spans more epochs


def stream_rows(step: int, batch_size: int) -> range:
    """Return the examples of training batch ``step`` of a stream that never repeats.

    Cutting a batch into parts keeps the examples: part j of p has those of batch ``step * p + j`` of the smaller size.

    Example:
        >>> stream_rows(2, 10)
        range(20, 30)
    """
    first = check_step(step) * check_positive_int("batch_size", batch_size)
    return range(first, first + batch_size)


def stream_steps(batch_size: int) -> int:
    """Return how many batches of a stream that never repeats are called an epoch: 100.

    Example:
        >>> stream_steps(32)
        100
    """
    check_positive_int("batch_size", batch_size)
    return _ROUND


def cut(split: str, counts: Mapping[str, int], batch_size: int) -> list[range]:
    """Return the examples of each batch of a split, in order; the last batch may be smaller.

    Example:
        >>> cut("test", {"validation": 5, "test": 7}, 3)
        [range(0, 3), range(3, 6), range(6, 7)]
    """
    check_positive_int("batch_size", batch_size)
    if split not in counts:
        raise ArgumentError(not_among("split", split, counts))
    return [range(first, min(first + batch_size, counts[split])) for first in range(0, counts[split], batch_size)]


def split_counts(settings: TaskSettings, *splits: str) -> dict[str, int]:
    """Return how many examples each split has, as the settings of that name say.

    Example:
        >>> from steadyrnn.tasks.settings import AdditionSettings
        >>> split_counts(AdditionSettings(test=7), "validation", "test")
        {'validation': 1000, 'test': 7}
    """
    return {split: check_positive_int(split, getattr(settings, split)) for split in splits}


class EpochOrder:
    """The examples of each training batch of a finite set: every epoch all of them, in an order of its own.

    Epochs follow each other without a gap: a batch is always full, and one at the end of an epoch goes on into the next. So
    n examples in a row from a multiple of n on are all different, whatever the batch size. A pure function of its arguments;
    the last orders are kept, since the next batch needs them again: of a small set those of many epochs.

    Args:
        seed: Numbers the order.
        count: How many examples there are.

    Example:
        >>> order = EpochOrder(seed=0, count=4)
        >>> torch.cat([order.rows(0, 2), order.rows(1, 2)]).sort().values
        tensor([0, 1, 2, 3])
    """

    def __init__(self, seed: int, count: int) -> None:
        self.seed = seed
        self.count = check_positive_int("count", count)
        self._kept: tuple[range, Tensor] = range(0), torch.empty(0)  # which epochs, and their orders one after another

    def steps(self, batch_size: int) -> int:
        """Return how many batches it takes to see every example."""
        return -(-self.count // check_positive_int("batch_size", batch_size))

    def rows(self, step: int, batch_size: int, device: torch.device | str = "cpu") -> Tensor:
        """Return the numbers of the examples of batch ``step``, shape ``(batch_size,)``."""
        wanted = stream_rows(step, batch_size)
        first, last = wanted[0] // self.count, wanted[-1] // self.count  # a batch may span many epochs of a small set
        epochs, orders = self._orders(first, last, torch.device(device))
        start = wanted[0] - epochs.start * self.count
        return orders[start : start + batch_size]

    def _orders(self, first: int, last: int, device: torch.device) -> tuple[range, Tensor]:
        """Return epochs with ``first`` to ``last`` among them, and their orders, each as `permutation` gives it."""
        epochs, orders = self._kept
        if first not in epochs or last not in epochs or orders.device != device:
            epochs = range(first, max(last + 1, first + _KEPT // self.count))
            numbers = torch.arange(epochs.start, epochs.stop, device=device).unsqueeze(1)
            words = bits(self.seed, Stream.ORDER, numbers, torch.arange(self.count, device=device))
            orders = words.argsort(dim=1, stable=True).flatten()
            self._kept = epochs, orders
        return epochs, orders


def check_step(step: int) -> int:
    """Return ``step`` if it is an integer from 0 on.

    Example:
        >>> check_step(0)
        0
    """
    if isinstance(step, bool) or not isinstance(step, int):
        raise ArgumentTypeError(f"`step` must be an integer, but is of type {type(step).__name__}.")
    if step < 0:
        raise ArgumentError(f"`step` must not be negative, but is {step}.")
    return step
