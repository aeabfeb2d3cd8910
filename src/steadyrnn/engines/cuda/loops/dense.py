"""The cells' loops with a dense weight on a GPU: the products outside of time in torch, the loop in one launch."""

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from steadyrnn.activations import Activation
from steadyrnn.errors import EngineError

from ...loop.call import Call, Forward, Gradients
from ...loop.family import Dense, Family, flat, sum_biases
from ..kernels.codes import ACTIVATIONS, CELLS
from ..kernels.dense import Rows, gather, scatter
from ..kernels.elman import adds_bias, run_elman
from . import input_projection, weight_gradient

__all__ = ["ElmanLoop", "GatedLoop", "Products", "RNNLoop"]


Products = tuple[Tensor | None, Tensor, Tensor | None, list[Tensor]]
"""Gradients of input, input weight, input bias, and of every tensor of the recurrent weight."""


class GPUFamily(Family):
    """What the loops on a GPU share."""

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self.rows = Rows.of(call)
        self.weight = call.recurrent[0].contiguous()
        self.starts = [s.contiguous() for s in call.state]

    def project(self, bias: Tensor | None, out: Tensor) -> Tensor:
        """Write the input part of every gate at every time to ``out`` (T, B, G * H): one product, outside the loop."""
        if not input_projection.is_faster(self.call.input, out.shape[2]):
            return super().project(bias, out)
        input_projection.project_input(flat(self.call.input), self.call.weight_ih, bias, flat(out))
        return out

    def memory(self, width: int) -> Tensor:
        """Return memory (T, B, ``width``), zero where rows do not run."""
        shape = (self.steps, self.batch, width)
        return self.call.input.new_empty(shape) if self.rows.lengths is None else self.call.input.new_zeros(shape)

    def first(self, adjoint: Tensor) -> Tensor:
        """Return ``adjoint`` (T, B, N) at each row's first step, zero for a row of length 0; shape (B, N)."""
        if not self.call.reverse or self.rows.lengths is None:
            return adjoint[self.call.times[0]]
        last = (self.rows.lengths.long() - 1).clamp_min(0)  # at time 0 the adjoint of a row of length 0 is 0
        return adjoint.gather(0, last.view(1, -1, 1).expand(1, -1, adjoint.shape[2]))[0]

    def given(self, grad: Tensor | None) -> Tensor | None:
        """Return a gradient as kernels read it."""
        return None if grad is None else grad.contiguous()

    def incoming(self, grads: list[Tensor | None]) -> list[Tensor]:
        """Return the gradients of the final states."""
        return [torch.zeros_like(s) if g is None else g.contiguous() for g, s in zip(grads, self.starts, strict=True)]

    def dense_products(self, adjoint: Tensor, states: Tensor, needs_input: bool, inner: Tensor | None = None) -> Products:
        """Return the products over all time with a dense weight.

        Args:
            adjoint: Of the gates' input parts, (T, B, G * H).
            states: (T, B, H).
            needs_input: Whether the gradient of the input is wanted.
            inner: Of a GRU, adjoints of the candidate's product with the state, (T, B, H).
        """
        parts = [adjoint] if inner is None else [adjoint[..., : 2 * self.hidden], inner]
        histories = [self.history(part, states, self.starts[0]) for part in parts]
        if not weight_gradient.is_faster(adjoint, states):
            weights = [Dense(self.weight).gradient(history)[0] for history in histories]
            return *self.outside(adjoint, needs_input), [weights[0] if inner is None else torch.cat(weights)]
        late, early, x = [flat(history.late) for history in histories], flat(histories[0].early), self.call.input
        edge, others = (-1, slice(-1)) if self.call.reverse else (0, slice(1, None))  # of time: what has no state before it
        if inner is None:  # then all sums have the same adjoints; the bias is the weight of an input that is 1
            biased, grad_x = self.call.bias_ih is not None, self.grad_input(adjoint, needs_input)
            right = [early, flat(x[others]), *([early.new_ones(len(early), 1)] if biased else [])]
            both = weight_gradient.sum_outer_products(late, right)
            grad_w = torch.addmm(both[:, self.hidden : self.hidden + x.shape[2]], adjoint[edge].t(), x[edge])
            grad_b = both[:, -1] + adjoint[edge].sum(0) if biased else None
        else:
            both = weight_gradient.sum_outer_products(late, [early])
            grad_x, grad_w, grad_b = self.outside(adjoint, needs_input)
        first = torch.cat([history.first for history in histories], dim=1)
        return grad_x, grad_w, grad_b, [torch.addmm(both[:, : self.hidden], first.t(), self.starts[0])]

    @abstractmethod
    def stash_size(self) -> int:
        """Return how many numbers a stash holds."""

    def stash_like(self) -> Tensor:
        """Return the shape of the stash."""
        return self.call.input.new_empty(self.stash_size())

    def stash(self) -> Tensor:
        """Return memory for the stash, zero where rows do not run: kernels read it there, too, if only to pass it over."""
        return self.stash_like() if self.rows.lengths is None else self.stash_like().zero_()


class ElmanLoop(GPUFamily):
    """The Elman loop, whatever form its weight has; where the output does not give the derivative, arguments are the stash."""

    def __init__(self, call: Call, activation: Activation) -> None:
        super().__init__(call)
        if activation.kernel is None:
            raise EngineError(f"There is no kernel for the activation {activation.key}.")
        self.activation, self.keeps = ACTIVATIONS[activation.kernel], not activation.from_output
        self.slope = activation.kernel_argument

    @abstractmethod
    def launch(self, gates: Tensor, output: Tensor, begin: Tensor | None, end: Tensor, **more: Any) -> None:
        """Run the loop or its adjoint; arguments as the kernel names them, ``begin`` of None is zero."""

    def bias_apart(self, output: Tensor) -> Tensor | None:
        """Return the recurrent bias where the kernel adds it itself, and not the product with the input."""
        return None

    @abstractmethod
    def products(self, adjoint: Tensor, states: Tensor, needs_input: bool) -> Products:
        """Return what follows from adjoints of pre-activations, (T, B, H), and all states."""

    def stash_size(self) -> int:
        """Return how many pre-activations are kept."""
        return self.steps * self.batch * self.hidden if self.keeps else 0

    def forward(self, keep: bool) -> Forward:
        """Run the loop."""
        output, h_n = self.memory(self.hidden), torch.empty_like(self.starts[0])
        apart = self.bias_apart(output)
        bias = sum_biases(self.call) if apart is None else self.call.bias_ih
        gates = self.project(bias, self.call.input.new_empty(self.steps, self.batch, self.hidden))
        stash = self.stash() if keep else gates.new_empty(0)
        more = {} if apart is None else {"bias": apart}
        self.launch(gates, output, self.starts[0], h_n, extra=stash, keep=keep and self.keeps, **more)
        return Forward(output, [h_n], stash)

    def backward(
        self, done: Forward, grad_output: Tensor | None, grad_state: list[Tensor | None], needs_input: bool
    ) -> Gradients:
        """Run the adjoint."""
        adjoint, d_h = self.memory(self.hidden), torch.empty_like(self.starts[0])
        grad, saved = self.given(grad_output), done.stash if self.keeps else done.output
        self.launch(
            saved if grad is None else grad, adjoint, self.given(grad_state[0]), d_h, extra=saved, keep=False, back=True,
            given=grad is not None,
        )  # fmt: skip
        grad_x, grad_w, grad_b, grad_hh = self.products(adjoint, done.output, needs_input)
        grad_b_hh = None if self.call.bias_hh is None else flat(adjoint).sum(0) if grad_b is None else grad_b.clone()
        return Gradients(grad_x, [d_h], grad_w, grad_hh, grad_b, grad_b_hh, None)


class RNNLoop(ElmanLoop):
    """The Elman loop with a dense weight; its adjoint is the same loop with the transposed one."""

    def bias_apart(self, output: Tensor) -> Tensor | None:
        """Return the recurrent bias where there are two, and the kernel adds one."""
        if self.call.bias_ih is None or self.call.bias_hh is None or not adds_bias(output):
            return None
        return self.call.bias_hh.contiguous()

    def launch(self, gates: Tensor, output: Tensor, begin: Tensor | None, end: Tensor, **more: Any) -> None:
        """Run ``source/direct.cu`` or ``source/gather.cu``."""
        run_elman(self.weight, gates, output, begin, end, self.rows, slope=self.slope, activation=self.activation, **more)

    def products(self, adjoint: Tensor, states: Tensor, needs_input: bool) -> Products:
        """Return the products with a dense weight."""
        return self.dense_products(adjoint, states, needs_input)


class GatedLoop(GPUFamily):
    """The loops of GRU (reset after) and LSTM; the stash holds gates, and c or the candidate's product."""

    def __init__(self, call: Call, kernel: str) -> None:
        super().__init__(call)
        self.cell, self.gates = CELLS[kernel], self.weight.shape[0] // self.hidden

    def stash_size(self) -> int:
        """Return how many numbers gates and what comes beside them are."""
        return self.steps * self.batch * self.hidden * (self.gates + 1)

    def parts(self, stash: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gates (T, B, G * H) and what comes beside them (T, B, H)."""
        cut = self.steps * self.batch * self.hidden * self.gates
        return stash[:cut].view(self.steps, self.batch, -1), stash[cut:].view(self.steps, self.batch, self.hidden)

    def biases(self) -> tuple[Tensor | None, Tensor | None]:
        """Return the bias of the input part and, of a GRU, the one inside the reset gate."""
        call, wide = self.call, 2 * self.hidden
        if self.cell == CELLS["lstm"]:
            return sum_biases(call), None
        inside = self.starts[0].new_zeros(self.hidden) if call.bias_hh is None else call.bias_hh[wide:].contiguous()
        if call.bias_hh is None:
            return call.bias_ih, inside
        folded = torch.zeros_like(call.bias_hh) if call.bias_ih is None else call.bias_ih.clone()
        folded[:wide] += call.bias_hh[:wide]
        return folded, inside

    def forward(self, keep: bool) -> Forward:
        """Run the loop."""
        outer, inside = self.biases()
        stash = self.stash() if keep else None
        width = self.gates * self.hidden
        gates, extra = (self.call.input.new_empty(self.steps, self.batch, width), None) if stash is None else self.parts(stash)
        self.project(outer, gates)
        output, ends = self.memory(self.hidden), [torch.empty_like(s) for s in self.starts]
        gather(
            self.weight, gates, output, self.starts, ends, self.rows, extra=extra, bias=inside, cell=self.cell, activation=0,
            keep=keep,
        )  # fmt: skip
        return Forward(output, ends, self.call.input.new_empty(0) if stash is None else stash)

    def backward(
        self, done: Forward, grad_output: Tensor | None, grad_state: list[Tensor | None], needs_input: bool
    ) -> Gradients:
        """Run the adjoint."""
        gates, extra = self.parts(done.stash)
        adjoint, ends = self.memory(self.gates * self.hidden), [torch.empty_like(s) for s in self.starts]
        inner = self.memory(self.hidden) if self.cell == CELLS["gru_after"] else None
        scatter(
            self.weight, gates, extra, done.output, self.starts[-1], self.given(grad_output), self.incoming(grad_state),
            adjoint, inner, ends, self.rows, cell=self.cell,
        )  # fmt: skip
        grad_x, grad_w, grad_b, grad_hh = self.dense_products(adjoint, done.output, needs_input, inner)
        grad_b_hh = None if self.call.bias_hh is None else self.inner_bias(grad_b, adjoint, inner)
        return Gradients(grad_x, ends, grad_w, grad_hh, grad_b, grad_b_hh, None)

    def inner_bias(self, outer: Tensor | None, adjoint: Tensor, inner: Tensor | None) -> Tensor:
        """Return the gradient of the recurrent bias: that of the input's except for the candidate's of a GRU."""
        total = flat(adjoint).sum(0) if outer is None else outer.clone()
        if inner is not None:
            total[2 * self.hidden :] = flat(inner).sum(0)
        return total
