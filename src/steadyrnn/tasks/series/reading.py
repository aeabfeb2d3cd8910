"""What a reader returns: series, and where in the files each value stands."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .records import SeriesSet

__all__ = ["Reading", "find_step"]


@dataclass(frozen=True)
class Reading:
    """Series, and the place of each value.

    Args:
        series: What was read.
        place: Returns the place of the value in a row and a channel of ``series.values``, in words, for errors:
            ``data.csv, line 7, column 'x'``.
    """

    series: SeriesSet
    place: Callable[[int, int], str]

    def with_notes(self, *notes: str) -> "Reading":
        """Return the same with notes before the others."""
        return replace(self, series=replace(self.series, notes=(*notes, *self.series.notes)))


def find_step(row: int, lengths: Tensor) -> tuple[int, int]:
    """Return the series and the step, both from 0, of a row of ``series.values``.

    Example:
        >>> find_step(3, torch.tensor([2, 4]))
        (1, 1)
    """
    ends = lengths.cumsum(0)
    which = int(torch.searchsorted(ends, row, right=True))
    return which, row - int(ends[which] - lengths[which])
