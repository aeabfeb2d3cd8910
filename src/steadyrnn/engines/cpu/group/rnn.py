"""The Elman loop of a group."""

from typing import cast

import torch
from torch import Tensor

from steadyrnn.activations import Activation
from steadyrnn.cells.base import Cell

from ...loop.call import Call, Forward, Gradients
from ...loop.family import Steps, sum_biases
from .loop import GroupLoop, Sums

__all__ = ["RNNGroup"]


class RNNGroup(GroupLoop):
    """The loop of :class:`~steadyrnn.engines.cpu.rnn.RNNFamily` for R networks; the stash holds pre-activations, or nothing."""

    def __init__(self, call: Call, cell: Cell) -> None:
        super().__init__(call, cell)
        self.activation = cast(Activation, cell.record.activation)

    def forward(self, keep: bool) -> Forward:
        """Run the loop: a batched product, an activation, a copy to the states."""
        call, act, transposed = self.call, self.activation, self.call.recurrent[0].mT
        output = self.new_states(self.steps)
        stash = self.new_states(self.steps if keep and not act.from_output else 0)
        outputs, inner = Steps(output), Steps(stash)
        h, work = call.state[0], self.scratch("work", self.members, self.rows, self.hidden)
        for time, gate in enumerate(self.projections(call.weight_ih, sum_biases(call))):
            torch.baddbmm(gate, h, transposed, out=work)
            if len(stash):
                inner[time].copy_(work)
            h = outputs[time].copy_(act.value_(work))
        return Forward(output, [h.clone(memory_format=torch.contiguous_format)], stash)

    def backward(
        self, done: Forward, grad_output: Tensor | None, grad_state: list[Tensor | None], needs_input: bool
    ) -> Gradients:
        """Run the adjoint: two operations per step."""
        call, act, weight = self.call, self.activation, self.call.recurrent[0]
        saved = Steps(done.output if act.from_output else done.stash)
        grads = None if grad_output is None else Steps(grad_output)
        carry, sums = self.carry(grad_state[0], call.state[0]), Sums(self, done.output, 1, needs_input, call.weight_ih)
        self.arrive(carry, grads, self.steps - 1)
        for times in reversed(self.blocks()):
            memory, views = self.adjoint_memory(times, 1)
            for time in reversed(times):
                here = views[time - times.start].squeeze(2)
                act.pullback(carry, saved[time], None, here)
                if grads is None or time == 0:
                    torch.bmm(here, weight, out=carry)
                else:
                    torch.baddbmm(grads[time - 1], here, weight, out=carry)
            sums.add(times, memory)
        return sums.gradients([carry])
