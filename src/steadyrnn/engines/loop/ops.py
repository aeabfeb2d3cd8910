"""Custom ops: what ``torch.compile``, ``torch.export`` and autograd see of a whole run over time."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import Parameter

from steadyrnn.cells.base import State
from steadyrnn.cells.registry import cell_from_key

from ..base import Recurrence
from ..flop_counter import list_flops, teach_flop_counters
from ..reference import ReferenceEngine
from ..weights import grouped
from .call import Call, Forward, Kernel
from .double_backward import gradients_of, wants_graph

__all__ = ["RegisteredOp", "is_kept", "is_plain", "register", "run_op"]


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
        numbers = None if sizes is None else sizes.tolist()
        call = Call(x, list(state), weight_ih, list(recurrent), bias_ih, bias_hh, theta, numbers, reverse)
        kept = Forward(done[0], list(done[1:-1]), done[-1])
        found = kernel.backward(call, cell_from_key(cell), recompute, kept, grads[0], list(grads[1:]), needs_input)
        listed = (
            found.input,
            found.weight_ih,
            *found.state,
            *found.recurrent,
            found.bias_ih,
            found.bias_hh,
            found.theta,
        )
        return [x.new_empty(0) if g is None else g for g in listed]

    def fake(
        x: Tensor, weight_ih: Tensor, state: Sequence[Tensor], recurrent: Sequence[Tensor], bias_ih: Tensor | None,
        bias_hh: Tensor | None, theta: Tensor | None, sizes: Tensor | None, done: Sequence[Tensor],
        grads: Sequence[Tensor | None], cell: str, reverse: bool, recompute: bool, needs_input: bool,
    ) -> list[Tensor]:  # fmt: skip
        listed = (x if needs_input else None, weight_ih, *state, *recurrent, bias_ih, bias_hh, theta)
        return [x.new_empty(0) if t is None else t.new_empty(t.shape) for t in listed]

    return backward, fake


class Kept(NamedTuple):
    """What a call leaves on the autograd context beside its tensors."""

    cell: str
    reverse: bool
    recompute: bool
    states: int
    factors: int


def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    """Save the arguments and, unless they are recomputed, the outputs."""
    x, weight_ih, state, recurrent, bias_ih, bias_hh, theta, sizes, cell, reverse, recompute, _ = inputs
    out, h_n, c_n, stash = output
    ctx.mark_non_differentiable(stash, *([c_n] if len(state) == 1 else []))
    ctx.set_materialize_grads(False)
    finals = [h_n, c_n][: len(state)] if stash.dtype == torch.uint8 else []  # a library's own layer asks for them back
    done = [stash, stash] if recompute else [out, *finals, stash]
    ctx.kept = Kept(cell, reverse, recompute, len(state), len(recurrent))
    ctx.save_for_backward(x, weight_ih, bias_ih, bias_hh, theta, sizes, *state, *recurrent, *done)


def rebuilt(kept: Kept, tensors: Sequence[Any], sizes: Tensor | None) -> Recurrence:
    """Return the recurrence of a call from its tensors: input, input weight, state, recurrent weight, biases, theta."""
    x, weight_ih, *rest = tensors
    state, recurrent = tuple(rest[: kept.states]), rest[kept.states : -3]
    bias_ih, bias_hh, theta = rest[-3:]
    return Recurrence(
        cell_from_key(kept.cell), x, state, weight_ih, grouped(recurrent), bias_ih, bias_hh, theta, sizes, kept.reverse
    )


def plainly(recurrence: Recurrence) -> tuple[Tensor, ...]:
    """Return output and final states of the reference loop."""
    output, state = ReferenceEngine().run(recurrence)
    return output, *state


def pulled_back(
    kept: Kept, saved: Sequence[Any], needs: Sequence[bool], grads: Sequence[Tensor | None], back: Any
) -> list[Tensor | None]:
    """Return the gradients of input, input weight, state, recurrent weight, biases and theta, in this order.

    Args:
        kept: What the call left beside tensors.
        saved: What :func:`setup_context` saved.
        needs: Which of the tensors need a gradient, in the same order.
        grads: Gradients that arrived at the outputs.
        back: The backward function, or the op of it.
    """
    x, weight_ih, bias_ih, bias_hh, theta, sizes, *rest = saved
    state, rest = rest[: kept.states], rest[kept.states :]
    recurrent, done = rest[: kept.factors], rest[kept.factors :]
    arrived: list[Tensor | None] = list(grads[: 1 + kept.states])
    tensors = (x, weight_ih, *state, *recurrent, bias_ih, bias_hh, theta)
    if all(g is None for g in arrived):
        return [None] * len(tensors)
    if not torch.compiler.is_compiling() and wants_graph(arrived):
        return gradients_of(lambda *views: plainly(rebuilt(kept, views, sizes)), tensors, needs, arrived, x.device)
    given = (x, weight_ih, state, recurrent, bias_ih, bias_hh, theta, sizes, done, arrived)
    found = back(*given, kept.cell, kept.reverse, kept.recompute, bool(needs[0]))
    wanted = (needs[0], *(t is not None for t in tensors[1:]))
    return [g if want else None for g, want in zip(found, wanted, strict=True)]


def autograd_formula(back: Any) -> Any:
    """Return the autograd formula of an op, whose arguments hold lists of tensors."""

    def formula(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        kept, flags = ctx.kept, ctx.needs_input_grad
        needs = [flags[0], flags[1], *flags[2], *flags[3], *flags[4:7]]
        found = pulled_back(kept, ctx.saved_tensors, needs, grads, back)
        d_state, d_recurrent = found[2 : 2 + kept.states], found[2 + kept.states : -3]
        return (found[0], found[1], d_state, d_recurrent, *found[-3:], None, None, None, None, None)

    return formula


class Eager(Function):
    """The same run without an op around it: for plain tensors in eager mode, where the op's machinery is overhead."""

    @staticmethod
    def forward(ctx: Any, op: "RegisteredOp", kept: Kept, sizes: Tensor | None, *tensors: Any) -> tuple[Tensor, ...]:
        """Run the kernel below autograd and save what the adjoint needs; ``tensors`` are in the order of gradients."""
        inputs = inputs_of(kept, sizes, tensors, keep=True)
        with torch._C._AutoDispatchBelowAutograd():
            result: tuple[Tensor, Tensor, Tensor, Tensor] = op.forward(*inputs)
        setup_context(ctx, inputs, result)
        ctx.registered = op
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return gradients in the order of ``forward``'s arguments."""
        traced = torch._C._len_torch_dispatch_stack() > 0  # a mode wants to see the op, and not what is inside
        if traced:
            teach_flop_counters()
        back = ctx.registered.op_back if traced else ctx.registered.backward
        return None, None, None, *pulled_back(ctx.kept, ctx.saved_tensors, ctx.needs_input_grad[3:], grads, back)


class RegisteredOp(NamedTuple):
    """An op and the functions behind it."""

    op: Any
    op_back: Any
    forward: Any
    backward: Any


def register(name: str, device: str, kernel: Kernel) -> RegisteredOp:
    """Register the ops ``steadyrnn::name`` and ``steadyrnn::name_backward`` and return the first."""
    forward, forward_fake = forward_op(kernel)
    backward, backward_fake = backward_op(kernel)
    op = torch.library.custom_op(f"steadyrnn::{name}", forward, mutates_args=(), device_types=device)
    op_back = torch.library.custom_op(f"steadyrnn::{name}_backward", backward, mutates_args=(), device_types=device)
    op.register_fake(forward_fake)
    op_back.register_fake(backward_fake)
    op.register_autograd(autograd_formula(op_back), setup_context=setup_context)
    list_flops(name)
    return RegisteredOp(op, op_back, forward, backward)


def is_plain(tensors: Sequence[Tensor | None]) -> bool:
    """Say whether these are ordinary tensors that nothing is tracing: no compiler, no mode, no subclass, no meta."""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
        return False
    return all(t is None or (type(t) in (Tensor, Parameter) and not t.is_meta) for t in tensors)


def is_kept(tensors: Sequence[Tensor | None]) -> bool:
    """Say whether autograd will want a gradient by any of these."""
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def run_plain(
    registered: RegisteredOp, kept: Kept, sizes: Tensor | None, tensors: Sequence[Tensor | None], keep: bool
) -> tuple[Tensor, ...]:
    """Run the kernel without an op around it, on tensors in the order of gradients; for autograd only if ``keep``."""
    if keep:
        result: tuple[Tensor, ...] = Eager.apply(registered, kept, sizes, *tensors)  # type: ignore[no-untyped-call]
        return result
    with torch._C._AutoDispatchBelowAutograd():
        result = registered.forward(*inputs_of(kept, sizes, tensors, keep))
    return result


def inputs_of(kept: Kept, sizes: Tensor | None, tensors: Sequence[Any], keep: bool) -> tuple[Any, ...]:
    """Return the arguments of the forward function from tensors in the order of gradients."""
    x, weight_ih, *rest = tensors
    state, recurrent = rest[: kept.states], rest[kept.states : -3]
    return (x, weight_ih, state, recurrent, *rest[-3:], sizes, kept.cell, kept.reverse, kept.recompute, keep)


def run_op(registered: RegisteredOp, recurrence: Recurrence, recurrent: Sequence[Tensor]) -> tuple[Tensor, State]:
    """Run a recurrence; ``recurrent`` are the tensors of its recurrent weight, see :func:`grouped`."""
    run, state = recurrence, list(recurrence.state)
    biases = (run.bias_ih, run.bias_hh, run.theta)
    tensors = (run.input, run.weight_ih, *state, *recurrent, *biases)
    keep = is_kept(tensors)
    if is_plain(tensors):
        kept = Kept(run.cell.key, run.reverse, run.recompute, len(state), len(recurrent))
        result = run_plain(registered, kept, run.batch_sizes, tensors, keep)
    else:
        if not torch.compiler.is_compiling():
            teach_flop_counters()
        result = registered.op(
            run.input, run.weight_ih, state, list(recurrent), *biases, run.batch_sizes, run.cell.key, run.reverse,
            run.recompute, keep,
        )  # fmt: skip
    return result[0], tuple(result[1 : 1 + run.cell.states])
