"""Recomputation on a GPU: the pieces of the CPU engine's, each a run of its own."""

import torch
from torch import Tensor

from steadyrnn.cells.base import Cell

from ..loop.call import Call, Forward, Gradients, Kernel
from ..loop.segments import added, cuts, piece, segments_like

__all__ = ["run_pieces", "run_pieces_back"]


def run_pieces(kernel: Kernel, call: Call, cell: Cell) -> Forward:
    """Run a call of at least one step piece by piece; the stash holds the state before each."""
    stash, state, outputs = segments_like(call), [s.clone() for s in call.state], []
    for place, times in enumerate(cuts(call)):
        stash[place] = torch.stack(state)
        done = kernel.forward(piece(call, times, state), cell, False, keep=False)
        outputs.append(done.output)
        state = done.state
    return Forward(torch.cat(outputs[::-1] if call.reverse else outputs), state, stash)


def run_pieces_back(
    kernel: Kernel, call: Call, cell: Cell, stash: Tensor, grad_output: Tensor | None, grad_state: list[Tensor | None],
    needs_input: bool,
) -> Gradients:  # fmt: skip
    """Run the adjoint of :func:`run_pieces`, each piece forward again and then back."""
    pieces, grads_x, total = cuts(call), [], None
    for times, start in zip(pieces[::-1], stash.flip(0), strict=True):
        part_call = piece(call, times, list(start))
        done = kernel.forward(part_call, cell, False, keep=True)
        grads = None if grad_output is None else grad_output[times.start : times.stop]
        part = kernel.backward(part_call, cell, False, done, grads, grad_state, needs_input)
        grads_x.append(part.input)
        grad_state = list(part.state)
        total = part if total is None else added(total, part)
    found = [grad for grad in (grads_x if call.reverse else grads_x[::-1]) if grad is not None]
    return total._replace(input=torch.cat(found) if needs_input else None)  # type: ignore[union-attr]
