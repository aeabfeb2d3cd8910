"""The GRU loops of a group, in both reset forms."""

import torch
from torch import Tensor

from ...loop.call import Forward, Gradients
from ...loop.family import Steps, sum_biases
from .loop import GroupLoop, Sums

__all__ = ["GRUAfterGroup", "GRUBeforeGroup"]

_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
_tanh_backward = torch.ops.aten.tanh_backward.grad_input


def _states_before(loop: GroupLoop, times: range, states: Tensor) -> Tensor:
    """Return the states (T, R, B, H) before some times, (k, R, B, H)."""
    if times.start:
        return states[times.start - 1 : times.stop - 1]
    return torch.cat([loop.call.state[0].unsqueeze(0), states[: times.stop - 1]])


def _shared_factors(z: Tensor, n: Tensor, before: Tensor, of_z: Tensor, of_n: Tensor) -> None:
    r"""Write what multiplies :math:`\bar h` in the adjoints of z and n, from :math:`h^+ = n + z \circ (h - n)`."""
    _sigmoid_backward(torch.sub(before, n, out=of_z), z, grad_input=of_z)
    _tanh_backward(torch.mul(z, -1, out=of_n).add_(1), n, grad_input=of_n)


class GRUAfterGroup(GroupLoop):
    r"""The loop of :class:`~steadyrnn.cells.gru.GRUStep`, the reset gate after the product, for R networks.

    Its four summands are one product: r, z, :math:`p = W_n h + c_n` and the input part of n, whose recurrent weight is
    zero, as is the input weight of p. The stash holds r, z, p and n, (T, 4, R, B, H), each in a block of its own as in
    :class:`~steadyrnn.engines.cpu.group.lstm.LSTMGroup`.
    """

    def summands(self, bias_ih: Tensor | None, bias_hh: Tensor | None) -> Tensor | None:
        """Return the bias of all four summands, (R, 4H)."""
        if bias_ih is None and bias_hh is None:
            return None
        made = self.call.input.new_zeros(self.members, 4 * self.hidden)
        if bias_ih is not None:
            made[:, : 2 * self.hidden] += bias_ih[:, : 2 * self.hidden]
            made[:, 3 * self.hidden :] += bias_ih[:, 2 * self.hidden :]
        if bias_hh is not None:
            made[:, : 3 * self.hidden] += bias_hh
        return made

    def spread(self, weight: Tensor) -> Tensor:
        """Return the input weight of all four summands, (R, 4H, D)."""
        gating, last = weight.split([2 * self.hidden, self.hidden], dim=1)
        return torch.cat([gating, torch.zeros_like(last), last], dim=1)

    def forward(self, keep: bool) -> Forward:
        """Run the loop."""
        call, shape = self.call, (self.members, self.rows, self.hidden)
        weight = call.recurrent[0]
        recurrent = torch.cat([weight, weight.new_zeros(self.members, self.hidden, self.hidden)], dim=1).mT
        output = self.new_states(self.steps)
        stash = call.input.new_empty(self.steps if keep else 0, 4, *shape)
        memory = stash if keep else self.scratch("gate_blocks", 1, 4, *shape)
        work = self.scratch("work", self.members, self.rows, 4 * self.hidden)
        apart = work.view(self.members, self.rows, 4, self.hidden).permute(2, 0, 1, 3)
        outputs, all_four, all_two = Steps(output), Steps(memory), Steps(memory[:, :2])
        gate_blocks, (h,) = [Steps(block) for block in memory.unbind(1)], call.state
        gates = self.projections(self.spread(call.weight_ih), self.summands(call.bias_ih, call.bias_hh))
        for time, gate in enumerate(gates):
            place = time if keep else 0
            torch.baddbmm(gate, h, recurrent, out=work)
            all_four[place].copy_(apart)
            all_two[place].sigmoid_()
            r, z, p, n = (block[place] for block in gate_blocks)
            h = torch.lerp(n.addcmul_(r, p).tanh_(), h, z, out=outputs[time])
        return Forward(output, [h.clone(memory_format=torch.contiguous_format)], stash)

    def backward(
        self, done: Forward, grad_output: Tensor | None, grad_state: list[Tensor | None], needs_input: bool
    ) -> Gradients:
        """Run the adjoint: factors of the gradient for a block of times at once, then a product with them in each step."""
        call, weight, wide = self.call, self.call.recurrent[0], 3 * self.hidden
        grads = None if grad_output is None else Steps(grad_output)
        dh = self.carry(grad_state[0], call.state[0])
        sums = Sums(self, done.output, 4, needs_input, self.spread(call.weight_ih))
        gate_blocks = self.scratch("gate_blocks", 4, self.members, self.rows, self.hidden)
        together = gate_blocks.permute(1, 2, 0, 3)
        self.arrive(dh, grads, self.steps - 1)
        for times in reversed(self.blocks()):
            factors = self.factors(times, done).unbind(0)
            memory, views = self.adjoint_memory(times, 4)
            update = done.stash[times.start : times.stop, 1].unbind(0)
            for time in reversed(times):
                place = time - times.start
                torch.mul(dh, factors[place], out=gate_blocks)
                here = views[place].copy_(together).flatten(2)
                dh.mul_(update[place]).baddbmm_(here[..., :wide], weight)
                self.arrive(dh, grads, time - 1)
            sums.add(times, memory)
        return self.gradients(sums, dh)

    def factors(self, times: range, done: Forward) -> Tensor:
        r"""Return what multiplies :math:`\bar h` in the adjoints of r, z, p and n, (k, 4, R, B, H)."""
        r, z, p, n = done.stash[times.start : times.stop].unbind(1)
        made = self.scratch("factors", len(times), 4, self.members, self.rows, self.hidden)
        of_r, of_z, of_p, of_n = made.unbind(1)
        _shared_factors(z, n, _states_before(self, times, done.output), of_z, of_n)
        _sigmoid_backward(p, r, grad_input=of_r)
        of_r.mul_(of_n)
        torch.mul(of_n, r, out=of_p)
        return made

    def gradients(self, sums: Sums, dh: Tensor) -> Gradients:
        """Return the gradients of what the summands were made of."""
        call, wide, size = self.call, 2 * self.hidden, self.hidden
        outer = torch.cat([sums.outside[..., :wide], sums.outside[..., wide + size :]], dim=-1).mT
        bias_ih = torch.cat([sums.bias[:, :wide], sums.bias[:, wide + size :]], dim=-1) if call.bias_ih is not None else None
        bias_hh = sums.bias[:, : wide + size].clone() if call.bias_hh is not None else None
        return Gradients(sums.grad_input(), [dh], outer, [sums.recurrent[..., : wide + size].mT], bias_ih, bias_hh, None)


class GRUBeforeGroup(GroupLoop):
    r"""The same with the reset gate before the product, :math:`W_n (r \circ h)`; the stash holds r, z, n: (T, 3, R, B, H)."""

    def forward(self, keep: bool) -> Forward:
        """Run the loop."""
        call, shape, wide = self.call, (self.members, self.rows, self.hidden), 2 * self.hidden
        gating, last = (part.mT for part in call.recurrent[0].split([wide, self.hidden], dim=1))
        output = self.new_states(self.steps)
        stash = call.input.new_empty(self.steps if keep else 0, 3, *shape)
        memory = stash if keep else self.scratch("gate_blocks", 1, 3, *shape)
        work, reset = self.scratch("work", self.members, self.rows, wide), self.scratch("reset", *shape)
        apart = work.view(self.members, self.rows, 2, self.hidden).permute(2, 0, 1, 3)
        outputs, all_two, gate_blocks = Steps(output), Steps(memory[:, :2]), [Steps(block) for block in memory.unbind(1)]
        (h,) = call.state
        for time, gate in enumerate(self.projections(call.weight_ih, sum_biases(call))):
            place = time if keep else 0
            torch.baddbmm(gate[..., :wide], h, gating, out=work)
            all_two[place].copy_(apart).sigmoid_()
            r, z, n = (block[place] for block in gate_blocks)
            torch.baddbmm(gate[..., wide:], torch.mul(r, h, out=reset), last, out=n)
            h = torch.lerp(n.tanh_(), h, z, out=outputs[time])
        return Forward(output, [h.clone(memory_format=torch.contiguous_format)], stash)

    def backward(
        self, done: Forward, grad_output: Tensor | None, grad_state: list[Tensor | None], needs_input: bool
    ) -> Gradients:
        """Run the adjoint."""
        call, wide = self.call, 2 * self.hidden
        gating, last = call.recurrent[0].split([wide, self.hidden], dim=1)
        grads = None if grad_output is None else Steps(grad_output)
        dh, sums = self.carry(grad_state[0], call.state[0]), Sums(self, done.output, 3, needs_input, call.weight_ih)
        gate_blocks = self.scratch("gate_blocks", 3, self.members, self.rows, self.hidden)
        (d_r, d_z, d_n), together = gate_blocks.unbind(0), gate_blocks.permute(1, 2, 0, 3)
        pulled, grad_last = torch.empty_like(dh), torch.zeros_like(last.mT)
        self.arrive(dh, grads, self.steps - 1)
        for times in reversed(self.blocks()):
            before, (all_r, all_z, _) = _states_before(self, times, done.output), done.stash[times.start : times.stop].unbind(1)
            of_r, of_z, of_n = self.factors(times, done, before).unbind(1)
            memory, views = self.adjoint_memory(times, 3)
            for place in reversed(range(len(times))):
                torch.mul(dh, of_n[place], out=d_n)
                torch.mul(dh, of_z[place], out=d_z)
                torch.mul(torch.bmm(d_n, last, out=pulled), of_r[place], out=d_r)
                here = views[place].copy_(together).flatten(2)
                dh.mul_(all_z[place]).addcmul_(pulled, all_r[place]).baddbmm_(here[..., :wide], gating)
                self.arrive(dh, grads, times[place] - 1)
            sums.add(times, memory)
            reset = (all_r * before).transpose(0, 1).reshape(self.members, memory.shape[1], self.hidden)
            grad_last.baddbmm_(reset.mT, memory[..., wide:])
        return sums.gradients([dh], torch.cat([sums.recurrent[..., :wide], grad_last], dim=-1))

    def factors(self, times: range, done: Forward, before: Tensor) -> Tensor:
        r"""Return what multiplies :math:`\bar h` in z and n, and the gradient of :math:`r \circ h` in r: (k, 3, R, B, H)."""
        r, z, n = done.stash[times.start : times.stop].unbind(1)
        made = self.scratch("factors", len(times), 3, self.members, self.rows, self.hidden)
        of_r, of_z, of_n = made.unbind(1)
        _shared_factors(z, n, before, of_z, of_n)
        _sigmoid_backward(before, r, grad_input=of_r)
        return made
