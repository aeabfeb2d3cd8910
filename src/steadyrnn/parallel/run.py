"""Run one layer in windows of time, all of them as one batch, until the result is proven to be good enough."""

import math
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from steadyrnn.bounds.memory import boundary_errors, swept_errors, truncation_error
from steadyrnn.bounds.norms import ROUND_OFF, Contraction, above
from steadyrnn.cells.base import State
from steadyrnn.certificates.layer import LayerCertificate
from steadyrnn.certificates.rounding import Sizes, largest_norm, norm_of_square
from steadyrnn.checks import check_finite
from steadyrnn.engines.base import AsyncResult, Deferred, Recurrence, Windows, join_windows, lengths_of
from steadyrnn.engines.cuda.loops.windows import FusedWindows, input_part, refusal
from steadyrnn.engines.loop.ops import is_kept
from steadyrnn.engines.select import ENGINES, Choice, select
from steadyrnn.errors import ArgumentError, NotFiniteError

from .gradients import Evidence, collect_evidence, is_kinked
from .plan import Bounds, Request, list_ways, plan_windows, rounding_of, warmups_of
from .report import LayerRun

__all__ = ["LayerResult", "Pass", "WindowRun", "can_fuse", "record_run", "run_layer", "run_part"]


class LayerResult(NamedTuple):
    """What a layer gives."""

    output: Tensor  # (T, B, H)
    state: State  # each (B, H)
    record: LayerRun
    evidence: Evidence
    windows: "WindowRun | None" = None  # None where it ran step by step
    run: Recurrence | None = None  # what was run


def run_layer(run: Recurrence, requested: str, certificate: LayerCertificate, sizes: Sizes, request: Request) -> LayerResult:
    """Run one layer with the contraction that needs the shortest warm-up; arguments are those of :func:`run_part`."""
    gates = input_part(run) if can_fuse(run, requested) else None  # on its way while windows are planned
    ways = list_ways(run, certificate, request)
    warmups = warmups_of(ways, request)
    best = ways[warmups.index(min(warmups))]
    return run_part(run, requested, *best, sizes, request, gates)._replace(windows=None, run=run)


def run_part(
    run: Recurrence, requested: str, certificate: LayerCertificate, bounds: Bounds, sizes: Sizes, request: Request,
    gates: Tensor | None,
) -> LayerResult:  # fmt: skip
    """Run one layer over the steps at hand, in windows until it is proven to be good enough.

    Args:
        run: The layer with its input and initial state.
        requested: An engine's name or ``"auto"``.
        certificate: Of the layer's weights, with the contraction that counts, its rate below 1.
        bounds: On its states.
        sizes: Of the layer's weights.
        request: Tolerances.
        gates: Where one kernel can run all windows, what it starts from.
    """
    windows, fused = plan_windows(run, certificate, bounds, request, gates is not None)
    if windows.number == 1:
        return run_sequentially(run, requested, certificate, sizes, bounds, request.refusal)
    kinked = request.refusal is None and is_kinked(certificate) and is_kept(run.tensors)
    parallel = WindowRun(
        run, requested, windows, certificate.best, bounds.radius, kinked, not bounds.flat, request.meanwhile,
        gates if fused else None, request.linked,
    )  # fmt: skip
    # Before the truncation is read: it is still on its way from the device, and mostly it is small enough.
    state, rounding, local = finish(parallel, certificate, sizes, bounds)
    while (truncation := parallel.truncation) > request.tol and parallel.sweeps < windows.number:  # then all are exact
        parallel.sweep()
    if parallel.sweeps:
        state, rounding, local = finish(parallel, certificate, sizes, bounds)
    evidence = collect_evidence(parallel, certificate, bounds, rounding, local, request.refusal)
    while kinked and request.gradient_tol is not None and evidence.worst() > request.gradient_tol:
        parallel.sweep()
        truncation = parallel.truncation
        state, rounding, local = finish(parallel, certificate, sizes, bounds)
        evidence = collect_evidence(parallel, certificate, bounds, rounding, local, request.refusal)
    engine = "" if parallel.choice is None else parallel.choice.engine
    record = record_run(certificate, windows, parallel.sweeps, truncation, rounding, engine)
    return LayerResult(parallel.output(), state, record, evidence, parallel)


def can_fuse(run: Recurrence, requested: str) -> bool:
    """Say whether there is a kernel that runs all windows of a recurrence in place.

    Example:
        >>> from steadyrnn.cells.registry import CELLS
        >>> zero = torch.zeros(1, 1)
        >>> can_fuse(Recurrence(CELLS["rnn-tanh"], torch.ones(3, 1, 1), (zero,), zero, zero), "auto")  # on a CPU
        False
    """
    on_gpu = requested == "auto" and run.input.is_cuda and run.input.numel() > 0
    return on_gpu and refusal(run, is_kept(run.tensors)) is None


def run_sequentially(
    run: Recurrence, requested: str, certificate: LayerCertificate, sizes: Sizes, bounds: Bounds, refusal: str | None
) -> LayerResult:
    """Run one layer step by step, where that costs no more than windows."""
    choice = select(requested, run)
    output, state = ENGINES[choice.engine].run(run)
    rounding, _ = rounding_of(run, certificate, sizes, bounds, math.inf if bounds.flat else largest_norm(output))
    record = record_run(certificate, Windows(0, run.input.shape[0], 1), 0, 0.0, rounding, choice.engine)
    return LayerResult(output, state, record, Evidence(None, refusal))


def finish(parallel: "WindowRun", certificate: LayerCertificate, sizes: Sizes, bounds: Bounds) -> tuple[State, float, float]:
    """Return final states and the bounds on rounding, of the run and of a step, for windows as they are now."""
    if not bounds.flat and not math.isfinite(parallel.largest):
        raise NotFiniteError("`input` holds NaN or infinity, or drives states there; nothing can be proven of it.")
    rounding, local = rounding_of(parallel.recurrence, certificate, sizes, bounds, parallel.largest)
    return parallel.final(), rounding, local


def record_run(
    certificate: LayerCertificate, windows: Windows, sweeps: int, truncation: float, rounding: float, engine: str
) -> LayerRun:
    """Return the record of a run."""
    best, depth = certificate.best, windows.depth(sweeps)
    return LayerRun(certificate.name, best.rate, best.norm.name, *windows, sweeps, depth, truncation, rounding, engine)


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
    :func:`~steadyrnn.bounds.memory.swept_errors`, and before any sweep also the a-priori one; it holds up to the rounding
    of :func:`~steadyrnn.bounds.memory.rounding_error`: a computed step is an exact one plus at most :math:`\delta`, so with
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
        gates: Where one kernel is to run all windows, the recurrence's
            :func:`~steadyrnn.engines.cuda.loops.windows.input_part`, which that kernel's ``refusal`` must allow.
        linked: Whether another run's state is compared with one of its outputs, and bounds those behind it. Then the bound
            after a sweep is made of the mismatches of that pass alone.

    Example:
        >>> from steadyrnn.bounds.norms import TwoNorm
        >>> from steadyrnn.cells.registry import CELLS
        >>> w = torch.full((1, 1), 0.5)
        >>> line = Recurrence(CELLS["rnn-identity"], torch.ones(9, 1, 1), (torch.zeros(1, 1),), torch.ones(1, 1), w)
        >>> run = WindowRun(line, "auto", Windows(1, 4, 2), Contraction(0.5, TwoNorm(1), "spectral norm"), radius=2.0)
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
        linked: bool = False,
    ) -> None:
        windows.check(recurrence.input.shape[0])
        if recurrence.reverse:
            raise ArgumentError("a recurrence must run forwards in time to be run in windows.")
        self.recurrence, self.requested, self.windows = recurrence, requested, windows
        self.contraction, self.radius = contraction, radius
        self.lengths = lengths_of(recurrence)
        self.choice: Choice | None = None
        self.sweeps = 0
        self.remember, self.measure, self.meanwhile, self.linked = remember, measure, meanwhile, linked
        self.earlier: list[Pass] = []
        self.fused = None if gates is None else FusedWindows(recurrence, gates, windows, measure, is_kept(recurrence.tensors))
        if self.fused is not None:
            self.choice = Choice("cuda", "one kernel runs all windows in place")
        self.warm, start, first = self._run_first()
        self.largest = largest_norm(self.warm) if measure and self.fused is None else 0.0 if measure else math.inf
        self.latest = self._pass(start, None, first)

    @property
    def rows(self) -> int:
        """B."""
        return self.recurrence.input.shape[1]

    def warm_output(self) -> Tensor:
        """Return the outputs of every warm-up, shape (k, J * B, H); of one kernel, where gradients are wanted."""
        return self.warm if self.fused is None else torch.cat([self.warm, self.fused.trail], dim=1)

    def main_output(self, one: "Pass") -> Tensor:
        """Return the outputs of a pass, shape (C, J * B, H); what is behind the last time is padding."""
        return one.output if self.fused is None else self.windows.cut(one.output)

    def _remaining(self, first: int, most: int) -> Tensor | None:
        """Return how many of ``most`` steps from ``first`` on each window's rows run, (J * B,); None where all run."""
        if self.lengths is None:
            if len(self.recurrence.state) == 1:  # a padded h is cut off, a padded c would be returned
                return None
            ends = torch.full((self.rows,), self.recurrence.input.shape[0], device="cpu")
        else:
            ends = self.lengths
        starts = first + self.windows.chunk * torch.arange(self.windows.number, device="cpu")
        steps = (ends - starts.unsqueeze(1)).clamp(0, most).flatten()
        return None if bool((steps == most).all()) else steps

    def _run_warmups(self) -> tuple[Tensor, State]:
        """Return outputs (k, J * B, H) and states behind the warm-up, each (J * B, H)."""
        start = self._cold_states()
        if self.windows.warmup == 0:
            return start[0].new_empty(0, *start[0].shape), start
        return self._run(self.windows.cut_warmups(self.recurrence.input), start, self._remaining(0, self.windows.warmup))

    def _run_first(self) -> tuple[Tensor, State, tuple[Tensor, State] | None]:
        """Return the warm-up's outputs and end and, where one run gives both, the main part's.

        Where a cell has one state, that is its output, so that the main part need not wait for the warm-up to end.
        """
        (k, chunk, _), x = self.windows, self.recurrence.input
        if self.fused is not None:
            led, ended = self.fused.begin(*self._cold_states())
            return self.fused.output[:k], (led,), (self.fused.output, (ended,))
        if len(self.recurrence.state) > 1 or k == 0 or not self.windows.fill(x.shape[0]):
            return *self._run_warmups(), None
        output, end = self._run(self.windows.cut_first(x, k + chunk), self._cold_states(), self._remaining(0, k + chunk))
        warm, main = output.split([k, chunk])  # whose gradients are joined in one go; those of two slices would be added
        return warm, (warm[-1],), (main, end)

    def _cold_states(self) -> State:
        """Return the states windows start from: the true one, and zero."""
        more = (self.windows.number - 1) * self.rows
        return tuple(torch.cat([s, s.new_zeros(more, s.shape[1])]) for s in self.recurrence.state)

    def _pass(self, start: State, before: Tensor | None, done: tuple[Tensor, State] | None = None) -> Pass:
        """Return one pass from ``start``, run now unless it is ``done``; ``before`` are the errors of the pass before."""
        output, end = self._run_main(start) if done is None else done
        measured = AsyncResult(self._mismatch(start, end))
        self.joined = output
        if self.fused is None:  # while the numbers above are on their way
            main = output.unflatten(1, (self.windows.number, self.rows))
            self.joined = join_windows(self.warm[:, : self.rows], main, self.recurrence.input.shape[0])
        if self.meanwhile is not None:
            self.meanwhile = self.meanwhile()
        if self.measure:
            squares = None if self.fused is None else self.fused.largest_square()
            found = largest_norm(output) if squares is None else norm_of_square(squares, output.shape[2], torch.float32)
            self.largest = found if math.isnan(found) else max(self.largest, found)
        linked = self.linked and before is not None  # the pass before, of which nothing is left, may be off the other way
        before, radius = (None, math.inf) if linked else (before, self.radius)
        known = self.contraction.rate, self.windows, radius, self._running
        # not `self`, which would keep all its tensors until the errors are read
        return Pass(start, output, end, Deferred(lambda: start_errors(measured.value(), before, *known)))

    def _run_main(self, start: State) -> tuple[Tensor, State]:
        """Run every window behind its warm-up."""
        if self.fused is not None:
            end = self.fused.again(*start)
            return self.fused.output, (end,)
        data = self.windows.cut(self.recurrence.input)
        return self._run(data, start, self._remaining(self.windows.warmup, self.windows.chunk))

    def _run(self, data: Tensor, state: State, lengths: Tensor | None) -> tuple[Tensor, State]:
        """Run rows of any lengths in any order."""
        part = self.recurrence._replace(input=data, state=state, batch_sizes=None)
        if lengths is None:
            return self._run_engine(part)
        ordered, order = lengths.sort(descending=True, stable=True)
        ended = torch.bincount(ordered, minlength=data.shape[0] + 1).cumsum(0)[: data.shape[0]]
        part = part._replace(batch_sizes=len(ordered) - ended)
        if bool((lengths == ordered).all()):
            return self._run_engine(part)
        order = order.to(data.device)
        restore = order.argsort()
        state = tuple(s.index_select(0, order) for s in state)
        output, end = self._run_engine(part._replace(input=data.index_select(1, order), state=state))
        return output.index_select(1, restore), tuple(s.index_select(0, restore) for s in end)

    def _run_engine(self, part: Recurrence) -> tuple[Tensor, State]:
        """Run on the engine that is chosen for the shape."""
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
        self.latest = self._pass(start, last.errors)
        self.sweeps += 1

    def output(self) -> Tensor:
        """Return the outputs, shape (T, B, H)."""
        return self.joined

    def final(self) -> State:
        """Return each row's last state, each (B, H)."""
        output = self.joined
        (k, chunk, number), x = self.windows, self.recurrence.input
        ends = torch.full((self.rows,), x.shape[0], device="cpu") if self.lengths is None else self.lengths
        row = torch.arange(self.rows, device=x.device)
        if len(self.recurrence.state) == 1:
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


def _vector(state: State) -> Tensor:
    """Return a state as the norms take it: h, or (c, h) of an LSTM, in float64."""
    return torch.cat([s.detach().double() for s in reversed(state)], dim=-1)
