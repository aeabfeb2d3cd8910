"""The kernel behind the op: one product before the loop, the loop, and the products after it."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from steadyrnn.cells.base import Cell
from steadyrnn.checks import without_autocast
from steadyrnn.errors import EngineError

from ..loop.call import Call, Forward, Gradients, Kernel
from ..loop.family import flat
from ..loop.segments import run_segments, run_segments_back, segments_like
from .gradients import bias_gradients, input_gradients, start_gradient, weight_gradients
from .launch import Blocks, Loop, blocks_for
from .specs import CellSpec, spec_of

__all__ = ["TritonKernel", "load_kernels"]


def load_kernels() -> ModuleType:
    """Return the module of kernels, the first to import Triton."""
    return import_module("steadyrnn.engines.triton.kernels")


class TritonKernel(Kernel):
    """Runs a call through Triton.

    Args:
        load: Gives the module of kernels: compiled, or interpreted for tests.
        choose: Gives the blocks of a call.
    """

    def __init__(
        self, load: Callable[[], ModuleType] = load_kernels, choose: Callable[[Call, CellSpec], Blocks] = blocks_for
    ) -> None:
        self.load, self.choose = load, choose

    def loop(self, call: Call, spec: CellSpec, back: bool) -> Loop:
        """Return the loop of a call."""
        return Loop(self.load(), call, spec, self.choose(call, spec), back)

    def forward(self, call: Call, cell: Cell, recompute: bool, keep: bool) -> Forward:
        """Run the call."""
        spec, (steps, batch) = require_spec(cell), call.input.shape[:2]
        if steps and batch and recompute:
            return run_segments(self, call, cell)
        stash = self.stash_like(call, cell, recompute) if keep else call.input.new_empty(0)
        output = memory_like(call, 1)
        if steps == 0 or batch == 0:
            return Forward(output, [s.clone() for s in call.state], stash)
        keeps = keep and spec.kept > 0
        with without_autocast(call.input.device), on_device(call.input):
            gates, extra = parts(call, spec, stash) if keeps else (memory_like(call, spec.size), None)
            project(call, spec, gates)
            loop = self.loop(call, spec, back=False)
            loop.seed(loop.shared, 0, call.state[0])
            loop.seed(loop.carry, 0, call.state[-1])  # the GRU's own state in more digits, or the LSTM's cell
            loop.run(keeps, gates=gates, extra=extra, output=output, bias=inner_bias(call, spec), theta=shifts(call, spec))
        finals = [loop.result(loop.shared, 0).clone()]
        if len(call.state) > 1:
            finals.append(loop.result(loop.carry, 0).to(call.input.dtype, copy=True))
        return Forward(output, finals, stash)

    def backward(
        self, call: Call, cell: Cell, recompute: bool, done: Forward, grad_output: Tensor | None,
        grad_state: list[Tensor | None], needs_input: bool,
    ) -> Gradients:  # fmt: skip
        """Run the adjoint."""
        spec = require_spec(cell)
        if call.input.shape[0] == 0 or call.input.shape[1] == 0:
            return no_gradients(call, grad_state, needs_input)
        if recompute:
            return run_segments_back(self, call, cell, done.stash, grad_output, grad_state, needs_input)
        with without_autocast(call.input.device), on_device(call.input):
            gates, extra = parts(call, spec, done.stash) if spec.kept else (done.output, None)
            loop = self.loop(call, spec, back=True)
            for part, grad in enumerate(grad_state):
                if grad is not None:
                    loop.seed(loop.carry, part, grad)
            adjoint = memory_like(call, spec.adjoints)
            grad = None if grad_output is None else grad_output.contiguous()
            start = call.state[-1].contiguous()
            loop.run(
                True, gates=gates, extra=extra, output=done.output, start=start, grad=grad, adjoint=adjoint,
                theta=shifts(call, spec),
            )  # fmt: skip
            grad_x, grad_ih = input_gradients(call, adjoint, needs_input)
            grad_hh = weight_gradients(call, spec, adjoint, done.output, extra)
            state = [start_gradient(loop)]
            if len(call.state) > 1:
                state.append(loop.result(loop.carry, 1).to(call.input.dtype, copy=True))
            theta = theta_gradient(call, loop)
            return Gradients(grad_x, state, grad_ih, grad_hh, *bias_gradients(call, spec, adjoint), theta)

    def stash_like(self, call: Call, cell: Cell, recompute: bool) -> Tensor:
        """Return the shape of the stash: the gates, and the candidate's product or the cell; or the pieces' first states."""
        if recompute:
            return segments_like(call)
        (steps, batch), hidden = call.input.shape[:2], call.state[0].shape[1]
        return call.input.new_empty(steps * batch * hidden * require_spec(cell).kept)


def require_spec(cell: Cell) -> CellSpec:
    """Return the form of a cell that must have one."""
    spec = spec_of(cell)
    if spec is None:
        raise EngineError(f"The triton engine has no kernel for the cell {cell.key!r}.")
    return spec


def on_device(x: Tensor) -> AbstractContextManager[Any]:
    """Return a context in which Triton launches where ``x`` lies."""
    return torch.cuda.device(x.device) if x.device.type == "cuda" else nullcontext()


def shifts(call: Call, spec: CellSpec) -> Tensor | None:
    """Return modReLU's shifts, zero where none were given."""
    if spec.step != "modrelu":
        return None
    return call.input.new_zeros(call.state[0].shape[1] // 2) if call.theta is None else call.theta.contiguous()


def memory_like(call: Call, vectors: int) -> Tensor:
    """Return memory (T, B, ``vectors`` * H)."""
    steps, batch = call.input.shape[:2]
    return call.input.new_empty(steps, batch, vectors * call.state[0].shape[1])


def parts(call: Call, spec: CellSpec, stash: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return a stash as gates (T, B, G * H) and what else there is, (T, B, H) or None."""
    (steps, batch), hidden = call.input.shape[:2], call.state[0].shape[1]
    cut = steps * batch * hidden * spec.size
    gates = stash[:cut].view(steps, batch, spec.size * hidden)
    return gates, stash[cut:].view(steps, batch, hidden) if spec.kept > spec.size else None


def inner_bias(call: Call, spec: CellSpec) -> Tensor | None:
    """Return the candidate's bias that stays inside the reset gate."""
    if spec.step != "gru_after" or call.bias_hh is None:
        return None
    return call.bias_hh[2 * call.state[0].shape[1] :].contiguous()


def project(call: Call, spec: CellSpec, out: Tensor) -> None:
    """Write the input part of every gate at every time to ``out`` (T, B, G * H), biases included."""
    bias = call.bias_ih
    if call.bias_hh is not None:
        outer = call.bias_hh
        if spec.step == "gru_after":
            outer = outer.clone()
            outer[2 * call.state[0].shape[1] :] = 0  # that part is inside the reset gate
        bias = outer if bias is None else bias + outer
    rows, target, weight = flat(call.input), out.view(-1, out.shape[2]), call.weight_ih.t()
    if bias is None:
        torch.mm(rows, weight, out=target)
    else:
        torch.addmm(bias, rows, weight, out=target)


def theta_gradient(call: Call, loop: Loop) -> Tensor | None:
    """Return the gradient of modReLU's shifts from the radial parts that the loop summed per row."""
    if call.theta is None:
        return None
    return loop.result(loop.carry, 1)[:, : loop.gate].sum(0).to(call.theta.dtype)


def no_gradients(call: Call, grad_state: list[Tensor | None], needs_input: bool) -> Gradients:
    """Return zero gradients for a call of no steps or no rows; the state's are those that arrived."""
    state = [torch.zeros_like(s) if g is None else g.clone() for g, s in zip(grad_state, call.state, strict=True)]
    zero = [None if t is None else torch.zeros_like(t) for t in (call.bias_ih, call.bias_hh, call.theta)]
    recurrent = [torch.zeros_like(tensor) for tensor in call.recurrent]
    grad_x = torch.zeros_like(call.input) if needs_input else None
    return Gradients(grad_x, state, torch.zeros_like(call.weight_ih), recurrent, *zero)
