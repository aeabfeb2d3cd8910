"""Examples cut out of segments: whole series, windows, or rows of a stream; each a run of steps and what it is to give."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from steadyrnn.errors import DataError

from ..base import Batch
from .problem import Problem
from .split import Segments

__all__ = ["Examples", "Flat", "cut_examples"]

NOTHING = -100
"""A class that does not count."""


@dataclass(frozen=True)
class Flat:
    """All steps of all series, and their targets.

    Args:
        padded: Scaled channels without gaps and a row of zeros, which is read behind the end of a series, float32 (S + 1, D).
        target: Of each series or each step: classes, int64 (K,), or scaled numbers, float32 (K, C); of a forecast the channels
            to forecast, (S, C).
    """

    padded: Tensor
    target: Tensor

    @classmethod
    def of(cls, values: Tensor, target: Tensor) -> "Flat":
        """Return the same of scaled channels (S, D), to which the row of zeros is added."""
        return cls(pad(values, (0, 0, 0, 1)), target)

    def to(self, device: torch.device) -> "Flat":
        """Return the same on a device."""
        return Flat(self.padded.to(device), self.target.to(device))


@dataclass(frozen=True)
class Examples:
    """Runs of steps: example k reads rows ``start[k]`` to ``start[k] + length[k] - 1``.

    Args:
        start: First row, (K,).
        length: Steps, (K,).
        series: Number of the series, (K,).
        silent: Steps at the beginning whose targets do not count, (K,): another example scores them.
    """

    start: Tensor
    length: Tensor
    series: Tensor
    silent: Tensor

    def __len__(self) -> int:
        return len(self.start)

    def batch(self, flat: Flat, problem: Problem, rows: Tensor | slice) -> Batch:
        """Return some of the examples as a batch: input (T, B, P D) with P steps read at once, target, lengths if ragged."""
        x, lengths, at = self.read(flat, problem.patch, rows)
        return Batch(x, self._target(flat, problem, rows, at), lengths)

    def read(self, flat: Flat, patch: int, rows: Tensor | slice) -> tuple[Tensor, Tensor | None, Tensor]:
        """Return what a network reads of some examples: input, lengths if ragged, and the row of each step, (T / P, B, P).

        Args:
            flat: Scaled channels; targets are not read.
            patch: Steps that are read at once, P.
            rows: Which examples.
        """
        start, length = self.start[rows, None], self.length[rows, None]  # (B, 1)
        steps = -(-length // patch)
        most, least = int(steps.max()), int(length.min())
        time = torch.arange(most * patch).view(most, 1, patch)
        at = start + time  # (T / P, B, P)
        if least < most * patch:
            at.masked_fill_(time >= length, len(flat.padded) - 1)
        x = flat.padded.index_select(0, at.flatten().to(flat.padded.device)).unflatten(0, at.shape)  # (T / P, B, P, D)
        lengths = None if int(steps.min()) == most else steps.squeeze(1)
        return x.flatten(2), lengths, at

    def _target(self, flat: Flat, problem: Problem, rows: Tensor | slice, at: Tensor) -> Tensor:
        """Return the targets of some examples; of steps behind the end, and silent ones, nothing."""
        start, length, device = self.start[rows], self.length[rows], flat.target.device
        if problem.kind == "forecasting":
            ahead = torch.arange(problem.horizon).unsqueeze(0)
            future = flat.target[((start + length).unsqueeze(1) + ahead).to(device)]  # (B, h, C)
            return future.flatten(1)
        if not problem.each:
            return flat.target[self.series[rows].to(device)]
        at = at.squeeze(2)  # where each step has a target, a network reads one at a time
        at = at.clamp(max=len(flat.target) - 1)  # behind an end there is no target
        target = flat.target[at.to(device)]  # (T, B) or (T, B, C)
        time = torch.arange(len(at)).unsqueeze(1)
        counts = ((time < length) & (time >= self.silent[rows])).to(device)
        if target.dim() == 2:
            return target.masked_fill(~counts, NOTHING)
        return target.masked_fill(~counts.unsqueeze(-1), float("nan"))


def cut_examples(segments: Segments, problem: Problem, part: str) -> Examples:
    """Return the examples of a part.

    Training windows begin every ``stride`` steps. In validation and test each step, or each step to forecast, is scored once:
    windows that score every step overlap by half, and the first half of all but the first window is read without being scored.

    Args:
        segments: Of the part.
        problem: What is asked.
        part: Its name.

    Raises:
        DataError: No segment is long enough.
    """
    if problem.window is None:
        return Examples(segments.start, segments.lengths, segments.series, torch.zeros_like(segments.start))
    cut = _forecasts if problem.kind == "forecasting" else _windows
    pieces = [
        cut(start, stop, problem, part == "train", series)
        for start, stop, series in zip(
            *(each.tolist() for each in (segments.start, segments.stop, segments.series)), strict=True
        )
    ]
    found = torch.cat(pieces) if pieces else torch.zeros(0, 4, dtype=torch.int64)
    if not len(found):
        needed = problem.window + problem.horizon
        raise DataError(
            f"The {part} part must have {needed} steps in a row, a window and what is to be predicted, but its longest run has "
            f"{int(segments.lengths.max())}. Give more steps, or a smaller `window`."
        )
    return Examples(*found.unbind(1))


def _forecasts(start: int, stop: int, problem: Problem, training: bool, series: int) -> Tensor:
    """Return windows whose future lies inside the segment as well, (K, 4)."""
    window, horizon = problem.window or 1, problem.horizon
    step = problem.stride if training else horizon
    first = torch.arange(start, max(start, stop - window - horizon + 1), step)
    return torch.stack([first, torch.full_like(first, window), torch.full_like(first, series), torch.zeros_like(first)], 1)


def _windows(start: int, stop: int, problem: Problem, training: bool, series: int) -> Tensor:
    """Return windows that cover a segment, (K, 4); the last one ends where the segment does."""
    window = min(problem.window or 1, stop - start)
    step = problem.stride if training else max(1, window // 2)
    first = torch.arange(start, stop - window + 1, step)
    if int(first[-1]) + window < stop:
        first = torch.cat([first, first.new_tensor([stop - window])])
    silent = torch.zeros_like(first)
    if not training:  # up to where the window before it has scored
        silent[1:] = first[:-1] + window - first[1:]
    return torch.stack([first, torch.full_like(first, window), torch.full_like(first, series), silent], 1)
