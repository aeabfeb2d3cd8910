"""A thin engine over torch's cuDNN op: one layer one way, fed in pieces where cuDNN refuses a length."""

from typing import NamedTuple

import torch
from torch import Tensor

from steadyrnn.cells.base import Cell, State
from steadyrnn.gpu.torch_private import flatten_cudnn_weights

from .base import Engine, Recurrence, stack_gates
from .loop.call import Call, Forward, Gradients, Kernel
from .loop.ops import register, run_op

__all__ = ["PIECE", "CuDNNEngine"]

PIECE = 2**15
"""The longest run cuDNN is given at once; it refuses some lengths above (2^20, for one)."""

_BUILT = torch.backends.cudnn.is_available()  # here, since a compiler cannot look into it
_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


class Layout(NamedTuple):
    """Where the entries of a call lie in what cuDNN is given: every row's own steps in its order of time."""

    rows: int  # rows of length above 0
    sizes: list[int]  # rows running at each step; empty where all run at all
    places: Tensor | None  # (entries,): place of each packed entry in the flat (T * B) data; None where sizes is empty

    def pack(self, data: Tensor, reverse: bool) -> Tensor:
        """Return ``data`` (T, B, N) in the form of cuDNN."""
        if self.places is None:
            return data.flip(0) if reverse else data.contiguous()
        return data.reshape(-1, data.shape[2]).index_select(0, self.places)

    def unpack(self, given: Tensor, steps: int, batch: int, reverse: bool) -> Tensor:
        """Return what cuDNN gave as (T, B, N), zero at padding."""
        if self.places is None:
            return given.flip(0) if reverse else given
        padded = given.new_zeros(steps * batch, given.shape[1])
        return padded.index_copy_(0, self.places, given).view(steps, batch, given.shape[1])


def layout_of(call: Call) -> Layout:
    """Return the layout of a call."""
    batch = call.input.shape[1]
    if call.sizes is None:
        return Layout(batch, [], None)
    sizes = torch.tensor([size for size in call.sizes if size > 0], dtype=torch.int64)
    rows, entries = int(sizes[0]) if len(sizes) else 0, int(sizes.sum())
    time = torch.repeat_interleave(torch.arange(len(sizes)), sizes, output_size=entries)
    row = torch.arange(entries) - (sizes.cumsum(0) - sizes)[time]
    if call.reverse:
        lengths = (torch.tensor(call.sizes).unsqueeze(1) > torch.arange(batch)).sum(0)
        time = lengths[row] - 1 - time
    return Layout(rows, sizes.tolist(), (time * batch + row).to(call.input.device))


class CuDNNKernel(Kernel):
    """Runs a call through ``aten._cudnn_rnn``, in full float32 whatever the process allows elsewhere."""

    def weights(self, call: Call, mode: int) -> tuple[list[Tensor], Tensor]:
        """Return copies of the weights in cuDNN's order, zero for a missing one of two biases, and their one buffer."""
        given = [call.weight_ih, call.recurrent[0]]
        if call.bias_ih is not None or call.bias_hh is not None:
            zero = call.weight_ih.new_zeros(call.weight_ih.shape[0])
            given += [zero if b is None else b for b in (call.bias_ih, call.bias_hh)]
        weights = [w.detach().clone(memory_format=torch.contiguous_format) for w in given]
        sizes = call.input.shape[2], mode, call.state[0].shape[1], 0, 1, False, False
        return weights, flatten_cudnn_weights(weights, len(weights), *sizes)

    def states(self, states: list[Tensor], rows: int) -> list[Tensor]:
        """Return the states of the rows that run, in the form of cuDNN: (1, rows, H)."""
        return [s[:rows].contiguous().unsqueeze(0) for s in states]

    def forward(self, call: Call, cell: Cell, recompute: bool, keep: bool) -> Forward:
        """Run the call; the stash is cuDNN's reserve, and empty where ``recompute`` has the adjoint run the call again."""
        keep = keep and not recompute
        steps, batch = call.input.shape[:2]
        layout, hidden, mode = layout_of(call), call.state[0].shape[1], cell.record.cudnn_mode or 0
        finals = [s.clone() for s in call.state]
        if layout.rows == 0 or steps == 0:
            return Forward(call.input.new_zeros(steps, batch, hidden), finals, self.stash_of(call, 0))
        weights, buffer = self.weights(call, mode)
        h, *c = self.states(call.state, layout.rows)
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            out, h_n, c_n, reserve, _ = torch.ops.aten._cudnn_rnn(
                layout.pack(call.input, call.reverse), weights, len(weights), buffer, h, c[0] if c else None, mode, hidden,
                0, 1, False, 0.0, keep, False, layout.sizes, None,
            )  # fmt: skip
        for state, new in zip(finals, (h_n, c_n), strict=False):
            state[: layout.rows] = new[0]
        return Forward(layout.unpack(out, steps, batch, call.reverse), finals, reserve if keep else self.stash_of(call, 0))

    def backward(
        self, call: Call, cell: Cell, recompute: bool, done: Forward, grad_output: Tensor | None,
        grad_state: list[Tensor | None], needs_input: bool,
    ) -> Gradients:  # fmt: skip
        """Run cuDNN's adjoint."""
        done = self.forward(call, cell, False, True) if recompute else done
        steps, batch = call.input.shape[:2]
        layout, hidden, mode = layout_of(call), call.state[0].shape[1], cell.record.cudnn_mode or 0
        d_state = [torch.zeros_like(s) if g is None else g.clone() for g, s in zip(grad_state, call.state, strict=True)]
        if layout.rows == 0 or steps == 0:
            return self.no_gradients(call, d_state, needs_input)
        weights, buffer = self.weights(call, mode)
        h, *c = self.states(call.state, layout.rows)
        g_h, *g_c = self.states(d_state, layout.rows)
        grad = torch.zeros_like(done.output) if grad_output is None else grad_output
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            d_x, d_h, d_c, d_w = torch.ops.aten._cudnn_rnn_backward(
                layout.pack(call.input, call.reverse), weights, len(weights), buffer, h, c[0] if c else None,
                layout.pack(done.output, call.reverse), layout.pack(grad, call.reverse), g_h, g_c[0] if g_c else None, mode,
                hidden, 0, 1, False, 0.0, True, False, layout.sizes, None, done.stash.clone(), [True, True, bool(c), True],
            )  # fmt: skip
        for total, new in zip(d_state, (d_h, d_c), strict=False):
            total[: layout.rows] = new[0]
        d_x = layout.unpack(d_x, steps, batch, call.reverse) if needs_input else None
        d_b = [None if b is None else d_w[2 + i] for i, b in enumerate((call.bias_ih, call.bias_hh))]
        d_w = [w.clone() for w in d_w[:2]]  # views of one buffer
        b_ih, b_hh = (None if b is None else b.clone() for b in d_b)
        return Gradients(d_x, d_state, d_w[0], [d_w[1]], b_ih, b_hh, None)

    def no_gradients(self, call: Call, d_state: list[Tensor], needs_input: bool) -> Gradients:
        """Return zero gradients for a call in which no row runs."""
        d_x = torch.zeros_like(call.input) if needs_input else None
        b_ih, b_hh = (None if b is None else torch.zeros_like(b) for b in (call.bias_ih, call.bias_hh))
        d_w, d_hh = torch.zeros_like(call.weight_ih), torch.zeros_like(call.recurrent[0])
        return Gradients(d_x, d_state, d_w, [d_hh], b_ih, b_hh, None)

    def stash_of(self, call: Call, size: int) -> Tensor:
        """Return memory of ``size`` bytes."""
        return torch.empty(size, dtype=torch.uint8, device=call.input.device)

    def stash_like(self, call: Call, cell: Cell, recompute: bool) -> Tensor:
        """Return a reserve of a size that only cuDNN knows; none where the call is run again."""
        if recompute:
            return self.stash_of(call, 0)
        return self.stash_of(call, torch.library.get_ctx().new_dynamic_size())  # type: ignore[arg-type]


OP = register("cudnn", "cuda", CuDNNKernel())


class CuDNNEngine(Engine):
    """tanh, relu, GRU (reset after) and LSTM on an NVIDIA GPU, at cuDNN's speed.

    In float32 cuDNN's own tanh and sigmoid err by up to 170 units of rounding, more than the twice of the reference's error
    that our engines keep to; products are in full float32. In float64 it keeps to it.
    """

    name = "cudnn"

    def refusal(self, recurrence: Recurrence) -> str | None:
        """Return why not: another device, a cell or dtype cuDNN lacks, nothing to run, or recomputation."""
        x = recurrence.input
        if x.device.type != "cuda":
            return f"its tensors are on {x.device.type}"
        if recurrence.cell.record.cudnn_mode is None:
            return f"cuDNN has no cell {recurrence.cell.key}"
        if not _BUILT:
            return "torch has no cuDNN here"
        if x.dtype not in _DTYPES:
            return f"its dtype is {x.dtype}"
        if recurrence.recompute:
            return "cuDNN keeps every state, and recompute was requested"
        return "the batch is empty" if x.shape[1] == 0 else None

    def run(self, recurrence: Recurrence) -> tuple[Tensor, State]:
        """Run piece by piece; shapes as in :class:`~steadyrnn.engines.base.Engine`.

        A compiler needs the size of all that a call keeps, which only cuDNN knows: there the adjoint runs the call again.
        """
        recurrence = recurrence._replace(recompute=torch.compiler.is_compiling())
        dense = stack_gates(recurrence.weight_hh, recurrence.input.dtype)
        steps = recurrence.input.shape[0]
        if steps <= PIECE:
            return run_op(OP, recurrence, [dense])
        starts = list(range(0, steps, PIECE))
        outputs, state = [], recurrence.state
        for start in reversed(starts) if recurrence.reverse else starts:
            part = slice(start, start + PIECE)
            sizes = None if recurrence.batch_sizes is None else recurrence.batch_sizes[part]
            piece = recurrence._replace(input=recurrence.input[part], state=state, batch_sizes=sizes)
            output, state = run_op(OP, piece, [dense])
            outputs.append(output)
        return torch.cat(outputs[::-1] if recurrence.reverse else outputs), state
