"""The Elman loop on the CPU, with a dense or a factored recurrent weight."""

from itertools import zip_longest

import torch
from torch import Tensor

from steadyrnn.activations import Activation

from ..call import Call, Forward, Gradients
from .base import Family, flat, folded_bias, head
from .memory import scratch

__all__ = ["RNNFamily"]


class RNNFamily(Family):
    r"""The loop :math:`h_t = \varphi(g_t + h_{t-1} W^\top)`, with :math:`g` the hoisted input part.

    The gates' memory becomes the output, step by step, where the derivative can be read off the output; otherwise the
    pre-activations are the stash. The adjoint :math:`d_t = \varphi' \circ (\bar h_t + d_{t+1} W)` is two operations a
    step; the gradient of W is one product after the loop.
    """

    def __init__(self, call: Call, activation: Activation) -> None:
        super().__init__(call)
        self.activation = activation
        self.factored = len(call.recurrent) == 3

    def forward(self, keep: bool) -> Forward:
        """Run the loop."""
        call, act = self.call, self.activation
        in_place = act.from_output
        gates = call.input.new_empty(self.steps, self.batch, self.hidden)
        self.project(folded_bias(call), gates)
        output = gates if in_place else torch.empty_like(gates)
        outputs, inputs = output.unbind(0), gates.unbind(0)
        for time, rows, (before,) in self.visits(outputs):
            gate = head(inputs[time], rows)
            self.add_product(gate, before)
            if in_place:
                act.value_(gate, call.theta)
            else:
                act.value_(head(outputs[time], rows).copy_(gate), call.theta)
        self.clear_padding(output)
        stash = gates if keep and not in_place else gates.new_empty(0)
        return Forward(output, [self.final(output, call.state[0])], stash)

    def stash_like(self) -> Tensor:
        """Return the shape of the stash: pre-activations, or nothing."""
        shape = (0,) if self.activation.from_output else (self.steps, self.batch, self.hidden)
        return self.call.input.new_empty(shape)

    def add_product(self, gate: Tensor, before: Tensor) -> None:
        r"""Add :math:`h W^\top` to ``gate`` in place, both (rows, H)."""
        if not self.factored:
            gate.addmm_(before, self.call.recurrent[0].t())
            return
        diagonal, left, right = self.call.recurrent
        thin = torch.mm(before, right, out=scratch("thin", (before.shape[0], right.shape[1]), before))
        gate.addmm_(thin, left.t()).addcmul_(before, diagonal)

    def pull(self, adjoint: Tensor, grad: Tensor | None, out: Tensor) -> None:
        """Write ``adjoint`` times W, plus ``grad`` where given, to ``out``; all (rows, H)."""
        weight, thin = self.call.recurrent[0], adjoint
        if self.factored:
            diagonal, left, right = self.call.recurrent
            thin = torch.mm(adjoint, left, out=scratch("thin", (adjoint.shape[0], left.shape[1]), adjoint))
            weight = right.t()
        if grad is None:
            torch.mm(thin, weight, out=out)
        else:
            torch.addmm(grad, thin, weight, out=out)
        if self.factored:
            out.addcmul_(adjoint, diagonal)

    def backward(
        self, done: Forward, grad_output: Tensor | None, grad_state: list[Tensor | None], needs_input: bool
    ) -> Gradients:
        """Run the adjoint."""
        call, act = self.call, self.activation
        adjoint = self.adjoint_memory("adjoint", self.hidden)
        saved = (done.output if act.from_output else done.stash).unbind(0)
        grads = None if grad_output is None else grad_output.unbind(0)
        adjoints, carry, added = adjoint.unbind(0), self.carry(grad_state[0], call.state[0]), False
        grad_theta = None if call.theta is None else torch.zeros_like(call.theta)
        visits = list(self.visits(done.output.unbind(0)))[::-1]
        for visit, following in zip_longest(visits, visits[1:]):
            time, rows, _ = visit
            total, here = head(carry, rows), head(adjoints[time], rows)
            if grads is not None and not added:
                total.add_(head(grads[time], rows))
            change = act.pullback(total, head(saved[time], rows), call.theta, here)
            if grad_theta is not None and change is not None:
                grad_theta += change
            # the next step's own gradient joins this step's product, where the same rows run
            added = following is not None and following.rows == rows and grads is not None
            ahead = head(grads[following.time], rows) if added and grads is not None and following else None
            self.pull(here, ahead, total)
        self.clear_padding(adjoint)
        grad_x, grad_w, grad_b = self.outside(adjoint, needs_input)
        grad_b_hh = None if call.bias_hh is None else flat(adjoint).sum(0) if grad_b is None else grad_b.clone()
        return Gradients(grad_x, [carry], grad_w, self.weight_gradient(adjoint, done.output), grad_b, grad_b_hh, grad_theta)

    def weight_gradient(self, adjoint: Tensor, output: Tensor) -> list[Tensor]:
        """Return the gradient of W, or of the three parts of a factored one, from products over all time."""
        start = self.call.state[0]
        if not self.factored:
            return [self.outer(adjoint, output, start)]
        _, left, right = self.call.recurrent
        if self.steps == 0:
            return [torch.zeros_like(part) for part in self.call.recurrent]
        late, early = (adjoint[:-1], output[1:]) if self.call.reverse else (adjoint[1:], output[:-1])
        first = self.first(adjoint)
        grad_left = (flat(late).t() @ (flat(early) @ right)).addmm_(first.t(), start @ right)
        grad_right = (flat(early).t() @ (flat(late) @ left)).addmm_(start.t(), first @ left)
        diagonal = (first * start).sum(0)
        for after, before in zip(late.split(16), early.split(16), strict=True):  # some steps at once: little memory
            diagonal += (after * before).sum((0, 1))
        return [diagonal, grad_left, grad_right]
