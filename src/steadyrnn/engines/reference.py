"""The plain loop: any dtype and device, differentiable to any order and in forward mode. Every engine answers to it."""

import math

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from steadyrnn.cells.base import Recur, State
from steadyrnn.checks import carries_transform, is_traced

from .base import Engine, Gate, Recurrence, as_gates

__all__ = ["ReferenceEngine", "running_rows"]

_BLOCK = 64  # steps whose outputs are tensors of their own: one for each step would be most of a long run's memory


def running_rows(batch_sizes: Tensor, rows: int, device: torch.device) -> Tensor:
    """Return which rows still run at each time, shape (T, B).

    Example:
        >>> running_rows(torch.tensor([2, 1]), 2, torch.device("cpu"))
        tensor([[ True,  True],
                [ True, False]])
    """
    return batch_sizes.to(device).unsqueeze(1) > torch.arange(rows, device=device)


def multiplied(v: Tensor, gate: Gate, bias: Tensor | None) -> Tensor:
    r"""Return :math:`v W^\top`, plus the bias where there is one.

    Example:
        >>> multiplied(torch.ones(1, 2), torch.eye(2), None)
        tensor([[1., 1.]])
    """
    if isinstance(gate, Tensor):
        return torch.nn.functional.linear(v, gate, bias)
    return gate.apply(v) if bias is None else gate.apply(v) + bias


def recurrent_product(recurrence: Recurrence) -> Recur:
    """Return the product with named rows of the recurrent weight that a cell's step asks for."""
    gates, weight, bias = recurrence.cell.gates, recurrence.weight_hh, recurrence.bias_hh
    if not isinstance(weight, Tensor):
        operators = dict(zip(gates, (gate.to(recurrence.input.dtype) for gate in as_gates(weight)), strict=True))
        biases = dict.fromkeys(gates) if bias is None else dict(zip(gates, bias.chunk(len(gates)), strict=True))
        return lambda v, names: torch.cat([multiplied(v, operators[name], biases[name]) for name in names], dim=-1)
    size = weight.shape[1]

    def recur(v: Tensor, names: str) -> Tensor:
        start = gates.index(names) * size
        rows = slice(start, start + len(names) * size)
        return torch.nn.functional.linear(v, weight[rows], None if bias is None else bias[rows])

    return recur


class ReferenceEngine(Engine):
    r"""The loop :math:`s_t = \text{step}(x_t, s_{t-1})`, written with differentiable tensor operations only.

    Example:
        >>> from steadyrnn.cells.registry import CELLS
        >>> run = Recurrence(CELLS["rnn-identity"], torch.ones(3, 1, 1), (torch.zeros(1, 1),), torch.ones(1, 1), torch.eye(1))
        >>> ReferenceEngine().run(run)[0].flatten()
        tensor([1., 2., 3.])
    """

    name = "reference"

    def refusal(self, recurrence: Recurrence) -> str | None:
        """Return None: the reference refuses nothing."""
        return None

    def run(self, recurrence: Recurrence) -> tuple[Tensor, State]:
        """Run the loop; shapes as in :class:`~steadyrnn.engines.base.Engine`."""
        if recurrence.recompute and torch.is_grad_enabled() and not carries_transform(*recurrence.tensors):
            return self._run_pieces(recurrence._replace(recompute=False))
        return self._run_whole(recurrence)

    def _run_pieces(self, recurrence: Recurrence) -> tuple[Tensor, State]:
        """Run pieces of about sqrt(T) steps, of which autograd keeps the initial states only and runs the rest again."""
        x, state, sizes = recurrence.input, recurrence.state, recurrence.batch_sizes
        length = math.isqrt(max(x.shape[0] - 1, 0)) + 1
        starts = list(range(0, x.shape[0], length))
        outputs: list[Tensor] = []
        for start in reversed(starts) if recurrence.reverse else starts:
            part = slice(start, start + length)
            piece = recurrence._replace(input=x[part], state=state, batch_sizes=None if sizes is None else sizes[part])
            output, state = checkpoint(self._run_whole, piece, use_reentrant=False)
            outputs.append(output)
        if not outputs:
            return self._run_whole(recurrence)
        return torch.cat(outputs[::-1] if recurrence.reverse else outputs), state

    def _run_whole(self, recurrence: Recurrence) -> tuple[Tensor, State]:
        x, state, cell = recurrence.input, recurrence.state, recurrence.cell
        steps, rows = x.shape[0], x.shape[1]
        recur = recurrent_product(recurrence)
        gates_x = torch.nn.functional.linear(x, recurrence.weight_ih, recurrence.bias_ih)  # (T, B, G * H)
        running = None
        if recurrence.batch_sizes is not None:
            running = running_rows(recurrence.batch_sizes, rows, x.device).unsqueeze(-1)
        outputs: list[Tensor] = []  # of the last steps
        blocks: list[Tensor] = []  # of those before
        # a traced run holds so many steps: taken apart like this, it refuses another length, which it would else cut off
        gates_at = gates_x.unbind(0) if is_traced() else gates_x
        for t in reversed(range(steps)) if recurrence.reverse else range(steps):
            new = cell.step(gates_at[t], state, recur, recurrence.theta)
            if running is None:
                state, output = new, new[0]
            else:
                on = running[t]
                state = tuple(torch.where(on, after, before) for after, before in zip(new, state, strict=True))
                output = torch.where(on, new[0], torch.zeros_like(new[0]))
            outputs.append(output)
            if len(outputs) == _BLOCK:
                blocks.append(joined(outputs, recurrence.reverse))
                outputs = []
        if steps == 0:
            return gates_x.new_empty(0, rows, state[0].shape[-1]), state
        blocks += [joined(outputs, recurrence.reverse)] if outputs else []
        return blocks[0] if len(blocks) == 1 else torch.cat(blocks[::-1] if recurrence.reverse else blocks), state


def joined(outputs: list[Tensor], reverse: bool) -> Tensor:
    """Return outputs, in the order in which they were run, as one tensor in the order of time.

    Example:
        >>> joined([torch.tensor(1.0), torch.tensor(2.0)], reverse=True)
        tensor([2., 1.])
    """
    return torch.stack(outputs[::-1] if reverse else outputs)
