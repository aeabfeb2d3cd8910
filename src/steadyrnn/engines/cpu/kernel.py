"""The CPU kernel: a family's loop over the whole call, or segment by segment."""

import torch
from torch import Tensor

from steadyrnn.cells.base import Cell
from steadyrnn.checks import without_autocast

from ..loop.call import Call, Forward, Gradients, Kernel
from ..loop.memory import flushed_denormals
from ..loop.segments import run_segments, run_segments_back, segments_like
from .families import family_of
from .onednn import onednn_takes

__all__ = ["CPUKernel"]


class CPUKernel(Kernel):
    """Runs calls on the CPU, denormal numbers flushed."""

    def forward(self, call: Call, cell: Cell, recompute: bool, keep: bool) -> Forward:
        """Run the loop."""
        with flushed_denormals(), without_autocast(call.input.device):
            if recompute:
                return run_segments(call, cell)
            return family_of(call, cell, whole=True).forward(keep)

    def backward(
        self, call: Call, cell: Cell, recompute: bool, done: Forward, grad_output: Tensor | None,
        grad_state: list[Tensor | None], needs_input: bool,
    ) -> Gradients:  # fmt: skip
        """Run the adjoint."""
        with flushed_denormals(), without_autocast(call.input.device):
            if recompute:
                return run_segments_back(call, cell, done.stash, grad_output, grad_state, needs_input)
            return family_of(call, cell, whole=True).backward(done, grad_output, grad_state, needs_input)

    def stash_like(self, call: Call, cell: Cell, recompute: bool) -> Tensor:
        """Return a tensor shaped as the stash; only torch's own layer knows the size of its workspace."""
        if recompute:
            return segments_like(call)
        if cell.key == "lstm" and onednn_takes(call):
            return call.input.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.uint8)
        return family_of(call, cell, whole=True).stash_like()
