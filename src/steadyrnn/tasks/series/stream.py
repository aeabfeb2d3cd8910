"""Long series read in rows side by side, the state carried from batch to batch."""

import torch
from torch import Tensor

from steadyrnn.errors import DataError

from ..base import Batch
from .examples import NOTHING, Flat
from .problem import Problem
from .split import Segments

__all__ = ["StreamPart"]


class StreamPart:
    """A part of some series for truncated backpropagation.

    All segments stand one behind the other and are cut into as many rows as a batch has; batch k reads the steps from
    ``k * bptt`` on of all rows. Where a row goes over from one segment to the next, nothing tells the network, as in a text of
    many sentences. Validation and test read one row, so that every step but those without a target is scored once.

    Args:
        flat: All steps.
        segments: Of this part.
        problem: What is asked.
        part: Its name, for errors.
    """

    def __init__(self, flat: Flat, segments: Segments, problem: Problem, part: str) -> None:
        self.flat, self.problem = flat, problem
        pieces = [torch.arange(a, b) for a, b in zip(segments.start.tolist(), segments.stop.tolist(), strict=True)]
        self.rows = torch.cat(pieces)
        ends = torch.cat([torch.full_like(piece, int(piece[-1]) + 1) for piece in pieces])
        self.scored = self.rows + problem.horizon < ends  # a forecast must lie inside its segment
        if not bool(self.scored.any()):
            raise DataError(f"The {part} part has no step with {problem.horizon} steps behind it. Give more steps.")

    def batches(self, batch_size: int) -> int:
        """Return how many batches read all of it."""
        return -(-self._row_length(batch_size) // (self.problem.bptt or 1))

    def batch(self, number: int, batch_size: int) -> Batch:
        """Return batch ``number`` of ``batch_size`` rows."""
        bptt, length = self.problem.bptt or 1, self._row_length(batch_size)
        time = torch.arange(number * bptt, min((number + 1) * bptt, length)).unsqueeze(1)  # (T, 1)
        place = time + length * torch.arange(batch_size)  # (T, B)
        inside = place < len(self.rows)
        place = place.clamp(max=len(self.rows) - 1)
        at, padded = self.rows[place], self.flat.padded
        x = padded[at.masked_fill(~inside, len(padded) - 1).to(padded.device)]
        return Batch(x, self._target(at, inside & self.scored[place]), fresh=number == 0)

    def _target(self, at: Tensor, counts: Tensor) -> Tensor:
        target, problem = self.flat.target, self.problem
        if problem.kind == "forecasting":
            ahead = at.unsqueeze(-1) + torch.arange(1, problem.horizon + 1)
            found = target[ahead.clamp(max=len(target) - 1).to(target.device)].flatten(2)  # (T, B, h C)
        else:
            found = target[at.to(target.device)]
        counts = counts.to(target.device)
        if found.dim() == 2:
            return found.masked_fill(~counts, NOTHING)
        return found.masked_fill(~counts.unsqueeze(-1), float("nan"))

    def _row_length(self, batch_size: int) -> int:
        return -(-len(self.rows) // batch_size)
