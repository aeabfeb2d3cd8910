"""Many independent networks of one size at once: the loops of the CPU engine with batched products."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from steadyrnn.cells.base import State
from steadyrnn.errors import DtypeError, EngineError, ShapeError
from steadyrnn.gpu.torch_private import BelowAutograd

from ..base import Recurrence, flatten_weight
from ..loop.ops import Options, is_kept, run_back, save
from .engine import LOOPS, CPUKernel

__all__ = ["group_refusal", "run_group"]

_KERNEL = CPUKernel(whole=False)  # oneDNN runs one network at a time


def group_refusal(recurrence: Recurrence) -> str | None:
    """Return why networks with such a cell cannot run as a group, as a clause that ends a sentence; None if they can.

    Example:
        >>> from steadyrnn.cells.registry import CELLS
        >>> zero = torch.zeros(1, 2, 2)
        >>> group_refusal(Recurrence(CELLS["rnn-modrelu"], zero, (zero[0],), zero, zero))
        'the activation modrelu does not work entry by entry'
    """
    record = recurrence.cell.record
    if record.kernel not in LOOPS:
        return f"there is no loop for the cell {recurrence.cell.key}"
    if record.activation is not None and not record.activation.elementwise:
        return f"the activation {record.activation.name} does not work entry by entry"
    if recurrence.theta is not None:
        return "its activation has a learned parameter"
    return None


def run_group(recurrence: Recurrence) -> tuple[Tensor, State]:
    r"""Run R independent networks with one cell over time.

    .. math:: h_t^{(r)} = \text{step}(U_r x_t^{(r)} + b_r,\; W_r h_{t-1}^{(r)}), \qquad r = 1, \dots, R

    A time step of a small network takes as long as starting its operations. Here each operation of a step is started once
    for all networks: products are batched (``torch.baddbmm``), the rest works entry by entry. So no number of one network
    reaches another, also where it is NaN. Input projections and weight gradients are one batched product over all time.
    Nothing here is bound to the CPU: on a GPU the same operations run, one launch each.

    Args:
        recurrence: Every weight has R in front of its shape: (R, G * H, D), (R, G * H, H), (R, G * H). The rows of input
            (T, R * B, D) and states (R * B, H) lie one network after another. All rows run over all time, forwards.

    Returns:
        Outputs (T, R * B, H), and the final state, each (R * B, H). They are differentiable once.

    Raises:
        EngineError: The cell has no loop for groups.
        ShapeError: Weights and rows do not fit each other.

    Example:
        >>> from steadyrnn.cells.registry import CELLS
        >>> weight = torch.tensor([1.0, 2.0]).view(2, 1, 1)
        >>> x, zero = torch.ones(3, 2, 1), torch.zeros(2, 1)
        >>> run_group(Recurrence(CELLS["rnn-identity"], x, (zero,), torch.ones(2, 1, 1), weight))[0].squeeze(-1).T
        tensor([[1., 2., 3.],
                [1., 3., 7.]])
    """
    refusal = group_refusal(recurrence)
    if refusal is not None:
        raise EngineError(f"These networks cannot run as a group: {refusal}. Run them one by one.")
    run, weight = recurrence, recurrence.weight_hh
    recurrent = flatten_weight(weight)
    if not isinstance(weight, Tensor):
        raise EngineError("`recurrence.weight_hh` must be one dense tensor (R, G * H, H) for a group, but is in parts.")
    if run.batch_sizes is not None or run.reverse or run.recompute:
        raise EngineError("A group runs forwards over all time: leave out `batch_sizes`, `reverse` and `recompute`.")
    _check_shapes(run, weight)
    tensors = (run.input, run.weight_ih, *run.state, *recurrent, run.bias_ih, run.bias_hh, None)
    options = Options(run.cell, False, False, len(run.state), 1)
    if is_kept(tensors):
        output, *final = _GroupRun.apply(options, *tensors)  # type: ignore[no-untyped-call]
        return output, tuple(final)
    with BelowAutograd():
        done = _KERNEL.forward(options.call(tensors, None), run.cell, False, False)
    return done.output, tuple(done.state)


class _GroupRun(Function):
    """A run of a group for autograd."""

    @staticmethod
    def forward(ctx: Any, options: Options, *tensors: Any) -> tuple[Tensor, ...]:
        """Run the loop below autograd and save what its adjoint needs."""
        with BelowAutograd():
            done = _KERNEL.forward(options.call(tensors, None), options.cell, False, True)
        save(ctx, options, None, tensors, done)
        return done.output, *done.state

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return gradients in the order of ``forward``'s arguments."""
        options: Options = ctx.options
        _, *rest = ctx.saved_tensors
        count = 5 + options.states + options.factors
        needs_input = bool(ctx.needs_input_grad[1])
        found = run_back(_KERNEL, options, None, rest[:count], rest[count:], grads, needs_input)
        return None, *found


def _check_shapes(run: Recurrence, weight: Tensor) -> None:
    """Refuse weights and rows that do not fit each other."""
    members, size, gates = weight.shape[0], run.state[0].shape[-1], len(run.cell.gates)
    rows, width = run.input.shape[-2:]
    wanted: list[tuple[str, Tensor | None, Sequence[int]]] = [
        ("weight_ih", run.weight_ih, (members, gates * size, width)),
        ("weight_hh", weight, (members, gates * size, size)),
        *((name, bias, (members, gates * size)) for name, bias in (("bias_ih", run.bias_ih), ("bias_hh", run.bias_hh))),
        *(("state", state, (rows, size)) for state in run.state),
    ]
    for name, tensor, shape in wanted:
        if tensor is not None and tuple(tensor.shape) != tuple(shape):
            raise ShapeError(f"`recurrence.{name}` must have shape {tuple(shape)}, but has {tuple(tensor.shape)}.")
        if tensor is not None and (tensor.dtype, tensor.device) != (run.input.dtype, run.input.device):
            raise DtypeError(
                f"`recurrence.{name}` must have the input's dtype and device, {run.input.dtype} on {run.input.device}, but "
                f"has {tensor.dtype} on {tensor.device}."
            )
    if members == 0 or rows % members:
        raise ShapeError(
            f"`recurrence.input` must have the same number of rows for each of {members} networks, but has {rows}."
        )
