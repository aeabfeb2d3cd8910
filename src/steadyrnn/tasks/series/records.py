"""Series as they were read: nothing filled in, nothing scaled, nothing split."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["RawTarget", "SeriesSet", "SourceFile"]


@dataclass(frozen=True)
class SourceFile:
    """A file that series were read from.

    Args:
        path: Where it lies.
        size: Its bytes.
        sha256: Of all of them, in hexadecimal.
    """

    path: Path
    size: int
    sha256: str


@dataclass(frozen=True)
class RawTarget:
    """What is to be predicted, as the file has it: texts or numbers, of each series or of each step.

    Args:
        names: The columns it is from.
        texts: Of text columns: one text per series or per step; None where it is numbers.
        numbers: Of number columns: float64, ``(N, C)`` or ``(S, C)``; None where it is texts.
        each: Whether every step has one.
    """

    names: tuple[str, ...]
    texts: tuple[str, ...] | None = None
    numbers: Tensor | None = None
    each: bool = False


@dataclass(frozen=True)
class SeriesSet:
    r"""Some series, one after another.

    N series of lengths :math:`T_1, \dots, T_N` and D channels are stored as :math:`S = \sum T_i` rows.

    Args:
        values: The channels, float64 ``(S, D)``; NaN where a value is missing.
        lengths: Steps of each series, int64 ``(N,)``, from 1 on.
        channels: Names of the channels.
        names: Names of the series.
        target: What is to be predicted; None where the file names nothing.
        times: Time of each step, float64 ``(S,)``, ascending within a series: numbers as in the file, dates in seconds. None
            where the file has none.
        groups: Group of each series; None where there are none.
        files: What was read.
        notes: What a person should know of the reading, a sentence each.
    """

    values: Tensor
    lengths: Tensor
    channels: tuple[str, ...]
    names: tuple[str, ...]
    target: RawTarget | None = None
    times: Tensor | None = None
    groups: tuple[str, ...] | None = None
    files: tuple[SourceFile, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """N."""
        return len(self.names)

    @property
    def starts(self) -> Tensor:
        """Row at which each series begins, (N,)."""
        return self.lengths.cumsum(0) - self.lengths

    @property
    def series(self) -> list[NDArray[np.float64]]:
        """The channels of each series, N arrays (T_i, D)."""
        return [part.numpy() for part in self.values.split(self.lengths.tolist())]

    @property
    def labels(self) -> NDArray[np.float64] | NDArray[np.str_] | None:
        """The target: texts (N,), or numbers (N,) or (N, C); of every step, S in the place of N. None where there is none."""
        if self.target is None:
            return None
        if self.target.numbers is None:
            return np.array(self.target.texts, dtype=np.str_)
        numbers = self.target.numbers.numpy()
        return numbers[:, 0] if numbers.shape[1] == 1 else numbers

    def take(self, series: Sequence[int]) -> "SeriesSet":
        """Return some of the series, in the order given."""
        chosen = torch.tensor([*series], dtype=torch.int64)
        starts, lengths = self.starts[chosen], self.lengths[chosen]
        rows = torch.cat([torch.arange(int(a), int(a + n)) for a, n in zip(starts, lengths, strict=True)])
        target = self.target
        if target is not None:
            places = rows if target.each else chosen
            texts = None if target.texts is None else tuple(target.texts[place] for place in places.tolist())
            target = RawTarget(target.names, texts, None if target.numbers is None else target.numbers[places], target.each)
        return SeriesSet(
            self.values[rows], lengths, self.channels, tuple(self.names[place] for place in series), target,
            None if self.times is None else self.times[rows],
            None if self.groups is None else tuple(self.groups[place] for place in series), self.files, self.notes,
        )  # fmt: skip
