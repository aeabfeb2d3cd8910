"""Custom ops: what ``torch.compile``, ``torch.export`` and autograd see of a whole run over time."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import Parameter

from steadyrnn.cells.base import Cell, State
from steadyrnn.cells.registry import cell_from_key
from steadyrnn.gpu.torch_private import BelowAutograd, count_dispatch_modes, is_legacy_batchedtensor, peek_interpreter_stack

from ..base import Recurrence, unflatten_weight
from ..flop_counter import list_flops, teach_flop_counters
from ..reference import ReferenceEngine
from .call import Call, Forward, Kernel
from .double_backward import gradients_of

__all__ = ["RegisteredOp", "is_kept", "is_plain", "register", "run_op", "wants_graph"]

Tensors = Sequence[Any]
"""The tensors of a call in the order of gradients: input, input weight, state, recurrent weight, both biases, theta."""


class Options(NamedTuple):
    """What a call has beside its tensors."""

    cell: Cell
    reverse: bool
    recompute: bool
    states: int
    factors: int  # tensors of the recurrent weight

    def call(self, tensors: Tensors, sizes: Tensor | None) -> Call:
        """Return the call with these tensors."""
        x, weight_ih, *rest = tensors
        state, recurrent = rest[: self.states], rest[self.states : -3]
        bias_ih, bias_hh, theta = rest[-3:]
        numbers = None if sizes is None else sizes.tolist()
        return Call(x, state, weight_ih, recurrent, bias_ih, bias_hh, theta, numbers, self.reverse)

    def recurrence(self, tensors: Tensors, sizes: Tensor | None) -> Recurrence:
        """Return the recurrence with these tensors, without recomputation."""
        x, weight_ih, *rest = tensors
        state, weight_hh = tuple(rest[: self.states]), unflatten_weight(rest[self.states : -3])
        bias_ih, bias_hh, theta = rest[-3:]
        return Recurrence(self.cell, x, state, weight_ih, weight_hh, bias_ih, bias_hh, theta, sizes, self.reverse)


class RegisteredOp(NamedTuple):
    """The ops of an engine, and the kernel behind them."""

    op: Any
    op_back: Any
    kernel: Kernel


def run_op(registered: RegisteredOp, recurrence: Recurrence, recurrent: Sequence[Tensor]) -> tuple[Tensor, State]:
    """Run a recurrence; ``recurrent`` are the tensors of its recurrent weight, see :func:`unflatten_weight`."""
    run, state = recurrence, recurrence.state
    biases = (run.bias_ih, run.bias_hh, run.theta)
    tensors = (run.input, run.weight_ih, *state, *recurrent, *biases)
    keep = is_kept(tensors)
    if is_plain(tensors):
        options = Options(run.cell, run.reverse, run.recompute, len(state), len(recurrent))
        if keep:
            output, *final = Eager.apply(registered, options, run.batch_sizes, *tensors)  # type: ignore[no-untyped-call]
            return output, tuple(final)
        with BelowAutograd():
            done = registered.kernel.forward(options.call(tensors, run.batch_sizes), run.cell, run.recompute, keep)
        return done.output, tuple(done.state)
    if not torch.compiler.is_compiling():
        teach_flop_counters()
    result = registered.op(
        run.input, run.weight_ih, list(state), list(recurrent), *biases, run.batch_sizes, run.cell.key, run.reverse,
        run.recompute, keep,
    )  # fmt: skip
    return result[0], tuple(result[1 : 1 + len(state)])


def is_plain(tensors: Sequence[Tensor | None]) -> bool:
    """Say whether these are ordinary tensors that nothing is tracing: no compiler, no mode, no subclass, no meta."""
    if torch.compiler.is_compiling() or count_dispatch_modes():
        return False
    return all(t is None or (type(t) in (Tensor, Parameter) and not t.is_meta) for t in tensors)


def is_kept(tensors: Sequence[Tensor | None]) -> bool:
    """Say whether autograd will want a gradient by any of these."""
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def wants_graph(grads: Sequence[Tensor | None]) -> bool:
    """Say whether, in a backward, a second derivative is wanted, or one for many cotangents at once."""
    many = peek_interpreter_stack() is not None or any(g is not None and is_legacy_batchedtensor(g) for g in grads)
    return torch.is_grad_enabled() or many


class Eager(Function):
    """A run without an op around it: for plain tensors in eager mode, where the op's machinery is overhead."""

    @staticmethod
    def forward(ctx: Any, op: RegisteredOp, options: Options, sizes: Tensor | None, *tensors: Any) -> tuple[Tensor, ...]:
        """Run the kernel below autograd and save what its backward needs."""
        with BelowAutograd():
            done = op.kernel.forward(options.call(tensors, sizes), options.cell, options.recompute, True)
        ctx.registered = op
        save(ctx, options, sizes, tensors, done)
        return done.output, *done.state

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return gradients in the order of ``forward``'s arguments."""
        op: RegisteredOp = ctx.registered
        traced = count_dispatch_modes() > 0  # a mode wants to see the op, and not what is inside
        if traced:
            teach_flop_counters()
        return None, None, None, *pull_back(ctx, ctx.needs_input_grad[3:], grads, op.op_back if traced else op.kernel)


def save(ctx: Any, options: Options, sizes: Tensor | None, tensors: Tensors, done: Forward) -> None:
    """Save the arguments and, unless they are recomputed, the outputs."""
    finals = done.state if done.stash.dtype == torch.uint8 else []  # a library's own layer asks for them back
    results = [] if options.recompute else [done.output, *finals]
    ctx.set_materialize_grads(False)
    ctx.options = options
    ctx.save_for_backward(sizes, *tensors, *results, done.stash)


def pull_back(ctx: Any, needs: Sequence[bool], grads: Sequence[Tensor | None], back: Any) -> list[Tensor | None]:
    """Return the gradients of a call's tensors, in their order.

    Args:
        ctx: What :func:`save` saved to.
        needs: Which of the tensors need a gradient.
        grads: Gradients that arrived at the outputs.
        back: The kernel, or the op of its backward.
    """
    options: Options = ctx.options
    sizes, *rest = ctx.saved_tensors
    count = 5 + options.states + options.factors
    tensors, done, arrived = rest[:count], rest[count:], list(grads[: 1 + options.states])
    if all(g is None for g in arrived):
        return [None] * count
    if not torch.compiler.is_compiling() and wants_graph(arrived):

        def run(*views: Any) -> tuple[Tensor, ...]:
            output, state = ReferenceEngine().run(options.recurrence(views, sizes))
            return output, *state

        return gradients_of(run, tensors, needs, arrived, tensors[0].device)
    if isinstance(back, Kernel):
        return run_back(back, options, sizes, tensors, done, arrived, bool(needs[0]))
    x, weight_ih, *rest = tensors
    given = (x, weight_ih, rest[: options.states], rest[options.states : -3], *rest[-3:], sizes, done, arrived)
    found = back(*given, options.cell.key, options.reverse, options.recompute, bool(needs[0]))
    wanted = (needs[0], *(t is not None for t in tensors[1:]))  # an op gives an empty tensor for none
    return [g if want else None for g, want in zip(found, wanted, strict=True)]


def run_back(
    kernel: Kernel, options: Options, sizes: Tensor | None, tensors: Tensors, done: Sequence[Tensor],
    grads: Sequence[Tensor | None], needs_input: bool,
) -> list[Tensor | None]:  # fmt: skip
    """Run the backward of a kernel; return the gradients of a call's tensors, in their order."""
    kept, call = Forward(done[0], list(done[1:-1]), done[-1]), options.call(tensors, sizes)
    found = kernel.backward(call, options.cell, options.recompute, kept, grads[0], list(grads[1:]), needs_input)
    return [found.input, found.weight_ih, *found.state, *found.recurrent, found.bias_ih, found.bias_hh, found.theta]


def register(name: str, device: str, kernel: Kernel) -> RegisteredOp:
    """Register the ops ``steadyrnn::name`` and ``steadyrnn::name_backward`` of a kernel."""
    forward, forward_fake = forward_op(kernel)
    backward, backward_fake = backward_op(kernel)
    op = torch.library.custom_op(f"steadyrnn::{name}", forward, mutates_args=(), device_types=device)
    op_back = torch.library.custom_op(f"steadyrnn::{name}_backward", backward, mutates_args=(), device_types=device)
    op.register_fake(forward_fake)
    op_back.register_fake(backward_fake)
    op.register_autograd(autograd_formula(op_back), setup_context=setup_context)
    list_flops(name)
    return RegisteredOp(op, op_back, kernel)


def forward_op(kernel: Kernel) -> Any:
    """Return the forward function of an op, and its shapes for tracing."""

    def forward(
        x: Tensor, weight_ih: Tensor, state: Sequence[Tensor], recurrent: Sequence[Tensor], bias_ih: Tensor | None,
        bias_hh: Tensor | None, theta: Tensor | None, sizes: Tensor | None, cell: str, reverse: bool, recompute: bool,
        keep: bool,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
        numbers = None if sizes is None else sizes.tolist()
        call = Call(x, list(state), weight_ih, list(recurrent), bias_ih, bias_hh, theta, numbers, reverse)
        done = kernel.forward(call, cell_from_key(cell), recompute, keep)
        c_n = done.state[1] if len(done.state) > 1 else x.new_empty(0)
        return done.output, done.state[0], c_n, done.stash if keep else x.new_empty(0)

    def fake(
        x: Tensor, weight_ih: Tensor, state: Sequence[Tensor], recurrent: Sequence[Tensor], bias_ih: Tensor | None,
        bias_hh: Tensor | None, theta: Tensor | None, sizes: Tensor | None, cell: str, reverse: bool, recompute: bool,
        keep: bool,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
        (steps, batch, _), hidden = x.shape, state[0].shape[1]
        numbers = None if sizes is None else [0]  # what matters for shapes is that there are some
        call = Call(x, list(state), weight_ih, list(recurrent), bias_ih, bias_hh, theta, numbers, reverse)
        c_n = x.new_empty(batch, hidden) if len(state) > 1 else x.new_empty(0)
        stash = kernel.stash_like(call, cell_from_key(cell), recompute) if keep else x.new_empty(0)
        return x.new_empty(steps, batch, hidden), x.new_empty(batch, hidden), c_n, stash

    return forward, fake


def backward_op(kernel: Kernel) -> Any:
    """Return the backward function of an op, and its shapes for tracing."""

    def backward(
        x: Tensor, weight_ih: Tensor, state: Sequence[Tensor], recurrent: Sequence[Tensor], bias_ih: Tensor | None,
        bias_hh: Tensor | None, theta: Tensor | None, sizes: Tensor | None, done: Sequence[Tensor],
        grads: Sequence[Tensor | None], cell: str, reverse: bool, recompute: bool, needs_input: bool,
    ) -> list[Tensor]:  # fmt: skip
        options = Options(cell_from_key(cell), reverse, recompute, len(state), len(recurrent))
        tensors = (x, weight_ih, *state, *recurrent, bias_ih, bias_hh, theta)
        found = run_back(kernel, options, sizes, tensors, done, grads, needs_input)
        return [x.new_empty(0) if g is None else g for g in found]

    def fake(
        x: Tensor, weight_ih: Tensor, state: Sequence[Tensor], recurrent: Sequence[Tensor], bias_ih: Tensor | None,
        bias_hh: Tensor | None, theta: Tensor | None, sizes: Tensor | None, done: Sequence[Tensor],
        grads: Sequence[Tensor | None], cell: str, reverse: bool, recompute: bool, needs_input: bool,
    ) -> list[Tensor]:  # fmt: skip
        listed = (x if needs_input else None, weight_ih, *state, *recurrent, bias_ih, bias_hh, theta)
        return [x.new_empty(0) if t is None else t.new_empty(t.shape) for t in listed]

    return backward, fake


def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    """Save what an op's backward needs."""
    x, weight_ih, state, recurrent, bias_ih, bias_hh, theta, sizes, cell, reverse, recompute, _ = inputs
    out, h_n, c_n, stash = output
    ctx.mark_non_differentiable(stash, *([c_n] if len(state) == 1 else []))
    options = Options(cell_from_key(cell), reverse, recompute, len(state), len(recurrent))
    tensors = (x, weight_ih, *state, *recurrent, bias_ih, bias_hh, theta)
    save(ctx, options, sizes, tensors, Forward(out, [h_n, c_n][: len(state)], stash))


def autograd_formula(back: Any) -> Any:
    """Return the autograd formula of an op, whose arguments hold lists of tensors."""

    def formula(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        states, flags = ctx.options.states, ctx.needs_input_grad
        found = pull_back(ctx, [flags[0], flags[1], *flags[2], *flags[3], *flags[4:7]], grads, back)
        return (found[0], found[1], found[2 : 2 + states], found[2 + states : -3], *found[-3:], *[None] * 5)

    return formula
