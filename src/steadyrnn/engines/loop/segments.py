"""Recomputation: keep the states at about sqrt(T) times only, and run each segment again for its adjoint."""

import math
from typing import Any

import torch
from torch import Tensor

from steadyrnn.cells.base import Cell

from .call import Call, Forward, Gradients, Kernel

__all__ = ["run_segments", "run_segments_back", "segment_count", "segments_like"]


def segment_count(steps: int) -> int:
    """Return how many segments a run of ``steps`` is cut into: the square root, rounded up.

    Example:
        >>> segment_count(10_000)
        100
    """
    return math.isqrt(max(steps - 1, 0)) + 1 if steps else 0


def cuts(call: Call) -> list[range]:
    """Return the times of each segment, in the order in which they are run."""
    steps = call.input.shape[0]
    length = -(-steps // segment_count(steps)) if steps else 1
    pieces = [range(start, min(start + length, steps)) for start in range(0, steps, length)]
    return pieces[::-1] if call.reverse else pieces


def piece(call: Call, times: range, state: list[Tensor]) -> Call:
    """Return the part of ``call`` at ``times``, started from ``state``."""
    sizes = None if call.sizes is None else call.sizes[times.start : times.stop]
    return call._replace(input=call.input[times.start : times.stop], state=state, sizes=sizes)


def run_segments(kernel: Kernel, call: Call, cell: Cell) -> Forward:
    """Run ``call`` piece by piece on a kernel; the stash holds the state before each, shape (segments, states, B, H)."""
    steps, batch = call.input.shape[:2]
    output = call.input.new_empty(steps, batch, call.state[0].shape[1])
    state, starts = [s.clone() for s in call.state], []
    for times in cuts(call):
        starts.append(torch.stack(state))
        done = kernel.forward(piece(call, times, state), cell, False, False)
        output[times.start : times.stop] = done.output
        state = done.state
    return Forward(output, state, torch.stack(starts) if starts else segments_like(call))


def segments_like(call: Call) -> Tensor:
    """Return an empty tensor of the shape of the stash of :func:`run_segments`."""
    steps: Any = call.input.shape[0]
    batch = call.input.shape[1]
    if isinstance(steps, torch.SymInt):  # a square root would tie the traced graph to one length
        count = torch.library.get_ctx().new_dynamic_size()
    else:
        length = -(-steps // segment_count(steps)) if steps else 1
        count = -(-steps // length)
    return call.input.new_empty(count, len(call.state), batch, call.state[0].shape[1])


def run_segments_back(
    kernel: Kernel, call: Call, cell: Cell, stash: Tensor, grad_output: Tensor | None, grad_state: list[Tensor | None],
    needs_input: bool,
) -> Gradients:  # fmt: skip
    """Run the backward of :func:`run_segments`, each segment forward again and then back."""
    total: Gradients | None = None
    grad_input = torch.zeros_like(call.input) if needs_input else None
    pieces = cuts(call)
    for times, start in zip(pieces[::-1], stash.flip(0), strict=True):
        segment = piece(call, times, list(start))
        done = kernel.forward(segment, cell, False, True)
        grads = None if grad_output is None else grad_output[times.start : times.stop]
        part = kernel.backward(segment, cell, False, done, grads, grad_state, needs_input)
        if grad_input is not None and part.input is not None:
            grad_input[times.start : times.stop] = part.input
        grad_state = list(part.state)
        total = part if total is None else added(total, part)
    if total is None:
        empty = Forward(call.input.new_empty(0, call.input.shape[1], call.state[0].shape[1]), [], stash)
        total = kernel.backward(call, cell, False, empty, None, grad_state, needs_input)
    return total._replace(input=grad_input)


def added(total: Gradients, part: Gradients) -> Gradients:
    """Return the sum of the weights' gradients, with the state's of the earlier part."""

    def plus(a: Tensor | None, b: Tensor | None) -> Tensor | None:
        return None if a is None or b is None else a.add_(b)

    recurrent = [a.add_(b) for a, b in zip(total.recurrent, part.recurrent, strict=True)]
    weight_ih, bias_ih = plus(total.weight_ih, part.weight_ih), plus(total.bias_ih, part.bias_ih)
    bias_hh, theta = plus(total.bias_hh, part.bias_hh), plus(total.theta, part.theta)
    return Gradients(None, part.state, weight_ih, recurrent, bias_ih, bias_hh, theta)
