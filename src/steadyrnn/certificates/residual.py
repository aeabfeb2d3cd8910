"""Residuals of all steps of a computed run at once, in float64."""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from steadyrnn.bounds.memory import summation_error
from steadyrnn.bounds.norms import ROUND_OFF, TINY, above
from steadyrnn.cells.base import State
from steadyrnn.engines.base import Recurrence, lengths_of, stack_gates
from steadyrnn.engines.reference import recurrent_product

__all__ = ["ExactStep", "StepResiduals", "in_double", "in_running_order", "linear_scan", "scan_rounding", "step_residuals"]

_BLOCK, _CUDA_BLOCK = 3 * 2**17, 2**27
"""Numbers at work at once, states, inputs and gates: on a CPU as many as stay in its cache."""
_WIDE = 1024
"""Entries from which on a step of a scan costs a CPU more than the call that starts it."""


class StepResiduals(NamedTuple):
    """Some steps of a run, one after another, and what each leaves over."""

    times: slice
    residual: Tensor  # the output h less the step's value of it, (H, L, B); overwritten when the next part is requested
    moved: Tensor | None  # how far h was moved into the box, in the 2-norm, (L, B)
    cell_residual: Tensor | float = 0.0  # what moving c into the box leaves over of it at most, in the 2-norm
    cell: Tensor | None = None  # of an LSTM, c behind these steps, (H, B)


def in_double(recurrence: Recurrence) -> Recurrence:
    """Return the same recurrence with its weights in float64, where its input is, which stays as it is.

    Example:
        >>> from steadyrnn.cells.registry import CELLS
        >>> run = Recurrence(CELLS["rnn-tanh"], torch.ones(3, 1, 1), (torch.zeros(1, 1),), torch.ones(1, 1), torch.eye(1))
        >>> in_double(run).weight_hh.dtype, in_double(run).input.dtype
        (torch.float64, torch.float32)
    """
    x = recurrence.input.detach()
    like = x[:0].double()
    others = (recurrence.bias_ih, recurrence.bias_hh, recurrence.theta)
    bias_ih, bias_hh, theta = (None if t is None else t.detach().to(like) for t in others)
    return recurrence._replace(
        input=x, state=tuple(s.detach().to(like) for s in recurrence.state), weight_ih=recurrence.weight_ih.detach().to(like),
        weight_hh=stack_gates(recurrence.weight_hh, torch.float64).detach().to(like),
        bias_ih=bias_ih, bias_hh=bias_hh, theta=theta,
    )  # fmt: skip


def in_running_order(sequence: Tensor, recurrence: Recurrence) -> Tensor:
    """Return a sequence (T, B, ...) in the order in which the recurrence meets its steps; twice, it is as it was.

    A row that runs backwards starts at its own last step. What lies behind its end stays where it is.

    Example:
        >>> from steadyrnn.cells.registry import CELLS
        >>> zero, sizes = torch.zeros(1, 1), torch.tensor([1, 1, 0])
        >>> run = Recurrence(CELLS["rnn-tanh"], torch.ones(3, 1, 1), (zero,), zero, zero, batch_sizes=sizes, reverse=True)
        >>> in_running_order(torch.tensor([[1.0], [2.0], [3.0]]), run).flatten()
        tensor([2., 1., 3.])
    """
    if not recurrence.reverse:
        return sequence
    lengths = lengths_of(recurrence)
    if lengths is None:
        return sequence.flip(0)
    time, ends = torch.arange(len(sequence), device=sequence.device).unsqueeze(1), lengths.to(sequence.device)
    there = torch.where(time < ends, ends - 1 - time, time)  # (T, B)
    rest = sequence.shape[2:]
    return sequence.gather(0, there.view(*there.shape, *(1 for _ in rest)).expand(-1, -1, *rest))


@torch.no_grad()
def step_residuals(
    step: "ExactStep", x: Tensor, state: State, output: Tensor, box: State | None = None
) -> Iterator[StepResiduals]:
    r"""Evaluate every step from the computed state before it, and yield what the computed state behind it has over.

    .. math:: \hat h_t - \Phi_h(\hat s_{t-1}, x_t)

    No step waits for another, so a block of time is one matrix product, of :math:`[W\ U]` with :math:`(h_{t-1}, x_t)`. The
    cell state of an LSTM is not among its outputs. It is computed from them,
    :math:`\hat c_t = f_t \circ \hat c_{t-1} + i_t \circ g_t`, elementwise and by :func:`linear_scan`, the gates being those
    of :math:`\hat h_{t-1}` and :math:`x_t`; then :math:`(\hat h_t, \hat c_t)` is a computed state like any other, with
    nothing left over in c but what the scan rounds (:func:`scan_rounding`). Rows that have ended are not told from others.
    A GPU is not waited for.

    Args:
        step: One step in float64.
        x: Inputs in the order in which the recurrence meets them (:func:`in_running_order`), any dtype, shape (T, B, D).
        state: Initial states in float64, each (B, H).
        output: :math:`\hat h_1, \dots, \hat h_T`, any dtype, shape (T, B, H).
        box: Bounds on the entries of h (and c), each (H,): states are moved into it first.
    """
    steps, rows, size = output.shape
    most = _CUDA_BLOCK if x.device.type == "cuda" else _BLOCK
    width = size * (1 + len(step.cell.gates)) + x.shape[2]
    length = min(steps, max(1, most // max(1, rows * width)))
    work = x.new_empty(length + 1, rows, size + x.shape[2], dtype=torch.float64)  # (h before, x) of each step
    work[0, :, :size] = state[0] if box is None else state[0].clamp(-box[0], box[0])
    memory, cell = step.memory(length * rows), state[-1].mT
    zero: Tensor | float = 0.0
    move = box is not None and not _lies_in(output, box[0])
    for first in range(0, steps, max(length, 1)):
        times = slice(first, min(first + length, steps))
        count = times.stop - first
        before, now = work[:count], work[1 : count + 1, :, :size]
        now.copy_(output[times])
        before[:, :, size:].copy_(x[times])
        moved, left = None, zero
        if move and box is not None:
            now.clamp_(-box[0], box[0])
            moved = torch.linalg.vector_norm(output[times] - now, dim=-1)
            moved.mul_(above(1.0, 64 + size)).add_(math.sqrt(size * TINY))  # it has as many roundings as terms
        behind = output[times] if moved is None else now  # the same numbers; those packed more densely are read faster
        if len(state) == 1:
            residual = step.residual(before, behind, memory)
        else:
            residual, cell, left = step.lstm_residual(before, behind, cell, box, memory)
        yield StepResiduals(times, residual, moved, left, cell if len(state) > 1 else None)
        if times.stop < steps:
            work[0, :, :size] = now[-1]


def _lies_in(output: Tensor, bound: Tensor) -> bool:
    """Say whether no output is outside a box; a GPU is not waited for, and may say no."""
    if output.device.type == "cuda" or not output.numel():
        return False
    return bool((output.amax((0, 1)).maximum(-output.amin((0, 1))) <= bound).all())


class ExactStep:
    """One step of a recurrence in float64, for many rows at once: gates are (G * H, rows), which multiplies fastest.

    Args:
        recurrence: Whose weights are taken, in float64 (:func:`in_double`).

    Example:
        >>> from steadyrnn.cells.registry import CELLS
        >>> run = Recurrence(CELLS["rnn-tanh"], torch.ones(3, 1, 1), (torch.zeros(1, 1),), torch.ones(1, 1), torch.eye(1))
        >>> step = ExactStep(in_double(run))
        >>> [part.residual.flatten() for part in step_residuals(step, torch.zeros(2, 1, 1), run.state, torch.zeros(2, 1, 1))]
        [tensor([0., 0.], dtype=torch.float64)]
    """

    def __init__(self, recurrence: Recurrence) -> None:
        run, self.cell = recurrence, recurrence.cell
        self.theta, self.size = run.theta, run.state[0].shape[-1]
        self.recur: Callable[..., Tensor] | None = None
        record = self.cell.record
        self.activation = record.activation
        self.squashed = record.theorem == "lstm" or (self.activation is not None and self.activation.kernel == "tanh")
        if record.theorem == "gru":  # which does not add up all its parts before an activation
            self.weight, self.bias = run.weight_ih, run.bias_ih
            self.recur = recurrent_product(run._replace(input=run.input[:0].double()))
            return
        self.weight = torch.cat([stack_gates(run.weight_hh, torch.float64), run.weight_ih], dim=1)  # (G * H, H + D)
        biases = [bias for bias in (run.bias_ih, run.bias_hh) if bias is not None]
        self.bias = torch.stack(biases).sum(0).unsqueeze(1) if biases else None
        if self.squashed:  # tanh a = 2 sigma(2a) - 1, so that one sigmoid does for all: on a CPU a quarter of tanh's time
            gate = record.gate_rows("g", self.size) if record.theorem == "lstm" else slice(None)
            self.weight[gate] *= 2
            if self.bias is not None:
                self.bias[gate] *= 2

    def memory(self, rows: int) -> Tensor:
        """Return memory for the gates of so many rows: fresh memory for each block costs more than what is done with it."""
        return self.weight.new_empty(0 if self.recur else len(self.weight) * rows)

    def sums(self, before: Tensor, memory: Tensor) -> Tensor:
        """Return every pre-activation, (G * H, L, B), in ``memory``."""
        rows = before.flatten(0, 1)
        gates = memory[: len(self.weight) * len(rows)].view(len(self.weight), len(rows))
        if self.bias is None:
            torch.mm(self.weight, rows.mT, out=gates)
        else:
            torch.addmm(self.bias, self.weight, rows.mT, out=gates)
        return gates.view(len(self.weight), *before.shape[:2])

    def residual(self, before: Tensor, behind: Tensor, memory: Tensor) -> Tensor:
        """Return what outputs have over their steps, (H, L, B), for a cell with one state."""
        if self.recur is not None:
            rows = before[..., self.size :].flatten(0, 1)
            gates_x = torch.nn.functional.linear(rows, self.weight, self.bias).unflatten(0, before.shape[:2])
            value = self.cell.step(gates_x, (before[..., : self.size],), self.recur, self.theta)[0]
            return torch.sub(behind, value, out=value).permute(2, 0, 1)
        sums, behind = self.sums(before, memory), behind.permute(2, 0, 1)
        if self.squashed or self.activation is None:
            return torch.sub(behind, sums.sigmoid_(), alpha=2, out=sums).add_(1)
        return behind - self.activation.value(sums.permute(1, 2, 0), self.theta).permute(2, 0, 1)

    def lstm_residual(
        self, before: Tensor, behind: Tensor, cell: Tensor, box: State | None, memory: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | float]:
        """Return what outputs have over their steps, (H, L, B), the last cell state, (H, B), and what its box leaves over."""
        enter, forget, candidate, out = self.sums(before, memory).sigmoid_().unflatten(0, (4, self.size))
        halves = candidate.sub_(0.5).mul_(enter)  # c / 2, as tanh g / 2 is what has been computed
        linear_scan(forget.transpose(0, 1), halves.transpose(0, 1), cell / 2)
        left = 0.0 if box is None else _move_cells(halves, box[1] / 2)
        last = halves[:, -1] * 2
        value = torch.mul(halves, 4, out=enter).sigmoid_().sub_(0.5).mul_(out)  # o tanh(c) / 2
        return torch.sub(behind.permute(2, 0, 1), value, alpha=2, out=value), last, left


def _move_cells(halves: Tensor, edge: Tensor) -> Tensor | float:
    """Move c / 2, (H, L, B), into its box; return a bound on what that leaves over of c, both ends of a step together."""
    if not halves.numel() or _lies_in(halves.permute(1, 2, 0), edge):
        return 0.0
    given, edge = halves.clone(), edge.view(-1, 1, 1)
    halves.clamp_(-edge, edge)
    most: Tensor = given.sub_(halves).abs_().max()
    return most * above(4 * math.sqrt(len(halves)))


def linear_scan(factor: Tensor, term: Tensor, start: Tensor) -> Tensor:
    r"""Overwrite u by :math:`c_t = f_t \circ c_{t-1} + u_t` for all t, and return it; f is overwritten, too.

    A CPU takes one step after another where one is wide. Otherwise time is cut into pieces of :math:`\sqrt T` steps, all of
    them run at once from zero; then each gets what enters it, in about :math:`2 \sqrt T` steps. For factors in [0, 1] no
    product grows. See :func:`scan_rounding` for what is rounded.

    Args:
        factor: f, shape (T, ...).
        term: u, likewise.
        start: :math:`c_0`, shape (...).

    Example:
        >>> linear_scan(torch.full((3, 1), 0.5), torch.ones(3, 1), torch.zeros(1)).flatten()
        tensor([1.0000, 1.5000, 1.7500])
    """
    steps = len(factor)
    wide = start.numel() >= _WIDE and start.device.type == "cpu"
    length = steps if wide else math.isqrt(steps)
    number = 0 if wide else steps // max(length, 1)
    cut, last = number * length, start
    if number > 1:
        pieces, reach = term[:cut].unflatten(0, (number, length)), factor[:cut].unflatten(0, (number, length))
        values, reaches = pieces.unbind(1), reach.unbind(1)
        for t in range(1, length):
            values[t].addcmul_(reaches[t], values[t - 1])
            reaches[t].mul_(reaches[t - 1])
        enters = [start]
        for end, factors in zip(values[-1].unbind(0), reaches[-1].unbind(0), strict=True):
            enters.append(torch.addcmul(end, factors, enters[-1]))
        last = enters.pop()
        pieces.addcmul_(reach, torch.stack(enters).unsqueeze(1))
    else:
        cut = 0
    for f, u in zip(factor[cut:].unbind(0), term[cut:].unbind(0), strict=True):
        last = u.addcmul_(f, last)
    return term


def scan_rounding() -> float:
    r"""Return how far :math:`c_t - f_t \circ c_{t-1} - u_t` is from zero after :func:`linear_scan`, relative to its terms.

    Inside a piece two neighbours share what entered it, so whatever that was rounded by, fewer than 16 roundings tell one from
    what follows of the other. What enters the next piece is the last value of this one, computed in another way, and so
    within 4 more. The sum of the terms' absolute values is at most the bound on c that they obey.

    Example:
        >>> scan_rounding() < 1e-14
        True
    """
    return summation_error(64, ROUND_OFF)
