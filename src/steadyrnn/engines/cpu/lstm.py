"""The LSTM loop on the CPU."""

import torch
from torch import Tensor

from ..loop.call import Call, Forward, Gradients
from ..loop.family import Family, Steps, Visit, gate_products, head, scratch, sum_biases

__all__ = ["LSTMFamily"]

_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
_tanh_backward = torch.ops.aten.tanh_backward.grad_input


class LSTMFamily(Family):
    """The loop of :class:`steadyrnn.cells.lstm.LSTMStep`; the stash holds the four gates and the cell states."""

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self.products = gate_products(call.recurrent)

    def stash_like(self) -> Tensor:
        """Return the shape of the stash: four gates and the cell states."""
        return self.call.input.new_empty(self.stash_shape())

    def stash_shape(self) -> tuple[int]:
        """Return how much the loop needs: four gates and the cell state."""
        return (self.steps * self.batch * self.hidden * 5,)

    def parts(self, stash: Tensor) -> tuple[Tensor, Tensor]:
        """Return the stash as gates (T, B, 4H) and cell states (T, B, H)."""
        cut = self.steps * self.batch * 4 * self.hidden
        gates = stash[:cut].view(self.steps, self.batch, 4 * self.hidden)
        return gates, stash[cut:].view(self.steps, self.batch, self.hidden)

    def forward(self, keep: bool) -> Forward:
        """Run the loop."""
        call, h_size = self.call, self.hidden
        stash = self.stash_like() if keep else scratch("gates", self.stash_shape(), call.input)
        gates, cells = self.parts(stash)
        self.project(sum_biases(call), gates)
        output = call.input.new_empty(self.steps, self.batch, h_size)
        outputs, all_c, all_gates = Steps(output), Steps(cells), Steps(gates)
        parts = [(Steps(gates[..., part]), product.add) for part, product in self.products]
        for time, rows, (h, c) in self.visits(outputs, all_c):
            for views, add in parts:
                add(head(views[time], rows), h)
            gate = head(all_gates[time], rows)
            gate[:, : 2 * h_size].sigmoid_()
            gate[:, 3 * h_size :].sigmoid_()
            i, f, g, o = gate.chunk(4, dim=-1)
            new_c = torch.mul(f, c, out=head(all_c[time], rows)).addcmul_(i, g.tanh_())
            torch.tanh(new_c, out=head(outputs[time], rows)).mul_(o)
        self.clear_padding(output)
        state = [self.final(output, call.state[0]), self.final(cells, call.state[1])]
        return Forward(output, state, stash if keep else call.input.new_empty(0))

    def backward(
        self, done: Forward, grad_output: Tensor | None, grad_state: list[Tensor | None], needs_input: bool
    ) -> Gradients:
        """Run the adjoint."""
        call = self.call
        gates, cells = self.parts(done.stash)
        adjoint = self.adjoint_memory("adjoint", 4 * self.hidden)
        grads = None if grad_output is None else Steps(grad_output)
        carry_h, carry_c = (self.carry(g, s) for g, s in zip(grad_state, call.state, strict=True))
        for visit in self.visits(Steps(done.output), Steps(cells), back=True):
            rows = visit.rows
            total = head(carry_h, rows)
            if grads is not None:
                total.add_(head(grads[visit.time], rows))
            gate, cell, here = gates[visit.time, :rows], cells[visit.time, :rows], adjoint[visit.time, :rows]
            self.adjoint_step(visit, gate, cell, here, total, head(carry_c, rows))
        self.clear_padding(adjoint)
        grad_x, grad_w, grad_b = self.outside(adjoint, needs_input)
        grad_b_hh = None if call.bias_hh is None else self.sum_rows(adjoint) if grad_b is None else grad_b.clone()
        history = self.history(adjoint, done.output, call.state[0])
        grad_hh = [grad for part, product in self.products for grad in product.gradient(history.columns(part))]
        return Gradients(grad_x, [carry_h, carry_c], grad_w, grad_hh, grad_b, grad_b_hh, None)

    def adjoint_step(self, visit: Visit, gate: Tensor, cell: Tensor, here: Tensor, dh: Tensor, dc: Tensor) -> None:
        """Fill the gates' adjoint ``here`` (rows, 4H) and turn ``dh``, ``dc`` into gradients of the state before."""
        i, f, g, o = gate.chunk(4, dim=-1)
        d_i, d_f, d_g, d_o = here.chunk(4, dim=-1)
        squashed, work = scratch("kept", dh.shape, dh), scratch("work", dh.shape, dh)
        torch.tanh(cell, out=squashed)
        _sigmoid_backward(torch.mul(dh, squashed, out=work), o, grad_input=d_o)
        _tanh_backward(dh.mul_(o), squashed, grad_input=work)
        dc.add_(work)
        _sigmoid_backward(torch.mul(dc, g, out=work), i, grad_input=d_i)
        _tanh_backward(torch.mul(dc, i, out=work), g, grad_input=d_g)
        _sigmoid_backward(torch.mul(dc, visit.before[1], out=work), f, grad_input=d_f)
        dc.mul_(f)
        plus = None
        for part, product in self.products:
            product.pull(here[:, part], plus, dh)
            plus = dh
