"""Windows of an Elman layer on a GPU: one product for all inputs, one launch for all steps, outputs in place."""

import copy
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import linear

from steadyrnn.checks import without_autocast
from steadyrnn.errors import EngineError
from steadyrnn.gpu.device import has_bf16_tensor_cores

from ...base import Recurrence, Windows, stack_gates
from ...loop.family import sum_biases
from ..kernels.codes import supports_elman
from ..kernels.windows import Way, run_windows
from ..plan.windows import WIDEST, rows_at_once
from .window_gradients import Windowed

__all__ = ["FusedWindows", "fused_costs", "input_part", "refusal"]


def refusal(recurrence: Recurrence, keep: bool) -> str | None:
    """Return why the kernel cannot run a recurrence, as a clause that ends a sentence; None if it can.

    Args:
        recurrence: What to run.
        keep: Whether a gradient will be wanted.

    Example:
        >>> from steadyrnn.cells.registry import CELLS
        >>> zero = torch.zeros(1, 1)
        >>> refusal(Recurrence(CELLS["rnn-tanh"], torch.ones(3, 1, 1), (zero,), zero, zero), keep=False)
        'its tensors are on cpu'
    """
    x, cell = recurrence.input, recurrence.cell
    if x.device.type != "cuda":
        return f"its tensors are on {x.device.type}"
    if not supports_elman(cell):
        return f"there is no kernel for the cell {cell.key}"
    activation = cell.record.activation
    if keep and activation is not None and not activation.from_output:
        return "a gradient is wanted, and outputs do not show where the activation bends"
    if keep and recurrence.recompute:
        return "its kernel keeps every state, and recompute was requested"
    if x.dtype != torch.float32:
        return f"its dtype is {x.dtype}"
    if recurrence.state[0].shape[-1] > WIDEST:
        return f"{recurrence.state[0].shape[-1]} units are more than the {WIDEST} whose weight one multiprocessor holds"
    if recurrence.batch_sizes is not None or recurrence.reverse:
        return "its rows have several lengths, or time runs backwards"
    return (
        None
        if has_bf16_tensor_cores(x.device.index or 0)
        else "its kernel needs compute capability 8.0 and a torch that can compile it"
    )


def fused_costs(device: torch.device, size: int) -> tuple[int, float, int]:
    """Return how many rows run side by side, what a step of them costs, and what there is beside steps.

    In units of one of cuDNN's steps with few rows (0.44 us on an H200, where these were measured).
    """
    return rows_at_once(size, device), 1.4 + 0.57 * -(-size // 32), 1600


def input_part(recurrence: Recurrence) -> Tensor:
    """Return what inputs and biases add to every pre-activation, (T, B, H): one product, which needs no windows yet.

    Example:
        >>> from steadyrnn.cells.registry import CELLS
        >>> zero = torch.zeros(1, 1)
        >>> input_part(Recurrence(CELLS["rnn-tanh"], torch.ones(3, 1, 1), (zero,), zero + 2, zero)).flatten()
        tensor([2., 2., 2.])
    """
    part: Tensor = InputPart.apply(recurrence.input, recurrence.weight_ih, sum_biases(recurrence))  # type: ignore[no-untyped-call]
    return part


class InputPart(Function):
    """A product with all inputs whose gradient no autocast casts, wherever its backward is run."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return x W^T + b, (T, B, H)."""
        ctx.save_for_backward(x, weight)
        ctx.biased = bias is not None
        return linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Return gradients of input, weight and bias, by operations that can be differentiated again."""
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        with without_autocast(x.device):
            d_weight = grad.reshape(-1, grad.shape[2]).t() @ x.reshape(-1, x.shape[2]) if of_weight else None
            return grad @ weight if of_x else None, d_weight, grad.sum((0, 1)) if of_bias and ctx.biased else None


class FusedWindows:
    """The windows of a recurrence, run in place: outputs go where they belong in the sequence.

    Args:
        recurrence: One that :func:`refusal` accepts.
        gates: Its :func:`input_part`.
        windows: Where they lie.
        measure: Whether to note the largest state, that of warm-ups included.
        keep: Whether gradients are to flow, through warm-ups and all runs.
    """

    def __init__(self, recurrence: Recurrence, gates: Tensor, windows: Windows, measure: bool, keep: bool) -> None:
        if not supports_elman(recurrence.cell):
            raise EngineError(f"There is no kernel for the cell {recurrence.cell.key}.")
        self.gates, self.windows, self.measure, self.keep = gates, windows, measure, keep
        self.cell = recurrence.cell
        self.weight = stack_gates(recurrence.weight_hh, gates.dtype).contiguous()  # (H, H)
        self.output, self.trail = gates[:0], gates[:0]  # of the last run; of warm-ups, see `Passed`
        self.head = gates[:0]  # state of the first window behind its warm-up, (B, H)
        self.version = 0  # how often torch had seen outputs change
        self.squares: list[Tensor] = []  # largest sum of squares of every row's states, of each run

    def begin(self, cold: Tensor) -> tuple[Tensor, Tensor]:
        """Run warm-ups and windows from ``cold`` (J * B, H); return states behind warm-ups and ends, likewise."""
        k, rows = self.windows.warmup, self.gates.shape[1]
        self.output, end, led, self.trail = self._run(cold, Way(self.cell, self.windows, 0, k), None)
        self.head = self.output[k - 1] if k else cold[:rows]
        return led, end

    def again(self, start: Tensor) -> Tensor:
        """Run the windows, without warm-ups, from ``start`` (J * B, H); return their ends."""
        k, rows = self.windows.warmup, self.gates.shape[1]
        start = torch.cat([self.head, start[rows:]])  # the first window's is what it was, with its graph
        output, end, *_ = self._run(start, Way(self.cell, self.windows, k, 0), self.output)
        self.output = torch.cat([self.output[:k], output[k:]]) if self.keep else output
        return end

    def _run(self, begin: Tensor, way: Way, onto: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return outputs, ends, states behind leads, and those in leads."""
        begin = begin.contiguous()
        if self.keep:
            output, end, led, trail, squares = Windowed.apply(self.gates, self.weight, begin, way, self.measure)  # type: ignore[no-untyped-call]
        else:
            with torch.no_grad():
                output, end, led, trail, squares = run_windows(
                    self.gates, self.weight, begin, way, keep=False, measure=self.measure, output=onto
                )
        if self.measure:
            self.squares.append(squares.max())
        return output, end, led, trail

    def copy_states(self) -> "FusedWindows":
        """Return the same without graph, gates and weight, for its states; see :meth:`is_changed`."""
        kept = copy.copy(self)
        kept.gates, kept.weight = (t.new_empty(0, *t.shape[1:]) for t in (self.gates, self.weight))
        kept.version = self.output._version
        kept.output, kept.trail, kept.head = self.output.detach(), self.trail.detach(), self.head.detach()
        return kept

    def is_changed(self) -> bool:
        """Say whether outputs, which are the caller's own, were changed since :meth:`copy_states`."""
        return self.output._version != self.version

    def largest_square(self) -> float:
        """Return the largest sum of squares of a state so far, as computed, once it is there; NaN where there is one."""
        return float(torch.stack(self.squares).max())
