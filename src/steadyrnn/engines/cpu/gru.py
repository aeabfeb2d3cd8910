"""The GRU loop on the CPU, in both reset forms."""

import torch
from torch import Tensor

from ..loop.call import Call, Forward, Gradients
from ..loop.family import Family, History, Steps, Visit, gate_products, head, product_of, scratch

__all__ = ["GRUFamily"]

_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
_tanh_backward = torch.ops.aten.tanh_backward.grad_input


class GRUFamily(Family):
    r"""The loop of :class:`steadyrnn.cells.gru.GRUStep`.

    The stash holds r, z, n over the memory of their input parts and, for the reset-after form, the product
    :math:`W_n h + c_n` that the reset gate multiplies.
    """

    def __init__(self, call: Call, reset_after: bool) -> None:
        super().__init__(call)
        self.reset_after = reset_after
        wide = 2 * self.hidden
        self.apart = len(call.recurrent) > 1
        parts = gate_products(call.recurrent if self.apart else list(call.recurrent[0].split([wide, self.hidden])))
        self.gating, self.product_n = parts[:-1], parts[-1][1]  # of r and z, together or apart; of n
        self.bias_n = call.bias_hh[wide:] if reset_after and call.bias_hh is not None else None

    def input_bias(self) -> Tensor | None:
        """Return the bias of the input part: both vectors, less the one that stays inside the reset gate."""
        call = self.call
        if call.bias_hh is None:
            return call.bias_ih
        folded = torch.zeros_like(call.bias_hh) if call.bias_ih is None else call.bias_ih.clone()
        folded[: 2 * self.hidden] += call.bias_hh[: 2 * self.hidden]
        if not self.reset_after:
            folded[2 * self.hidden :] += call.bias_hh[2 * self.hidden :]
        return folded

    def stash_like(self) -> Tensor:
        """Return the shape of the stash: r, z, n and the candidate products."""
        return self.call.input.new_empty(self.stash_shape())

    def stash_shape(self) -> tuple[int]:
        """Return how much the loop needs: r, z, n and, with the reset behind, the candidate's product."""
        return (self.steps * self.batch * self.hidden * (4 if self.reset_after else 3),)

    def parts(self, stash: Tensor) -> tuple[Tensor, Tensor]:
        """Return the stash as gates (T, B, 3H) and candidate products (T, B, H or 0)."""
        cut = self.steps * self.batch * 3 * self.hidden
        gates = stash[:cut].view(self.steps, self.batch, 3 * self.hidden)
        return gates, stash[cut:].view(self.steps, self.batch, self.hidden if self.reset_after else 0)

    def forward(self, keep: bool) -> Forward:
        """Run the loop."""
        call, h_size = self.call, self.hidden
        stash = self.stash_like() if keep else scratch("gates", self.stash_shape(), call.input)
        gates, products = self.parts(stash)
        self.project(self.input_bias(), gates)
        output = call.input.new_empty(self.steps, self.batch, h_size)
        outputs, all_rz, all_r = Steps(output), Steps(gates[..., : 2 * h_size]), Steps(gates[..., :h_size])
        all_z, all_n = Steps(gates[..., h_size : 2 * h_size]), Steps(gates[..., 2 * h_size :])
        all_p = Steps(products)
        gating = [(Steps(gates[..., part]), product.add) for part, product in self.gating]
        for time, rows, (before,) in self.visits(outputs):
            for views, add in gating:
                add(head(views[time], rows), before)
            head(all_rz[time], rows).sigmoid_()
            r, n = head(all_r[time], rows), head(all_n[time], rows)
            if self.reset_after:
                product = self.candidate(before, head(all_p[time], rows))
                n.addcmul_(r, product).tanh_()
            else:
                self.product_n.add(n, r * before)
                n.tanh_()
            torch.lerp(n, before, head(all_z[time], rows), out=head(outputs[time], rows))
        self.clear_padding(output)
        return Forward(output, [self.final(output, call.state[0])], stash if keep else call.input.new_empty(0))

    def candidate(self, before: Tensor, out: Tensor) -> Tensor:
        """Write the candidate's recurrent product, bias included, to ``out``."""
        self.product_n.write(before, self.bias_n, out)
        return out

    def backward(
        self, done: Forward, grad_output: Tensor | None, grad_state: list[Tensor | None], needs_input: bool
    ) -> Gradients:
        """Run the adjoint."""
        call, h_size = self.call, self.hidden
        gates, products = self.parts(done.stash)
        adjoint = self.adjoint_memory("adjoint", 3 * h_size)
        grads = None if grad_output is None else Steps(grad_output)
        carry = self.carry(grad_state[0], call.state[0])
        for visit in self.visits(Steps(done.output), back=True):
            total = head(carry, visit.rows)
            if grads is not None:
                total.add_(head(grads[visit.time], visit.rows))
            r, z, n = gates[visit.time, : visit.rows].chunk(3, dim=-1)
            self.adjoint_step(visit, (r, z, n), products, adjoint, total)
        self.clear_padding(adjoint)
        grad_x, grad_w, grad_b = self.outside(adjoint, needs_input)
        if self.reset_after:  # from here on the adjoint of what the reset gate multiplied
            adjoint[..., 2 * h_size :].mul_(gates[..., :h_size])
            self.clear_padding(adjoint)
            grad_hh = self.weight_gradients(self.history(adjoint, done.output, call.state[0]))
        else:
            grad_hh = self.gated_gradients(adjoint, gates, done.output)
        grad_b_hh = None if call.bias_hh is None else self.sum_rows(adjoint)
        return Gradients(grad_x, [carry], grad_w, grad_hh, grad_b, grad_b_hh, None)

    def adjoint_step(
        self, visit: Visit, rzn: tuple[Tensor, Tensor, Tensor], products: Tensor, adjoint: Tensor, total: Tensor
    ) -> None:
        """Turn ``total``, the gradient of the state after, into that of the state before; fill the gates' adjoints."""
        time, rows, (before,) = visit
        r, z, n = rzn
        d_r, d_z, d_n = adjoint[time, :rows].chunk(3, dim=-1)
        kept, work = scratch("kept", total.shape, total), scratch("work", total.shape, total)
        torch.mul(total, z, out=kept)
        torch.sub(before, n, out=work).mul_(total)
        _sigmoid_backward(work, z, grad_input=d_z)
        _tanh_backward(total.sub_(kept), n, grad_input=d_n)
        if self.reset_after:
            self.product_n.pull(torch.mul(d_n, r, out=work), kept, kept)
            torch.mul(d_n, products[time, :rows], out=work)
        else:
            self.product_n.pull(d_n, None, work)
            kept.addcmul_(work, r)
            work.mul_(before)
        _sigmoid_backward(work, r, grad_input=d_r)
        for part, product in self.gating:
            product.pull(adjoint[time, :rows, part], kept, total)
            kept = total

    def weight_gradients(self, history: History) -> list[Tensor]:
        """Return the gradient of the weight, stacked or apart as it came."""
        if not self.apart:
            return product_of(self.call.recurrent[0]).gradient(history)
        gates = [*self.gating, (slice(2 * self.hidden, None), self.product_n)]
        return [grad for part, product in gates for grad in product.gradient(history.columns(part))]

    def gated_gradients(self, adjoint: Tensor, gates: Tensor, output: Tensor) -> list[Tensor]:
        r"""Return the gradient of the weight where the candidate's was applied to :math:`r \circ h`."""
        gated, start = self.adjoint_memory("gated", self.hidden), self.call.state[0]
        for time, rows, (before,) in self.visits(Steps(output)):
            torch.mul(before, gates[time, :rows, : self.hidden], out=gated[time, :rows])
        self.clear_padding(gated)
        last = adjoint[..., 2 * self.hidden :]
        grad_n = self.product_n.gradient(History(last, gated, last.new_zeros(0, self.hidden), start[:0]))
        history = self.history(adjoint, output, start)
        grads = [grad for part, product in self.gating for grad in product.gradient(history.columns(part))]
        return [*grads, *grad_n] if self.apart else [torch.cat([*grads, *grad_n])]
