"""Windows of an Elman layer on a GPU: one product for all inputs, one launch for all steps, in place, and their gradients."""

import copy
import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import linear, pad

from steadyrnn.activations import Absolute
from steadyrnn.bounds.norms import above
from steadyrnn.cells.rnn import RNNStep
from steadyrnn.checks import without_autocast
from steadyrnn.errors import EngineError
from steadyrnn.linalg.nvrtc import has_parts

from ..adjoint import gradients_of, wants_graph
from ..base import Recurrence
from ..cpu.base import folded_bias
from ..reference import ReferenceEngine
from ..weights import stacked
from ..windows import Windows
from .kinds import KINDS
from .window_loop import WIDEST, Way, lanes, run_adjoint, run_windows

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
    if not isinstance(cell, RNNStep) or type(cell.activation) not in KINDS:
        return f"there is no kernel for the cell {cell.key}"
    if keep and isinstance(cell.activation, Absolute):
        return "a gradient is wanted, and outputs do not tell where the activation bends"
    if keep and recurrence.recompute:
        return "its kernel keeps every state, and recompute was asked for"
    if x.dtype != torch.float32:
        return f"its dtype is {x.dtype}"
    if recurrence.state[0].shape[-1] > WIDEST:
        return f"{recurrence.state[0].shape[-1]} units are more than the {WIDEST} whose weight one multiprocessor holds"
    if recurrence.batch_sizes is not None or recurrence.reverse:
        return "its rows have several lengths, or time runs backwards"
    return None if has_parts(x.device.index or 0) else "its kernel needs compute capability 8.0 and a torch that can compile it"


def fused_costs(device: torch.device, size: int) -> tuple[int, float, int]:
    """Return how many rows run side by side, what a step of them costs, and what there is beside steps.

    In units of one of cuDNN's steps with few rows (0.44 us on an H200, where these were measured).
    """
    return lanes(size, device), 1.4 + 0.57 * -(-size // 32), 1600


def input_part(recurrence: Recurrence) -> Tensor:
    """Return what inputs and biases add to every pre-activation, (T, B, H): one product, which needs no windows yet.

    Example:
        >>> from steadyrnn.cells.registry import CELLS
        >>> zero = torch.zeros(1, 1)
        >>> input_part(Recurrence(CELLS["rnn-tanh"], torch.ones(3, 1, 1), (zero,), zero + 2, zero)).flatten()
        tensor([2., 2., 2.])
    """
    part: Tensor = InputPart.apply(recurrence.input, recurrence.weight_ih, folded_bias(recurrence))  # type: ignore[no-untyped-call]
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
        if not isinstance(recurrence.cell, RNNStep):
            raise EngineError(f"There is no kernel for the cell {recurrence.cell.key}.")
        self.gates, self.windows, self.measure, self.keep = gates, windows, measure, keep
        self.cell = recurrence.cell
        self.weight = stacked(recurrence.weight_hh, gates.dtype).contiguous()  # (H, H)
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

    def frozen(self) -> "FusedWindows":
        """Return the same without graph, gates and weight, for its states; see :meth:`touched`."""
        kept = copy.copy(self)
        kept.gates, kept.weight = (t.new_empty(0, *t.shape[1:]) for t in (self.gates, self.weight))
        kept.version = self.output._version
        kept.output, kept.trail, kept.head = self.output.detach(), self.trail.detach(), self.head.detach()
        return kept

    def touched(self) -> bool:
        """Say whether outputs, which are the caller's own, were changed since they were frozen."""
        return self.output._version != self.version

    def largest(self) -> float:
        """Return a number that is not below the 2-norm of any state so far, once it is there."""
        return _root(float(torch.stack(self.squares).max()), self.gates.shape[2])


class Windowed(Function):
    """Windows for autograd: from input parts (T, B, H), weight (H, H) and states before windows (J * B, H)."""

    @staticmethod
    def forward(ctx: Any, gates: Tensor, weight: Tensor, begin: Tensor, way: Way, measure: bool) -> tuple[Tensor, ...]:
        """Return what :func:`run_windows` does; outputs and ends are differentiable."""
        passed = run_windows(gates, weight, begin, way, keep=True, measure=measure)
        led = passed.led.clone() if passed.led is begin else passed.led  # an argument cannot be a result
        ctx.way = way
        ctx.save_for_backward(gates, weight, begin, passed.output, passed.trail)
        ctx.mark_non_differentiable(led, passed.trail, passed.squares)
        ctx.set_materialize_grads(False)
        return passed.output, passed.end, led, passed.trail, passed.squares

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_end: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        """Return gradients of input parts, weight and first states."""
        gates, weight, begin, output, trail = ctx.saved_tensors
        if grad is None and grad_end is None:
            return None, None, None, None, None
        with without_autocast(gates.device):
            if wants_graph((grad, grad_end)):
                way, needs = ctx.way, ctx.needs_input_grad[:3]
                found = gradients_of(
                    lambda g, w, b: plain_windows(g, w, b, way), (gates, weight, begin), needs, (grad, grad_end)
                )
                return *found, None, None
            whole, ends = (None if g is None else g.contiguous() for g in (grad, grad_end))
            back = run_adjoint(whole, ends, weight, output, trail, ctx.way)
            d_weight = weight_gradient(back.sequence, back.trail, output, trail, begin, ctx.way)
            return spread(back.sequence, back.trail, ctx.way), d_weight, back.begin, None, None


def weight_gradient(adjoint: Tensor, back: Tensor, output: Tensor, trail: Tensor, begin: Tensor, way: Way) -> Tensor:
    """Return the sum of adjoints times the states they came from, over all steps.

    Args:
        adjoint: Of pre-activations, (T, B, H).
        back: Of those in leads.
        output: States, (T, B, H).
        trail: Those in leads.
        begin: Those before windows, (J * B, H).
        way: Which windows.
    """
    (_, chunk, number), rows = way.windows, output.shape[1]
    total = adjoint[way.first + 1 :].flatten(0, 1).t() @ output[way.first : -1].flatten(0, 1)
    # where a window comes out of its lead, the state before is its own, and not what lies there in the sequence
    out_of = slice(way.first + way.lead + chunk, way.first + way.lead + (number - 1) * chunk + 1, chunk)
    came = begin[rows:] if way.lead == 0 else trail[-1]
    there = output[out_of.start - 1 : out_of.stop - 1 : chunk].flatten(0, 1)
    late, early = [adjoint[way.first], adjoint[out_of].flatten(0, 1)], [begin[:rows], came - there]
    if way.lead:
        total.addmm_(back[1:].flatten(0, 1).t(), trail[:-1].flatten(0, 1))
        late, early = [*late, back[0]], [*early, begin[rows:]]
    return total.addmm_(torch.cat(late).t(), torch.cat(early))


def spread(adjoint: Tensor, back: Tensor, way: Way) -> Tensor:
    """Add adjoints of leads to those at the same times, zero before the first window, and return all, (T, B, H)."""
    (_, chunk, number), (_, rows, size) = way.windows, adjoint.shape
    adjoint[: way.first].zero_()
    for first in range(0, way.lead, chunk):  # so many that none of them are at the same time
        part = back[first : first + chunk].unflatten(1, (number - 1, rows))
        place = (way.first + chunk + first) * rows * size
        adjoint.as_strided(part.shape, (rows * size, chunk * rows * size, size, 1), adjoint.storage_offset() + place).add_(part)
    return adjoint


def plain_windows(gates: Tensor, weight: Tensor, begin: Tensor, way: Way) -> tuple[Tensor, Tensor]:
    """Return outputs (T, B, H), zero before the first window, and ends (J * B, H), by plain operations of the reference."""
    (_, chunk, number), (steps, rows, size) = way.windows, gates.shape
    total, start = way.lead + chunk, way.first + (number - 1) * chunk  # of the last window
    padded = pad(gates[way.first :], (0, 0, 0, 0, 0, start + total - steps))
    data = padded.unfold(0, total, chunk).permute(3, 0, 1, 2).flatten(1, 2)
    one = torch.eye(size, dtype=gates.dtype, device=gates.device)
    found, _ = ReferenceEngine().run(Recurrence(way.cell, data, (begin,), one, weight))
    ends = torch.cat([found[-1, :-rows], found[steps - start - 1, -rows:]])
    main = found[way.lead :].unflatten(1, (number, rows)).transpose(0, 1).flatten(0, 1)
    head = [gates.new_zeros(way.first, rows, size), found[: way.lead, :rows]]
    return torch.cat([*head, main])[:steps], ends


def _root(square: float, size: int) -> float:
    """Return a number not below the 2-norm of finite vectors whose computed sums of squares are at most ``square``."""
    info = torch.finfo(torch.float32)
    if math.isnan(square):
        return square
    norm = math.sqrt(min(square, info.max**2 * size))  # a square may overflow where the number does not
    return above(norm * (1 + (size + 8) * info.eps) + math.sqrt(size * info.tiny))
