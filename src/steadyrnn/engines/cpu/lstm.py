"""The LSTM loop on the CPU: ours, and torch's oneDNN layer where it takes the call."""

import torch
from torch import Tensor

from steadyrnn.errors import EngineError

from ..call import Call, Forward, Gradients
from .base import Family, Visit, folded_bias, head
from .memory import scratch
from .products import gate_products

__all__ = ["LSTMFamily", "OneDNNFamily", "onednn_takes"]

_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
_tanh_backward = torch.ops.aten.tanh_backward.grad_input
_LSTM_MODE = 2  # torch's number for an LSTM in its own recurrent ops


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
        self.project(folded_bias(call), gates)
        output = call.input.new_empty(self.steps, self.batch, h_size)
        outputs, all_c, all_gates = output.unbind(0), cells.unbind(0), gates.unbind(0)
        parts = [(gates[..., part].unbind(0), product.add) for part, product in self.products]
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
        grads = None if grad_output is None else grad_output.unbind(0)
        carry_h, carry_c = (self.carry(g, s) for g, s in zip(grad_state, call.state, strict=True))
        for visit in list(self.visits(done.output.unbind(0), cells.unbind(0)))[::-1]:
            rows = visit.rows
            total = head(carry_h, rows)
            if grads is not None:
                total.add_(head(grads[visit.time], rows))
            gate, cell, here = gates[visit.time, :rows], cells[visit.time, :rows], adjoint[visit.time, :rows]
            self.adjoint_step(visit, gate, cell, here, total, head(carry_c, rows))
        self.clear_padding(adjoint)
        grad_x, grad_w, grad_b = self.outside(adjoint, needs_input)
        grad_b_hh = None if call.bias_hh is None else adjoint.sum((0, 1)) if grad_b is None else grad_b.clone()
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


def onednn_takes(call: Call) -> bool:
    """Say whether torch's oneDNN layer can run this call: float32, stacked gates, every row of full length, nothing empty."""
    x, sizes = call.input, (call.input.numel(), call.state[0].numel())
    plain = len(call.recurrent) == 1 and call.sizes is None and x.dtype == torch.float32 and x.device.type == "cpu"
    return plain and 0 not in sizes and torch.backends.mkldnn.is_available()


class OneDNNFamily(Family):
    """The same function through the op that ``torch.nn.LSTM`` uses; the stash is its workspace."""

    def stash_like(self) -> Tensor:
        """Raise: only oneDNN knows the size of its workspace."""
        raise EngineError("The size of oneDNN's workspace is not known before it runs.")

    def weights(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return both weights and both biases, zero where there is none."""
        call = self.call
        rows = call.weight_ih.shape[0]
        b_ih, b_hh = (call.weight_ih.new_zeros(rows) if b is None else b for b in (call.bias_ih, call.bias_hh))
        return call.weight_ih, call.recurrent[0].contiguous(), b_ih, b_hh

    def forward(self, keep: bool) -> Forward:
        """Run the layer."""
        h, c = (s.contiguous().unsqueeze(0) for s in self.call.state)
        with torch.set_grad_enabled(keep):  # below autograd nothing is recorded; the op makes its workspace only so
            output, h_n, c_n, workspace = torch.ops.aten.mkldnn_rnn_layer(
                self.call.input.contiguous(), *self.weights(), h, c, self.call.reverse, [], _LSTM_MODE, self.hidden, 1,
                True, False, False, keep,
            )  # fmt: skip
        return Forward(output, [h_n[0], c_n[0]], workspace if keep else output.new_empty(0))

    def backward(
        self, done: Forward, grad_output: Tensor | None, grad_state: list[Tensor | None], needs_input: bool
    ) -> Gradients:
        """Run its adjoint."""
        call = self.call
        h, c = (s.contiguous().unsqueeze(0) for s in call.state)
        given = [None if g is None else g.contiguous().unsqueeze(0) for g in grad_state]
        grad = torch.zeros_like(done.output) if grad_output is None else grad_output.contiguous()
        d_x, d_ih, d_hh, d_b, _, d_h, d_c = torch.ops.aten.mkldnn_rnn_layer_backward(
            call.input.contiguous(), *self.weights(), h, c, done.output, *(s.unsqueeze(0) for s in done.state), grad,
            *given, call.reverse, _LSTM_MODE, self.hidden, 1, True, True, False,
            [], False, done.stash,
        )  # fmt: skip
        b_ih = None if call.bias_ih is None else d_b
        b_hh = None if call.bias_hh is None else d_b.clone()
        states = [d_h.view_as(call.state[0]), d_c.view_as(call.state[1])]
        return Gradients(d_x if needs_input else None, states, d_ih, [d_hh], b_ih, b_hh, None)
