"""A group of networks as autograd sees it: what can run, one function, its shapes."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from steadyrnn.cells.base import State
from steadyrnn.checks import without_autocast
from steadyrnn.errors import DtypeError, EngineError, ShapeError
from steadyrnn.gpu.torch_private import BelowAutograd

from ...base import Recurrence, flatten_weight
from ...loop.call import Forward
from ...loop.ops import Options, is_kept
from ..engine import flush_denormals
from .gru import GRUAfterGroup, GRUBeforeGroup
from .loop import GroupLoop
from .lstm import LSTMGroup
from .rnn import RNNGroup

__all__ = ["group_refusal", "run_group"]

LOOPS: dict[str, type[GroupLoop]] = {
    "elman": RNNGroup,
    "gru_after": GRUAfterGroup,
    "gru_before": GRUBeforeGroup,
    "lstm": LSTMGroup,
}
"""By the kernel's name in a cell's record."""


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
        recurrence: Every tensor has R in front of the shape that it has for one network, the input behind the time:
            (T, R, B, D), states (R, B, H), weights (R, G * H, D) and (R, G * H, H), biases (R, G * H). All rows run over
            all time, forwards. An input that is in memory by network, ``torch.stack(inputs).transpose(0, 1)``, is not
            copied.

    Returns:
        Outputs (T, R, B, H), in memory by network, and the final state, each (R, B, H). They are differentiable once.

    Raises:
        EngineError: The cell has no loop for groups.
        ShapeError: Weights and rows do not fit each other.

    Example:
        >>> from steadyrnn.cells.registry import CELLS
        >>> weight = torch.tensor([1.0, 2.0]).view(2, 1, 1)
        >>> x, zero = torch.ones(3, 2, 1, 1), torch.zeros(2, 1, 1)
        >>> run_group(Recurrence(CELLS["rnn-identity"], x, (zero,), torch.ones(2, 1, 1), weight))[0].view(3, 2).T
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
    with BelowAutograd(), flush_denormals(), without_autocast(run.input.device):
        done = _loop(options, tensors).forward(False)
    return done.output, tuple(done.state)


class _GroupRun(Function):
    """A run of a group for autograd."""

    @staticmethod
    def forward(ctx: Any, options: Options, *tensors: Any) -> tuple[Tensor, ...]:
        """Run the loop below autograd and save what its adjoint needs."""
        with BelowAutograd(), flush_denormals(), without_autocast(tensors[0].device):
            done = _loop(options, tensors).forward(True)
        ctx.set_materialize_grads(False)
        ctx.options = options
        ctx.save_for_backward(*tensors, done.output, done.stash)
        return done.output, *done.state

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return gradients in the order of ``forward``'s arguments."""
        *tensors, output, stash = ctx.saved_tensors
        grad_output, *grad_state = grads
        with BelowAutograd(), flush_denormals(), without_autocast(output.device):
            loop = _loop(ctx.options, tensors)
            found = loop.backward(Forward(output, [], stash), grad_output, grad_state, bool(ctx.needs_input_grad[1]))
        return None, found.input, found.weight_ih, *found.state, *found.recurrent, found.bias_ih, found.bias_hh, found.theta


def _loop(options: Options, tensors: Sequence[Any]) -> GroupLoop:
    """Return the loop of a cell over tensors in the order of gradients."""
    cell = options.cell
    return LOOPS[str(cell.record.kernel)](options.call(tensors, None), cell)


def _check_shapes(run: Recurrence, weight: Tensor) -> None:
    """Refuse tensors that do not fit each other."""
    members, size, gates = weight.shape[0], run.state[0].shape[-1], len(run.cell.gates)
    if members == 0 or run.input.dim() != 4 or run.input.shape[1] != members:
        raise ShapeError(
            f"`recurrence.input` must have shape (T, R, B, D) with the R of the weights, which is {members} and must be at "
            f"least 1, but has {tuple(run.input.shape)}."
        )
    rows, width = run.input.shape[-2:]
    wanted: list[tuple[str, Tensor | None, Sequence[int]]] = [
        ("weight_ih", run.weight_ih, (members, gates * size, width)),
        ("weight_hh", weight, (members, gates * size, size)),
        *((name, bias, (members, gates * size)) for name, bias in (("bias_ih", run.bias_ih), ("bias_hh", run.bias_hh))),
        *(("state", state, (members, rows, size)) for state in run.state),
    ]
    for name, tensor, shape in wanted:
        if tensor is not None and tuple(tensor.shape) != tuple(shape):
            raise ShapeError(f"`recurrence.{name}` must have shape {tuple(shape)}, but has {tuple(tensor.shape)}.")
        if tensor is not None and (tensor.dtype, tensor.device) != (run.input.dtype, run.input.device):
            raise DtypeError(
                f"`recurrence.{name}` must have the input's dtype and device, {run.input.dtype} on {run.input.device}, but "
                f"has {tensor.dtype} on {tensor.device}."
            )
