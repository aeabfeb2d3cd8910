"""What every step of a computed run leaves over, all of time at once, in float64."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from steadyrnn.cells.base import Recur, State

from .base import Recurrence
from .parallel import lengths_of
from .reference import recurrent_product
from .weights import stacked

__all__ = ["Leftover", "in_double", "leftovers", "linear_scan", "turned"]

_BLOCK, _CUDA_BLOCK = 2**18, 2**26
"""Gates evaluated at once: on a CPU as many as stay in its cache."""


class Leftover(NamedTuple):
    """Some steps of a run, one after another: what each leaves over, and what it was taken from."""

    times: slice
    residual: Tensor  # state behind each step less the step's value, as norms take it: h, or (c, h); (L, B, N)
    before: Tensor  # 2-norm of h before each step, (L, B)
    behind: Tensor  # and behind it
    moved: Tensor | None  # how far h was moved into the box, in the 2-norm


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
    r"""Evaluate every step from the computed state before it, and yield what the computed state behind it has over.

    .. math:: \hat s_t - \Phi(\hat s_{t-1}, x_t)

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
    recur, states = recurrent_product(recurrence._replace(input=x[:0].double())), len(state)
    most = _CUDA_BLOCK if x.device.type == "cuda" else _BLOCK
    length = max(1, most // max(1, rows * size * len(recurrence.cell.gates)))
    last, cell = _inside(state[0], box, 0), state[-1]
    for first in range(0, steps, length):
        times = slice(first, min(first + length, steps))
        given = output[times].double()
        now = _inside(given, box, 0)
        before = torch.cat([last.unsqueeze(0), now[:-1]])
        gates_x = torch.nn.functional.linear(x[times].double(), recurrence.weight_ih, recurrence.bias_ih)
        if states == 1:
            (value,) = recurrence.cell.step(gates_x, (before,), recur, recurrence.theta)
            residual = now - value
        else:
            residual, cell = _lstm(gates_x, before, now, cell, recur, box)
        last = now[-1]
        moved = None if box is None else torch.linalg.vector_norm(given - now, dim=-1)
        norms = [torch.linalg.vector_norm(h, dim=-1) for h in (before, now)]
        yield Leftover(times, residual, norms[0], norms[1], moved)


def _inside(values: Tensor, box: State | None, place: int) -> Tensor:
    """Return values moved into a box."""
    return values if box is None else values.clamp(-box[place], box[place])


def _lstm(gates_x: Tensor, before: Tensor, now: Tensor, cell: Tensor, recur: Recur, box: State | None) -> tuple[Tensor, Tensor]:
    """Return what steps leave over of (c, h), (L, B, 2H), and the last cell state."""
    i, f, g, o = gates_x.add_(recur(before, "ifgo")).chunk(4, dim=-1)
    forget, enters = f.sigmoid(), i.sigmoid() * g.tanh()
    cells = _inside(linear_scan(forget, enters, cell), box, 1)
    value = torch.addcmul(enters, forget, torch.cat([cell.unsqueeze(0), cells[:-1]]))
    hidden = o.sigmoid() * value.tanh()
    return torch.cat([cells - value, now - hidden], dim=-1), cells[-1]


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
