"""The Elman loop on the CPU, with a dense or a factored recurrent weight."""

from typing import cast

import torch
from torch import Tensor

from steadyrnn.activations import Activation

from ..base import Gate, unflatten_weight
from ..loop.call import Call, Forward, Gradients
from ..loop.family import Family, Steps, head, product_of, sum_biases

__all__ = ["RNNFamily"]


class RNNFamily(Family):
    r"""The loop :math:`h_t = \varphi(g_t + h_{t-1} W^\top)`, with :math:`g` the hoisted input part.

    The gates' memory becomes the output, step by step, where the derivative can be read off the output; otherwise the
    pre-activations are the stash. The adjoint :math:`d_t = \varphi' \circ (\bar h_t + d_{t+1} W)` is two operations per
    step; the gradient of W is one product after the loop.
    """

    def __init__(self, call: Call, activation: Activation) -> None:
        super().__init__(call)
        self.activation = activation
        self.product = product_of(cast(Gate, unflatten_weight(call.recurrent)))

    def forward(self, keep: bool) -> Forward:
        """Run the loop."""
        call, act = self.call, self.activation
        in_place = act.from_output
        gates = call.input.new_empty(self.steps, self.batch, self.hidden)
        self.project(sum_biases(call), gates)
        output = gates if in_place else torch.empty_like(gates)
        outputs, inputs, add = Steps(output), Steps(gates), self.product.add
        for time, rows, (before,) in self.visits(outputs):
            gate = head(inputs[time], rows)
            add(gate, before)
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

    def backward(
        self, done: Forward, grad_output: Tensor | None, grad_state: list[Tensor | None], needs_input: bool
    ) -> Gradients:
        """Run the adjoint."""
        call, act = self.call, self.activation
        adjoint = self.adjoint_memory("adjoint", self.hidden)
        saved = Steps(done.output if act.from_output else done.stash)
        grads = None if grad_output is None else Steps(grad_output)
        adjoints, carry, added = Steps(adjoint), self.carry(grad_state[0], call.state[0]), False
        grad_theta = None if call.theta is None else torch.zeros_like(call.theta)
        visits = self.visits(Steps(done.output), back=True)
        visit = next(visits, None)
        while visit is not None:
            (time, rows, _), following = visit, next(visits, None)
            total, here = head(carry, rows), head(adjoints[time], rows)
            if grads is not None and not added:
                total.add_(head(grads[time], rows))
            change = act.pullback(total, head(saved[time], rows), call.theta, here)
            if grad_theta is not None and change is not None:
                grad_theta += change
            # the next step's own gradient joins this step's product, where the same rows run
            added = following is not None and following.rows == rows and grads is not None
            ahead = head(grads[following.time], rows) if added and grads is not None and following else None
            self.product.pull(here, ahead, total)
            visit = following
        self.clear_padding(adjoint)
        grad_x, grad_w, grad_b = self.outside(adjoint, needs_input)
        grad_b_hh = None if call.bias_hh is None else self.sum_rows(adjoint) if grad_b is None else grad_b.clone()
        grad_hh = self.product.gradient(self.history(adjoint, done.output, call.state[0]))
        return Gradients(grad_x, [carry], grad_w, grad_hh, grad_b, grad_b_hh, grad_theta)
