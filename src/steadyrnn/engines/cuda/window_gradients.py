"""Gradients through windows of time in one kernel: its adjoint, and the products beside it."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import pad

from steadyrnn.checks import without_autocast

from ..base import Recurrence
from ..loop.double_backward import gradients_of
from ..loop.ops import wants_graph
from ..reference import ReferenceEngine
from .window_loop import Way, run_adjoint, run_windows

__all__ = ["Windowed", "plain_windows"]


class Windowed(Function):
    """Windows for autograd: from input parts (T, B, H), weight (H, H) and states before windows (J * B, H)."""

    @staticmethod
    def forward(ctx: Any, gates: Tensor, weight: Tensor, begin: Tensor, way: Way, measure: bool) -> tuple[Tensor, ...]:
        """Return what :func:`run_windows` does; outputs and ends are differentiable."""
        passed = run_windows(gates, weight, begin, way, keep=True, measure=measure)
        led = passed.led.clone() if passed.led is begin else passed.led  # an argument cannot be a result
        ctx.way = way
        ctx.save_for_backward(gates, weight, begin, passed.output, passed.trail)
        ctx.mark_non_differentiable(led, passed.trail, passed.squares)
        ctx.set_materialize_grads(False)
        return passed.output, passed.end, led, passed.trail, passed.squares

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_end: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        """Return gradients of input parts, weight and first states."""
        gates, weight, begin, output, trail = ctx.saved_tensors
        if grad is None and grad_end is None:
            return None, None, None, None, None
        if wants_graph((grad, grad_end)):
            way, tensors, arrived = ctx.way, (gates, weight, begin), (grad, grad_end)
            found = gradients_of(
                lambda g, w, b: plain_windows(g, w, b, way), tensors, ctx.needs_input_grad[:3], arrived, gates.device
            )
            return *found, None, None
        whole, ends = (None if g is None else g.contiguous() for g in (grad, grad_end))
        with without_autocast(gates.device):
            back = run_adjoint(whole, ends, weight, output, trail, ctx.way)
            d_weight = weight_gradient(back.sequence, back.trail, output, trail, begin, ctx.way)
            return spread(back.sequence, back.trail, ctx.way), d_weight, back.begin, None, None


def weight_gradient(adjoint: Tensor, back: Tensor, output: Tensor, trail: Tensor, begin: Tensor, way: Way) -> Tensor:
    """Return the sum of adjoints times the states they came from, over all steps.

    Args:
        adjoint: Of pre-activations, (T, B, H).
        back: Of those in leads.
        output: States, (T, B, H).
        trail: Those in leads.
        begin: Those before windows, (J * B, H).
        way: Which windows.
    """
    (_, chunk, number), rows = way.windows, output.shape[1]
    total = adjoint[way.first + 1 :].flatten(0, 1).t() @ output[way.first : -1].flatten(0, 1)
    # where a window comes out of its lead, the state before is its own, and not what lies there in the sequence
    out_of = slice(way.first + way.lead + chunk, way.first + way.lead + (number - 1) * chunk + 1, chunk)
    came = begin[rows:] if way.lead == 0 else trail[-1]
    there = output[out_of.start - 1 : out_of.stop - 1 : chunk].flatten(0, 1)
    late, early = [adjoint[way.first], adjoint[out_of].flatten(0, 1)], [begin[:rows], came - there]
    if way.lead:
        total.addmm_(back[1:].flatten(0, 1).t(), trail[:-1].flatten(0, 1))
        late, early = [*late, back[0]], [*early, begin[rows:]]
    return total.addmm_(torch.cat(late).t(), torch.cat(early))


def spread(adjoint: Tensor, back: Tensor, way: Way) -> Tensor:
    """Add adjoints of leads to those at the same times, zero before the first window, and return all, (T, B, H)."""
    (_, chunk, number), (_, rows, size) = way.windows, adjoint.shape
    adjoint[: way.first].zero_()
    for first in range(0, way.lead, chunk):  # so many that none of them are at the same time
        part = back[first : first + chunk].unflatten(1, (number - 1, rows))
        place = (way.first + chunk + first) * rows * size
        adjoint.as_strided(part.shape, (rows * size, chunk * rows * size, size, 1), adjoint.storage_offset() + place).add_(part)
    return adjoint


def plain_windows(gates: Tensor, weight: Tensor, begin: Tensor, way: Way) -> tuple[Tensor, Tensor]:
    """Return outputs (T, B, H), zero before the first window, and ends (J * B, H), by plain operations of the reference."""
    (_, chunk, number), (steps, rows, size) = way.windows, gates.shape
    total, start = way.lead + chunk, way.first + (number - 1) * chunk  # of the last window
    padded = pad(gates[way.first :], (0, 0, 0, 0, 0, start + total - steps))
    data = padded.unfold(0, total, chunk).permute(3, 0, 1, 2).flatten(1, 2)
    one = torch.eye(size, dtype=gates.dtype, device=gates.device)
    found, _ = ReferenceEngine().run(Recurrence(way.cell, data, (begin,), one, weight))
    ends = torch.cat([found[-1, :-rows], found[steps - start - 1, -rows:]])
    main = found[way.lead :].unflatten(1, (number, rows)).transpose(0, 1).flatten(0, 1)
    head = [gates.new_zeros(way.first, rows, size), found[: way.lead, :rows]]
    return torch.cat([*head, main])[:steps], ends
