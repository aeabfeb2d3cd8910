"""What every step of a computed run leaves over, all of time at once, in float64."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from steadyrnn.activations import Tanh
from steadyrnn.cells.base import State
from steadyrnn.cells.rnn import RNNStep

from .base import Recurrence
from .parallel import lengths_of
from .reference import recurrent_product
from .weights import stacked

__all__ = ["Leftover", "in_double", "leftovers", "linear_scan", "turned"]

_BLOCK, _CUDA_BLOCK = 2**18, 2**26
"""Gates evaluated at once: on a CPU as many as stay in its cache."""


class Leftover(NamedTuple):
    """Some steps of a run, one after another, and what each leaves over."""

    times: slice
    residual: Tensor  # the step's value less the state behind it, as norms take it: h, or (c, h); (L, B, N)
    moved: Tensor | None  # how far h was moved into the box, in the 2-norm, (L, B)


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
        weight_hh=stacked(recurrence.weight_hh, torch.float64).detach().to(like), bias_ih=bias_ih, bias_hh=bias_hh, theta=theta,
    )  # fmt: skip


def turned(sequence: Tensor, recurrence: Recurrence) -> Tensor:
    """Return a sequence (T, B, ...) in the order in which the recurrence meets its steps; twice, it is as it was.

    A row that runs backwards starts at its own last step. What lies behind its end stays where it is.

    Example:
        >>> from steadyrnn.cells.registry import CELLS
        >>> zero, sizes = torch.zeros(1, 1), torch.tensor([1, 1, 0])
        >>> run = Recurrence(CELLS["rnn-tanh"], torch.ones(3, 1, 1), (zero,), zero, zero, batch_sizes=sizes, reverse=True)
        >>> turned(torch.tensor([[1.0], [2.0], [3.0]]), run).flatten()
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
def leftovers(recurrence: Recurrence, output: Tensor, box: State | None = None) -> Iterator[Leftover]:
    r"""Evaluate every step from the computed state before it, and yield what it has over the computed state behind it.

    .. math:: \Phi(\hat s_{t-1}, x_t) - \hat s_t

    No step waits for another, so a block of time is one matrix product. The cell state of an LSTM is not among its outputs.
    It is computed from them, :math:`\hat c_t = f_t \circ \hat c_{t-1} + i_t \circ g_t`, elementwise and by
    :func:`linear_scan`, the gates being those of :math:`\hat h_{t-1}` and :math:`x_t`; then :math:`(\hat h_t, \hat c_t)` is a
    computed state like any other, and what the scan rounds is left over with the rest. Rows that have ended are not
    told from others.

    Args:
        recurrence: In float64 (:func:`in_double`), forwards in time; its input may have fewer digits.
        output: :math:`\hat h_1, \dots, \hat h_T`, any dtype, shape (T, B, H).
        box: Bounds on the entries of h (and c), each (H,): states are moved into it first.
    """
    x, state = recurrence.input, recurrence.state
    steps, rows, size = output.shape
    most = _CUDA_BLOCK if x.device.type == "cuda" else _BLOCK
    length = max(1, most // max(1, rows * size * len(recurrence.cell.gates)))
    states = x.new_empty(min(length, steps) + 1, rows, size, dtype=torch.float64)
    states[0] = _inside(state[0], box, 0)
    step, cell = _Step(recurrence), state[-1]
    for first in range(0, steps, length):
        times = slice(first, min(first + length, steps))
        before, now = states[: times.stop - first], states[1 : times.stop - first + 1]
        now.copy_(output[times])
        moved = None
        if box is not None:
            now.clamp_(-box[0], box[0])
            moved = torch.linalg.vector_norm(output[times] - now, dim=-1)
        if len(state) == 1:
            residual = step.value(x[times], before).sub_(now)
        else:
            residual, cell = step.lstm(x[times], before, now, cell, box)
        yield Leftover(times, residual, moved)
        states[0] = now[-1]


def _inside(values: Tensor, box: State | None, place: int) -> Tensor:
    """Return values moved into a box."""
    return values if box is None else values.clamp(-box[place], box[place])


class _Step:
    """One step of a recurrence in float64, for many rows at once."""

    def __init__(self, recurrence: Recurrence) -> None:
        self.recurrence = recurrence
        self.recur = recurrent_product(recurrence._replace(input=recurrence.input[:0].double()))
        self.weight_ih, self.weight_hh = recurrence.weight_ih.mT, stacked(recurrence.weight_hh, torch.float64).mT
        self.bias = recurrence.bias_ih
        if recurrence.bias_hh is not None:
            self.bias = recurrence.bias_hh if self.bias is None else self.bias + recurrence.bias_hh

    def gates(self, x: Tensor, before: Tensor) -> Tensor:
        """Return every pre-activation, (L, B, G * H), of a cell that adds up all its parts."""
        rows = x.double().flatten(0, 1)
        sums = rows @ self.weight_ih if self.bias is None else torch.addmm(self.bias, rows, self.weight_ih)
        gates: Tensor = sums.addmm_(before.flatten(0, 1), self.weight_hh).unflatten(0, before.shape[:2])
        return gates

    def value(self, x: Tensor, before: Tensor) -> Tensor:
        """Return the state behind each step of a cell with one, (L, B, H)."""
        run, cell = self.recurrence, self.recurrence.cell
        if isinstance(cell, RNNStep):
            sums = self.gates(x, before)
            return _tanh_(sums) if isinstance(cell.activation, Tanh) else cell.activation.value(sums, run.theta)
        gates_x = torch.nn.functional.linear(x.double(), run.weight_ih, run.bias_ih)
        return cell.step(gates_x, (before,), self.recur, run.theta)[0]

    def lstm(self, x: Tensor, before: Tensor, now: Tensor, cell: Tensor, box: State | None) -> tuple[Tensor, Tensor]:
        """Return what steps leave over of (c, h), (L, B, 2H), and the last cell state."""
        gates = self.gates(x, before)  # tanh g = 2 sigma(2g) - 1, so that one sigmoid does for all
        gates.unflatten(-1, (4, -1))[:, :, 2].mul_(2)
        enter, forget, candidate, out = gates.sigmoid_().chunk(4, dim=-1)
        enters = torch.sub(candidate, 0.5).mul_(enter).mul_(2)
        cells = linear_scan(forget, enters, cell)
        if box is not None:
            cells.clamp_(-box[1], box[1])
        both = x.new_empty(*now.shape[:2], 2 * now.shape[2], dtype=torch.float64)
        value, hidden = both.chunk(2, dim=-1)
        value[:1] = torch.addcmul(enters[:1], forget[:1], cell)
        torch.addcmul(enters[1:], forget[1:], cells[:-1], out=value[1:])
        torch.mul(_tanh_(value.clone(memory_format=torch.contiguous_format)), out, out=hidden).sub_(now)
        value.sub_(cells)
        return both, cells[-1]


def _tanh_(x: Tensor) -> Tensor:
    """Overwrite x by tanh x = 2 sigma(2x) - 1: on a CPU a quarter of the time, and off by a few units of rounding of 1."""
    return x.mul_(2).sigmoid_().mul_(2).sub_(1)


def linear_scan(factor: Tensor, term: Tensor, start: Tensor) -> Tensor:
    r"""Return :math:`c_t = f_t \circ c_{t-1} + u_t` for all t, in about :math:`2 \sqrt T` steps one after another.

    Time is cut into pieces of :math:`\sqrt T` steps, all of them run at once from zero; then each gets what enters it. For
    factors in [0, 1] no product grows.

    Args:
        factor: f, shape (T, ...).
        term: u, likewise.
        start: :math:`c_0`, shape (...).

    Example:
        >>> linear_scan(torch.full((3, 1), 0.5), torch.ones(3, 1), torch.zeros(1)).flatten()
        tensor([1.0000, 1.5000, 1.7500])
    """
    steps = len(factor)
    length = math.isqrt(max(steps - 1, 0)) + 1
    number = -(-steps // length)
    shape = (number * length, *factor.shape[1:])
    pieces, reach = factor.new_zeros(shape), factor.new_zeros(shape)
    pieces[:steps], reach[:steps] = term, factor
    pieces, reach = pieces.unflatten(0, (number, length)), reach.unflatten(0, (number, length))
    for t in range(1, length):
        pieces[:, t].addcmul_(reach[:, t], pieces[:, t - 1])
        reach[:, t].mul_(reach[:, t - 1])
    enters = [start]
    for piece in range(number - 1):
        enters.append(torch.addcmul(pieces[piece, -1], reach[piece, -1], enters[-1]))
    whole: Tensor = pieces.addcmul_(reach, torch.stack(enters).unsqueeze(1)).flatten(0, 1)[:steps]
    return whole
