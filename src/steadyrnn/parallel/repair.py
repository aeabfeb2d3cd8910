"""One rank's part of a layer: its own run, and the first steps again from where the part before ended."""

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from steadyrnn.bounds.memory import horizon
from steadyrnn.bounds.norms import Norm, above, power_above, product_above
from steadyrnn.bounds.parts import Part
from steadyrnn.cells.base import State
from steadyrnn.certificates.layer import LayerCertificate
from steadyrnn.certificates.rounding import Sizes, largest_norm
from steadyrnn.checks import check_finite
from steadyrnn.engines.base import Recurrence
from steadyrnn.engines.select import ENGINES, select

from .plan import Bounds, Request, likely_warmup, rounding_of
from .run import LayerResult

__all__ = ["Repair", "distance"]


class Repair:
    """One rank's part of a layer, which did not know what state it starts from.

    Its own run starts from zero (on rank 0 from the true state). :meth:`receive` runs the first steps again from the state
    in which the part before ended, until both runs are close enough that the rest of the own run may stay.

    Args:
        run: The part, with the state that its own run started from.
        requested: An engine's name or ``"auto"``.
        result: Of its own run.
        certificate: Of the layer, with the contraction that counts.
        bounds: On its states.
        request: Its tolerance is that of one jump, in the 2-norm.
        least: Steps to run again at least, so that gradients are good enough.
    """

    def __init__(
        self, run: Recurrence, requested: str, result: LayerResult, certificate: LayerCertificate, bounds: Bounds,
        request: Request, least: int,
    ) -> None:  # fmt: skip
        self.run, self.requested, self.result, self.certificate = run, requested, result, certificate
        self.contraction, self.bounds, self.request, self.least = certificate.best, bounds, request, least
        self.steps = run.input.shape[0]
        self.pieces: list[Tensor] = []
        self.start, self.end = run.state, result.state  # where the run that gave the end started from
        self.repeated = self.depth = self.sweeps = 0
        self.jump = self.change = 0.0
        self.entered, self.moved, self.anew = math.inf, True, False
        self.own = product_above(result.record.truncation, self.contraction.norm.lower)
        self.largest = math.inf if bounds.flat else largest_norm(result.output)
        if result.windows is not None:  # whose states before their outputs count, which steps start from, may be larger
            self.largest = max(self.largest, result.windows.largest)

    def receive(self, state: State | None, entered: float) -> None:
        """Run the first steps again from the state in which the part before ended; None where that has not moved.

        Args:
            state: Each (B, H).
            entered: How many inputs it has seen; infinite where it depends on all.
        """
        self.moved, self.change = False, 0.0
        if state is None:
            return
        rate, norm = self.contraction.rate, self.contraction.norm
        target, gap = product_above(self.request.tol, norm.lower), distance(norm, state, self.run.state)
        self.entered, self.pieces, self.sweeps = entered, [], self.sweeps + 1
        self._cover(state)
        begin, now = 0, state
        for stop in self._stops(target, max(gap, self.bounds.radius)):
            part = self.run._replace(input=self.run.input[begin:stop], state=now)
            output, now = ENGINES[select(self.requested, part).engine].run(part)
            self.pieces.append(output)
            self.largest = self.largest if self.bounds.flat else max(self.largest, largest_norm(output))
            begin, self.repeated = stop, stop
            if stop < self.steps:
                self.jump = min(distance(norm, now, self._state_at(stop)), product_above(power_above(rate, stop), gap))
                if self.jump <= target:
                    break
        self.depth += self.repeated
        if self.repeated == self.steps:
            follows = product_above(power_above(rate, self.steps), distance(norm, state, self.start))
            follows = above(follows + (0.0 if self.anew else self.own))
            self.jump, self.moved, self.anew = 0.0, True, True
            self.change, self.end, self.start = min(distance(norm, now, self.end), follows), now, state

    def _cover(self, state: State) -> None:
        """Widen the bounds that rounding is proven from."""
        largest = max(largest_norm(state[0]), self.bounds.initial)
        wider = replace(self.bounds, initial=largest, flat=max(self.bounds.flat, largest) if self.bounds.flat else 0.0)
        self.bounds = wider.with_inputs(self.bounds.inputs)

    def _stops(self, target: float, gap: float) -> Iterator[int]:
        """Return the times at which both runs are compared, the last step at the end."""
        sure = max(horizon(self.contraction.rate, gap, target), 1)
        windows = self.result.windows
        least = max(self.least, self.repeated, 1)
        if len(self.run.state) > 1:  # whose cell states are known where windows end
            k, chunk, number = (0, 0, 0) if windows is None else windows.windows
            yield from (k + j * chunk for j in range(number) if least <= k + j * chunk < self.steps)
        else:
            likely = likely_warmup(self.request.decay, target / (8 * max(gap, target))) or -(-sure // 4)
            first = min(likely if windows is None else windows.windows.warmup, sure)
            stop, sure = max(first, least), max(sure, least)
            while stop < min(sure, self.steps):
                yield stop
                stop *= 2
            if sure < self.steps:
                yield sure
        yield self.steps

    def _state_at(self, time: int) -> State:
        """Return the state of the own run behind a step."""
        if len(self.run.state) == 1 or self.result.windows is None:
            return (self.result.output[time - 1],)
        windows = self.result.windows
        (k, chunk, number), rows = windows.windows, windows.rows
        if time == k:
            return tuple(s[:rows] for s in windows.latest.start)
        return tuple(s.unflatten(0, (number, rows))[(time - k) // chunk - 1] for s in windows.latest.end)

    @property
    def first_end(self) -> int:
        """Where the first window of the own run ends, up to which it is exact for the state it started from."""
        return self.steps if self.result.windows is None else sum(self.result.windows.windows[:2])

    def part(self, change: float) -> Part:
        """Return what the error is proven from, except how far the end of the part before has moved, ``change``."""
        jump = above(self.jump + self.own) if self.first_end < self.repeated < self.steps else self.jump
        return Part(self.steps, self.repeated, jump, change, self.own)

    def rounding(self, sizes: Sizes) -> float:
        """Return the bound on rounding."""
        return rounding_of(self.run, self.certificate, sizes, self.bounds, self.largest)[0]

    def output(self) -> Tensor:
        """Return the outputs of the part, (T, B, H)."""
        if not self.pieces:
            return self.result.output
        if not torch.is_grad_enabled():  # then nothing else reads it, and a long series is not copied
            self.result.output[: self.repeated] = torch.cat(self.pieces)
            return self.result.output
        rest = self.result.output[self.repeated :]
        return torch.cat([*self.pieces, rest]) if len(rest) or len(self.pieces) > 1 else self.pieces[0]

    def contexts(self, first: bool, since: int = 0, until: int | None = None) -> Tensor:
        """Return how many inputs the gradients of outputs see, infinite where they see all.

        Args:
            first: Whether the own run started from the true state.
            since: How many outputs to leave out.
            until: Which is the last, counted from 1; all if None.
        """
        seen = torch.arange(since + 1, (self.steps if until is None else until) + 1, dtype=torch.float64, device="cpu")
        own = torch.full_like(seen, math.inf) if first else seen
        if self.result.windows is not None:
            (k, chunk, _), sweeps = self.result.windows.windows, self.result.windows.sweeps
            edge = k + (sweeps + 1) * chunk
            own = torch.where(seen > edge, k + sweeps * chunk + 1 + (seen - 1 - edge) % chunk, own)
        return torch.where(seen <= self.repeated, seen + self.entered, own)

    def first_contexts(self, first: bool) -> tuple[Tensor, int]:
        """Return them up to where they repeat, and how many of the last do."""
        if self.result.windows is not None:
            (k, chunk, _), sweeps = self.result.windows.windows, self.result.windows.sweeps
            until = max(k + (sweeps + 1) * chunk, self.repeated) + chunk
            if until < self.steps:
                return self.contexts(first, until=until), chunk
        return self.contexts(first), 0

    def end_context(self, first: bool) -> float:
        """Return how many inputs the gradient of the end state sees; the others, which are many, are not asked."""
        return float(self.contexts(first, self.steps - 1)) if self.steps else math.inf


@torch.no_grad()
def distance(norm: Norm, one: State, other: State) -> float:
    """Return the largest distance of two states, each (B, H), over their rows, rounded up.

    Example:
        >>> from steadyrnn.bounds.norms import TwoNorm
        >>> round(distance(TwoNorm(2), (torch.tensor([[3.0, 4.0]]),), (torch.zeros(1, 2),)), 6)
        5.0
    """
    if not one[0].numel():
        return 0.0
    pairs = zip(reversed(one), reversed(other), strict=True)
    gap = torch.cat([a.detach().double() - b.detach().double() for a, b in pairs], dim=-1)
    found = check_finite("input", norm(gap)).max()
    return above(float(found), 64 + int(64 * norm.size**1.5 * norm.condition))
