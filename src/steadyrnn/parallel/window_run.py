"""A recurrence run in windows of time, all of them as one batch, on any engine."""

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import pad

from steadyrnn.bounds.memory import truncation_error
from steadyrnn.bounds.norms import ROUND_OFF, Contraction, above
from steadyrnn.bounds.parallel import boundary_errors, swept_errors
from steadyrnn.cells.base import State
from steadyrnn.certificates.largest_norm import largest_norm
from steadyrnn.checks import check_finite
from steadyrnn.engines.base import Recurrence, lengths_of
from steadyrnn.engines.cuda.loops.windows import FusedWindows, refusal
from steadyrnn.engines.loop.ops import is_kept
from steadyrnn.engines.select import ENGINES, Choice, select
from steadyrnn.engines.windows import Windows
from steadyrnn.errors import ArgumentError
from steadyrnn.gpu.async_result import AsyncResult, Deferred

__all__ = ["Pass", "WindowRun", "fuses"]


def fuses(recurrence: Recurrence, requested: str) -> bool:
    """Say whether one kernel runs all windows of a recurrence in place: where there is one.

    Example:
        >>> from steadyrnn.cells.registry import CELLS
        >>> zero = torch.zeros(1, 1)
        >>> fuses(Recurrence(CELLS["rnn-tanh"], torch.ones(3, 1, 1), (zero,), zero, zero), "auto")  # on a CPU
        False
    """
    return requested == "auto" and refusal(recurrence, is_kept(recurrence.tensors)) is None


def check_windows(recurrence: Recurrence, windows: Windows) -> None:
    """Refuse windows that are fewer than two or do not end with the last step, and time that runs backwards."""
    (k, chunk, number), steps = windows, recurrence.input.shape[0]
    if number < 2 or not k + (number - 1) * chunk < steps <= k + number * chunk:
        raise ArgumentError(f"`windows` must be two or more that end with the last of {steps} steps, but are {windows}.")
    if recurrence.reverse:
        raise ArgumentError("a recurrence must run forwards in time to be run in windows.")


class Pass(NamedTuple):
    """All windows run once, from the warm-up's end or from the last pass's ends; rows are windows x batch."""

    start: State  # each (J * B, H)
    output: Tensor  # (C, J * B, H); from one kernel all of the sequence, (T, B, H)
    end: State  # each (J * B, H)
    later: Deferred[Tensor]  # errors, from numbers that are on their way

    @property
    def errors(self) -> Tensor:
        """Bound on the error of each start state, in the norm of the contraction: (J, B), on the CPU."""
        return self.later.value()


class WindowRun:
    r"""A recurrence run in windows, with a bound on how far each is from the sequential run.

    Window 0 starts from the true state. The others start from zero, and throw away their warm-up. After the first pass
    :meth:`sweep` starts every window from where the one before it ended, as often as wanted. The bound is that of
    :func:`~steadyrnn.bounds.parallel.swept_errors`, and before any sweep also the a-priori one; it holds up to the rounding
    of :func:`~steadyrnn.bounds.parallel.rounding_error`: a computed step is an exact one plus at most :math:`\delta`, so with
    :math:`D = \delta / (1 - \lambda)` the computed states are within :math:`e_j + D` of the true ones.

    Gradients flow through warm-up and sweeps.

    Args:
        recurrence: What to run, forwards in time.
        requested: An engine's name or ``"auto"``.
        windows: Two or more.
        contraction: Of the recurrence, with a rate below 1.
        radius: Bound on the norm of every state of the sequential run.
        remember: Whether to keep passes before the last.
        measure: Whether to note the largest output of all passes.
        meanwhile: What to start on the device before results are waited for.
        gates: Where one kernel is to run all windows, which :func:`fuses` must allow: the recurrence's
            :func:`~steadyrnn.engines.cuda.loops.windows.input_part`.

    Example:
        >>> from steadyrnn.bounds.norms import TwoNorm
        >>> from steadyrnn.cells.registry import CELLS
        >>> w = torch.full((1, 1), 0.5)
        >>> line = Recurrence(CELLS["rnn-identity"], torch.ones(9, 1, 1), (torch.zeros(1, 1),), torch.ones(1, 1), w)
        >>> run = WindowRun(line, "auto", Windows(1, 4, 2), Contraction(0.5, TwoNorm(1), "MATH 5.1"), radius=2.0)
        >>> round(run.truncation, 3), round(float(line.input.sum() - run.output()[4]), 3)
        (0.469, 7.062)
        >>> run.sweep()
        >>> run.truncation
        0.0
    """

    def __init__(
        self,
        recurrence: Recurrence,
        requested: str,
        windows: Windows,
        contraction: Contraction,
        radius: float,
        remember: bool = False,
        measure: bool = True,
        meanwhile: Callable[[], None] | None = None,
        gates: Tensor | None = None,
    ) -> None:
        check_windows(recurrence, windows)
        self.recurrence, self.requested, self.windows = recurrence, requested, windows
        self.contraction, self.radius = contraction, radius
        self.lengths = lengths_of(recurrence)
        self.choice: Choice | None = None
        self.sweeps = 0
        self.remember, self.measure, self.meanwhile = remember, measure, meanwhile
        self.earlier: list[Pass] = []
        self.fused = None if gates is None else FusedWindows(recurrence, gates, windows, measure, is_kept(recurrence.tensors))
        if self.fused is not None:
            self.choice = Choice("cuda", "one kernel runs all windows in place")
        self.warm, start, first = self._begin()
        self.largest = largest_norm(self.warm) if measure and self.fused is None else 0.0 if measure else math.inf
        self.latest = self._main(start, None, first)

    @property
    def rows(self) -> int:
        """B."""
        return self.recurrence.input.shape[1]

    def warm_input(self) -> Tensor:
        """Return the input of every warm-up, shape (k, J * B, D)."""
        (k, chunk, number), x = self.windows, self.recurrence.input
        if k == 0:
            return x.new_empty(0, number * self.rows, x.shape[2])
        return x.unfold(0, k, chunk)[:number].permute(3, 0, 1, 2).reshape(k, number * self.rows, x.shape[2])

    def main_input(self) -> Tensor:
        """Return the input behind every warm-up, shape (C, J * B, D), zero behind the last time."""
        return self._cut(self.recurrence.input)

    def _cut(self, x: Tensor) -> Tensor:
        """Return a sequence (T, B, N) in windows behind their warm-ups, (C, J * B, N), zero behind the last time."""
        k, chunk, number = self.windows
        if k + number * chunk == x.shape[0]:
            return x[k:].unflatten(0, (number, chunk)).transpose(0, 1).reshape(chunk, -1, x.shape[2])  # type: ignore[no-any-return]
        edge = k + (number - 1) * chunk
        last = pad(x[edge:], (0, 0, 0, 0, 0, edge + chunk - x.shape[0])).unsqueeze(1)  # (C, 1, B, D)
        whole = x[k:edge].unflatten(0, (number - 1, chunk)).transpose(0, 1)  # (C, J - 1, B, D)
        return torch.cat([whole, last], dim=1).flatten(1, 2)

    def warm_output(self) -> Tensor:
        """Return the outputs of every warm-up, shape (k, J * B, H); of one kernel, where gradients are wanted."""
        return self.warm if self.fused is None else torch.cat([self.warm, self.fused.trail], dim=1)

    def main_output(self, one: "Pass") -> Tensor:
        """Return the outputs of a pass, shape (C, J * B, H); what lies behind the last time means nothing."""
        return one.output if self.fused is None else self._cut(one.output)

    def _remaining(self, first: int, most: int) -> Tensor | None:
        """Return how many of ``most`` steps from ``first`` on each window's rows run, (J * B,); None where nobody asks."""
        if self.lengths is None:
            if self.recurrence.cell.states == 1:  # a padded h is cut off, a padded c would be returned
                return None
            ends = torch.full((self.rows,), self.recurrence.input.shape[0], device="cpu")
        else:
            ends = self.lengths
        starts = first + self.windows.chunk * torch.arange(self.windows.number, device="cpu")
        steps = (ends - starts.unsqueeze(1)).clamp(0, most).flatten()
        return None if bool((steps == most).all()) else steps

    def _warm_up(self) -> tuple[Tensor, State]:
        """Return outputs (k, J * B, H) and states behind the warm-up, each (J * B, H)."""
        start = self._cold()
        if self.windows.warmup == 0:
            return start[0].new_empty(0, *start[0].shape), start
        return self._run(self.warm_input(), start, self._remaining(0, self.windows.warmup))

    def _begin(self) -> tuple[Tensor, State, tuple[Tensor, State] | None]:
        """Return the warm-up's outputs and end and, where one run gives both, the main part's.

        The state of a cell with one is its output, so that the main part need not wait for the warm-up to end.
        """
        (k, chunk, number), x = self.windows, self.recurrence.input
        if self.fused is not None:
            led, ended = self.fused.begin(*self._cold())
            return self.fused.output[:k], (led,), (self.fused.output, (ended,))
        if self.recurrence.cell.states > 1 or k == 0 or k + number * chunk != x.shape[0]:
            return *self._warm_up(), None
        data = x.unfold(0, k + chunk, chunk).permute(3, 0, 1, 2).reshape(k + chunk, number * self.rows, x.shape[2])
        output, end = self._run(data, self._cold(), self._remaining(0, k + chunk))
        warm, main = output.split([k, chunk])  # whose gradients are joined in one go; those of two slices would be added
        return warm, (warm[-1],), (main, end)

    def _cold(self) -> State:
        """Return the states windows start from: the true one, and zero."""
        more = (self.windows.number - 1) * self.rows
        return tuple(torch.cat([s, s.new_zeros(more, s.shape[1])]) for s in self.recurrence.state)

    def _main(self, start: State, before: Tensor | None, done: tuple[Tensor, State] | None = None) -> Pass:
        output, end = self._main_run(start) if done is None else done
        measured = AsyncResult(self._mismatch(start, end))
        self.joined = self._join(output) if self.fused is None else output  # while the numbers above are on their way
        if self.meanwhile is not None:
            self.meanwhile = self.meanwhile()
        if self.measure:
            found = largest_norm(output) if self.fused is None else self.fused.largest()
            self.largest = found if math.isnan(found) else max(self.largest, found)
        known = self.contraction.rate, self.windows, self.radius, self._running
        # not `self`, which would hold on to all its tensors until this is asked for
        return Pass(start, output, end, Deferred(lambda: start_errors(measured.value(), before, *known)))

    def _main_run(self, start: State) -> tuple[Tensor, State]:
        """Run every window behind its warm-up."""
        if self.fused is not None:
            end = self.fused.again(*start)
            return self.fused.output, (end,)
        return self._run(self.main_input(), start, self._remaining(self.windows.warmup, self.windows.chunk))

    def _run(self, data: Tensor, state: State, lengths: Tensor | None) -> tuple[Tensor, State]:
        """Run rows of any lengths in any order."""
        part = self.recurrence._replace(input=data, state=state, batch_sizes=None)
        if lengths is None:
            return self._on_engine(part)
        ordered, order = lengths.sort(descending=True, stable=True)
        ended = torch.bincount(ordered, minlength=data.shape[0] + 1).cumsum(0)[: data.shape[0]]
        part = part._replace(batch_sizes=len(ordered) - ended)
        if bool((lengths == ordered).all()):
            return self._on_engine(part)
        order = order.to(data.device)
        restore = order.argsort()
        state = tuple(s.index_select(0, order) for s in state)
        output, end = self._on_engine(part._replace(input=data.index_select(1, order), state=state))
        return output.index_select(1, restore), tuple(s.index_select(0, restore) for s in end)

    def _on_engine(self, part: Recurrence) -> tuple[Tensor, State]:
        self.choice = select(self.requested, part)
        return ENGINES[self.choice.engine].run(part)

    @torch.no_grad()
    def _mismatch(self, start: State, end: State) -> Tensor:
        """Return how far from the end of the one before it each window started, (J, B), in the norm; 0 for the first."""
        norm = self.contraction.norm
        began, ended = (_vector(s)[part] for s, part in ((start, slice(self.rows, None)), (end, slice(-self.rows))))
        # a matrix product in the norm is exact up to its terms' size, not the sum's
        slack = 1 + 64 * norm.size**1.5 * norm.condition * ROUND_OFF
        gap: Tensor = norm(ended - began).view(self.windows.number - 1, self.rows) * slack
        return pad(gap, (0, 0, 1, 0))

    @cached_property
    def _running(self) -> Tensor | None:
        """Say which rows still run where windows start to matter, (J, B), all in the first; None where all do."""
        if self.lengths is None:
            return None
        k, chunk, number = self.windows
        return pad((k + chunk * torch.arange(1, number, device="cpu")).unsqueeze(1) < self.lengths, (0, 0, 1, 0), value=True)

    @property
    def errors(self) -> Tensor:
        """Bound on the norm of the error of every start state that matters, (J, B), zero where a row has ended."""
        if self._running is None:
            return self.latest.errors
        return torch.where(self._running, self.latest.errors, 0.0)

    @property
    def truncation(self) -> float:
        """Bound on the 2-norm of the error of every output, without rounding."""
        largest = float(self.errors.max())
        return 0.0 if largest == 0 else above(self.contraction.rate * largest / self.contraction.norm.lower)

    @property
    def depth(self) -> int:
        """Steps run one after another."""
        return self.windows.depth(self.sweeps)

    def sweep(self) -> None:
        """Run all windows again, each from where the one before it ended."""
        last = self.latest
        start = tuple(torch.cat([s[: self.rows], e[: -self.rows]]) for s, e in zip(last.start, last.end, strict=True))
        self.earlier += [last] if self.remember else []
        self.latest = self._main(start, last.errors)
        self.sweeps += 1

    def _join(self, output: Tensor) -> Tensor:
        main = output.unflatten(1, (self.windows.number, self.rows))
        joined: Tensor = Joined.apply(self.warm[:, : self.rows], main, self.recurrence.input.shape[0])  # type: ignore[no-untyped-call]
        return joined

    def output(self) -> Tensor:
        """Return the outputs, shape (T, B, H)."""
        return self.joined

    def final(self, output: Tensor) -> State:
        """Return each row's last state, each (B, H); ``output`` is what :meth:`output` gave."""
        (k, chunk, number), x = self.windows, self.recurrence.input
        ends = torch.full((self.rows,), x.shape[0], device="cpu") if self.lengths is None else self.lengths
        row = torch.arange(self.rows, device=x.device)
        if self.recurrence.cell.states == 1:
            if self.lengths is None:
                return (output[-1],)
            here = ends.to(x.device)
            return (torch.where((here > 0).unsqueeze(1), output[(here - 1).clamp(min=0), row], self.recurrence.state[0]),)
        last = (-(-(ends - k) // chunk) - 1).clamp(0, number - 1).to(x.device)
        return tuple(s.unflatten(0, (number, self.rows))[last, row] for s in self.latest.end)


def start_errors(
    measured: Tensor, before: Tensor | None, rate: float, windows: Windows, radius: float, running: Tensor | None
) -> Tensor:
    """Return bounds on the errors of the start states, (J, B), from how far windows disagree, likewise.

    Args:
        measured: What :meth:`WindowRun._mismatch` gave.
        before: The errors before a sweep, None where there was none.
        rate: Of the contraction.
        windows: Which they are.
        radius: Bound on the norm of every state of the sequential run.
        running: Which rows still run, (J, B); None where all do.
    """
    mismatch = check_finite("input", measured if running is None else torch.where(running, measured, 0.0))
    if before is not None:
        return swept_errors(rate, windows.chunk, mismatch, before)
    ahead = truncation_error(rate, radius, windows.warmup)
    return boundary_errors(rate, windows.chunk, mismatch).clamp_(max=ahead)  # the first window's is 0


class Joined(Function):
    """Outputs of window 0's warm-up (k, B, H) and of all windows (C, J, B, H) as one sequence, each number copied once."""

    @staticmethod
    def forward(ctx: Any, warm: Tensor, main: Tensor, steps: int) -> Tensor:
        """Return the sequence, (T, B, H)."""
        k, (chunk, number) = warm.shape[0], main.shape[:2]
        ctx.layout = k, chunk, number
        whole = (steps - k) // chunk  # windows that are not cut off
        joined = main.new_empty(steps, *main.shape[2:])
        joined[:k] = warm
        edge = k + whole * chunk
        joined[k:edge].view(whole, chunk, *main.shape[2:]).copy_(main[:, :whole].transpose(0, 1))
        if edge < steps:
            joined[edge:] = main[: steps - edge, -1]
        return joined

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        """Return the gradient's parts, by operations that can be differentiated again."""
        k, chunk, number = ctx.layout
        missing = k + chunk * number - grad.shape[0]
        rest = pad(grad[k:], (0, 0, 0, 0, 0, missing)) if missing else grad[k:]  # padding by nothing would copy
        return grad[:k], rest.unflatten(0, (number, chunk)).transpose(0, 1), None


def _vector(state: State) -> Tensor:
    """Return a state as the norms take it: h, or (c, h) of an LSTM, in float64."""
    return torch.cat([s.detach().double() for s in reversed(state)], dim=-1)
