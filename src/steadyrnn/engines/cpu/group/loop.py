"""What the loops of a group share: memory by network, projections and weight gradients by block of time."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

from steadyrnn.cells.base import Cell

from ...loop.call import Call, Forward, Gradients
from ...loop.family import Steps, scratch

__all__ = ["GroupLoop", "Sums"]

_BLOCK = 16  # times whose projections, factors and adjoints exist at once: they stay in the cache


class GroupLoop(ABC):
    """The loop of a cell over a call of R networks.

    States are in memory by network, (R, T, B, H). So products over all time are batched products without a copy, and a
    time step is R pieces of B * H numbers, which are long enough for vector instructions. Each batched product of a step
    goes to memory of its own without gaps: torch would multiply matrix by matrix otherwise.

    Args:
        call: Input (T, R, B, D), states (R, B, H); every weight and bias has R in front of its shape.
        cell: What is run.
    """

    def __init__(self, call: Call, cell: Cell) -> None:
        self.call, self.cell = call, cell
        self.steps, self.members, self.rows, width = call.input.shape
        self.hidden = call.state[0].shape[-1]
        self.input = call.input.transpose(0, 1).reshape(self.members, self.steps * self.rows, width)

    @abstractmethod
    def forward(self, keep: bool) -> Forward:
        """Run the loop; with ``keep`` the stash holds what :meth:`backward` needs."""

    @abstractmethod
    def backward(
        self, done: Forward, grad_output: Tensor | None, grad_state: list[Tensor | None], needs_input: bool
    ) -> Gradients:
        """Run the adjoint."""

    def blocks(self) -> list[range]:
        """Return all times, some at once, in order."""
        return [range(start, min(start + _BLOCK, self.steps)) for start in range(0, self.steps, _BLOCK)]

    def new_states(self, steps: int) -> Tensor:
        """Return memory for states, by network, as (T, R, B, H)."""
        return self.call.input.new_empty(self.members, steps, self.rows, self.hidden).transpose(0, 1)

    def scratch(self, name: str, *shape: int) -> Tensor:
        """Return memory that the next call with this name may overwrite."""
        return scratch(f"group {name}", shape, self.call.input)

    def projections(self, weight: Tensor, bias: Tensor | None) -> Iterator[Tensor]:
        """Yield the input part of the gates at each time, (R, B, N), which lasts until the next block of times.

        Args:
            weight: Shape (R, N, D).
            bias: Shape (R, N).
        """
        for times in self.blocks():
            x = self.during(self.input, times)
            gates = self.scratch("gates", self.members, x.shape[1], weight.shape[1])
            if bias is None:
                torch.bmm(x, weight.mT, out=gates)
            else:
                torch.baddbmm(bias.unsqueeze(1), x, weight.mT, out=gates)
            yield from gates.unflatten(1, (len(times), self.rows)).unbind(1)

    def during(self, tensor: Tensor, times: range) -> Tensor:
        """Return the part of ``tensor`` (R, T * B, N) at some times."""
        return tensor[:, times.start * self.rows : times.stop * self.rows]

    def by_network(self, states: Tensor) -> Tensor:
        """Return ``states`` (T, R, B, H) as (R, T * B, H)."""
        return states.transpose(0, 1).reshape(self.members, self.steps * self.rows, self.hidden)

    def adjoint_memory(self, times: range, gates: int) -> tuple[Tensor, list[Tensor]]:
        """Return scratch for the adjoints of a block, (R, k * B, G * H), and its part at each time, (R, B, G, H)."""
        memory = self.scratch("adjoint", self.members, len(times) * self.rows, gates * self.hidden)
        return memory, list(memory.view(self.members, len(times), self.rows, gates, self.hidden).unbind(1))

    def arrive(self, carry: Tensor, grads: Steps | None, time: int) -> None:
        """Add the gradient that arrives at the output of ``time`` to ``carry`` (R, B, H)."""
        if grads is not None and time >= 0:
            carry.add_(grads[time])

    def carry(self, grad: Tensor | None, like: Tensor) -> Tensor:
        """Return the adjoint of the final state as a tensor that the loop may overwrite."""
        return torch.zeros_like(like) if grad is None else grad.clone(memory_format=torch.contiguous_format)


class Sums:
    r"""Gradients of the weights, summed over blocks of time: :math:`\sum_t x_t^\top a_t` and :math:`\sum_t h_{t-1}^\top a_t`.

    The narrow factor is the left one of each product: MKL is several times slower the other way round.

    Args:
        loop: The loop.
        states: Its states after each step, (T, R, B, H).
        gates: How many gates the adjoints have.
        needs_input: Whether the gradient of the input is wanted.
        weight: The input weight for it, (R, G * H, D).

    Attributes:
        outside: Gradient of the input weight, (R, D, G * H).
        recurrent: Gradient of the recurrent weight, (R, H, G * H).
        bias: Gradient of a bias, (R, G * H).
        input: Gradient of the input, (R, T * B, D), or None.
    """

    def __init__(self, loop: GroupLoop, states: Tensor, gates: int, needs_input: bool, weight: Tensor) -> None:
        self.loop, self.states, self.start, self.weight = loop, loop.by_network(states), loop.call.state[0], weight
        zeros, width = loop.call.input.new_zeros, gates * loop.hidden
        self.outside = zeros(loop.members, loop.input.shape[-1], width)
        self.recurrent = zeros(loop.members, loop.hidden, width)
        self.bias = zeros(loop.members, width)
        self.input = torch.empty_like(loop.input) if needs_input else None

    def add(self, times: range, adjoint: Tensor) -> None:
        """Add what the adjoints (R, k * B, G * H) of a block give."""
        loop, rows = self.loop, self.loop.rows
        self.outside.baddbmm_(loop.during(loop.input, times).mT, adjoint)
        self.bias.add_(adjoint.sum(1))
        late = adjoint if times.start else adjoint[:, rows:]
        early = loop.during(self.states, range(max(times.start - 1, 0), times.stop - 1))
        self.recurrent.baddbmm_(early.mT, late)
        if times.start == 0:
            self.recurrent.baddbmm_(self.start.mT, adjoint[:, :rows])
        if self.input is not None:
            loop.during(self.input, times).copy_(torch.bmm(adjoint, self.weight))

    def grad_input(self) -> Tensor | None:
        """Return the gradient of the input, (T, R, B, D)."""
        if self.input is None:
            return None
        loop = self.loop
        return self.input.view(loop.members, loop.steps, loop.rows, self.input.shape[-1]).transpose(0, 1)

    def gradients(self, state: list[Tensor], recurrent: Tensor | None = None) -> Gradients:
        """Return all gradients, where both biases are added to the same sums; ``recurrent`` in place of this one's."""
        call = self.loop.call
        bias_ih, bias_hh = (None if bias is None else self.bias.clone() for bias in (call.bias_ih, call.bias_hh))
        weight_hh = self.recurrent if recurrent is None else recurrent
        return Gradients(self.grad_input(), state, self.outside.mT, [weight_hh.mT], bias_ih, bias_hh, None)
