"""The LSTM loop of a group."""

import torch
from torch import Tensor

from ...loop.call import Forward, Gradients
from ...loop.family import Steps, sum_biases
from .loop import GroupLoop, Sums

__all__ = ["LSTMGroup"]

_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
_tanh_backward = torch.ops.aten.tanh_backward.grad_input
_GATE_BLOCKS = 6


class LSTMGroup(GroupLoop):
    r"""The loop of :class:`~steadyrnn.cells.lstm.LSTMStep` for R networks.

    The product of a step has the four gates of a row side by side, 14 numbers each. That is too short for vector
    instructions, so the gates are copied into blocks of R * B * H numbers. The stash holds the blocks
    :math:`i, f, g, o, c, \tanh c` of every time, (T, 6, R, B, H).
    """

    def forward(self, keep: bool) -> Forward:
        """Run the loop."""
        call, transposed, shape = self.call, self.call.recurrent[0].mT, (self.members, self.rows, self.hidden)
        output = self.new_states(self.steps)
        stash = call.input.new_empty(self.steps if keep else 0, _GATE_BLOCKS, *shape)
        memory = stash if keep else self.scratch("gate_blocks", 1, _GATE_BLOCKS, *shape)
        work = self.scratch("work", self.members, self.rows, 4 * self.hidden)
        apart = work.view(self.members, self.rows, 4, self.hidden).permute(2, 0, 1, 3)
        outputs, all_four, all_two = Steps(output), Steps(memory[:, :4]), Steps(memory[:, :2])
        gate_blocks = [Steps(block) for block in memory.unbind(1)]
        h, c = call.state
        for time, gate in enumerate(self.projections(call.weight_ih, sum_biases(call))):
            place = time if keep else 0
            torch.baddbmm(gate, h, transposed, out=work)
            all_four[place].copy_(apart)
            all_two[place].sigmoid_()
            i, f, g, o, new_c, squashed = (block[place] for block in gate_blocks)
            c = torch.mul(f, c, out=new_c).addcmul_(i, g.tanh_())
            h = torch.mul(torch.tanh(c, out=squashed), o.sigmoid_(), out=outputs[time])
        return Forward(output, [state.clone(memory_format=torch.contiguous_format) for state in (h, c)], stash)

    def backward(
        self, done: Forward, grad_output: Tensor | None, grad_state: list[Tensor | None], needs_input: bool
    ) -> Gradients:
        r"""Run the adjoint.

        What multiplies the gradients of h and c in each gate's adjoint does not depend on them: it is computed for a block
        of times at once. A step is then :math:`\bar c \mathrel{+}= \bar h \circ k`, two products with such factors, and one
        with the weight.
        """
        call, weight, shape = self.call, self.call.recurrent[0], (self.members, self.rows, self.hidden)
        grads = None if grad_output is None else Steps(grad_output)
        dh, dc = (self.carry(grad, state) for grad, state in zip(grad_state, call.state, strict=True))
        sums = Sums(self, done.output, 4, needs_input, call.weight_ih)
        gate_blocks = self.scratch("gate_blocks", 4, *shape)
        of_c, of_h, together = gate_blocks[:3], gate_blocks[3], gate_blocks.permute(1, 2, 0, 3)
        self.arrive(dh, grads, self.steps - 1)
        for times in reversed(self.blocks()):
            factors = self.factors(times, done.stash)
            memory, views = self.adjoint_memory(times, 4)
            forget = done.stash[times.start : times.stop, 1].unbind(0)
            by_c, by_h, into_c = (part.unbind(0) for part in (factors[:, :3], factors[:, 3], factors[:, 4]))
            for time in reversed(times):
                place = time - times.start
                torch.mul(dc.addcmul_(dh, into_c[place]), by_c[place], out=of_c)
                torch.mul(dh, by_h[place], out=of_h)
                here = views[place].copy_(together).flatten(2)
                dc.mul_(forget[place])
                if grads is None or time == 0:
                    torch.bmm(here, weight, out=dh)
                else:
                    torch.baddbmm(grads[time - 1], here, weight, out=dh)
            sums.add(times, memory)
        return sums.gradients([dh, dc])

    def factors(self, times: range, stash: Tensor) -> Tensor:
        r"""Return what multiplies :math:`\bar c` in i, f and g, :math:`\bar h` in o, and :math:`\bar h` in :math:`\bar c`.

        Shape (k, 5, R, B, H).
        """
        i, f, g, o, _, squashed = stash[times.start : times.stop].unbind(1)
        made = self.scratch("factors", len(times), 5, self.members, self.rows, self.hidden)
        _sigmoid_backward(g, i, grad_input=made[:, 0])
        first = 0 if times.start else 1  # of the steps that come from a stashed cell state
        before = stash[times.start - 1 + first : times.stop - 1, 4]
        _sigmoid_backward(before, f[first:], grad_input=made[first:, 1])
        if first:
            _sigmoid_backward(self.call.state[1], f[0], grad_input=made[0, 1])
        _tanh_backward(i, g, grad_input=made[:, 2])
        _sigmoid_backward(squashed, o, grad_input=made[:, 3])
        _tanh_backward(o, squashed, grad_input=made[:, 4])
        return made
