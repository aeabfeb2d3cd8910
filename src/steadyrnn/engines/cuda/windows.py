"""Windows of an Elman layer on a GPU: one product for all inputs, one launch for all steps, nothing copied in between."""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from steadyrnn.activations import Identity, LeakyReLU
from steadyrnn.bounds.norms import above
from steadyrnn.cells.rnn import RNNStep
from steadyrnn.linalg.nvrtc import OnDevice, is_there, kernel

from ..base import Recurrence
from ..cpu.base import folded_bias
from ..weights import stacked
from ..windows import Windows
from .direct import AT_ONCE, MOST_ROWS, THREADS, WIDEST, DirectLayout, layout_with
from .kinds import KINDS, NUMBERS, PACKAGE

__all__ = ["FusedWindows", "fused_costs", "input_part", "refusal"]


class Shape(NamedTuple):
    """What the kernel is compiled for."""

    layout: DirectLayout
    kind: int  # of activation
    measure: bool  # whether the largest state is noted

    @classmethod
    def of(cls, size: int, kind: int, measure: bool) -> "Shape":
        """Return the shape for a layer of ``size`` units."""
        return cls(layout_with(size, MOST_ROWS), kind, measure)

    @property
    def defined(self) -> tuple[tuple[str, int], ...]:
        """What the source wants defined."""
        own = {"number": NUMBERS[torch.float32], "kind": self.kind, "measure": int(self.measure)}
        return tuple({**self.layout.defined, **own}.items())


def refusal(recurrence: Recurrence) -> str | None:
    """Return why the kernel cannot run a recurrence without gradients, as a clause that ends a sentence; None if it can.

    Example:
        >>> from steadyrnn.cells.registry import CELLS
        >>> zero = torch.zeros(1, 1)
        >>> refusal(Recurrence(CELLS["rnn-tanh"], torch.ones(3, 1, 1), (zero,), zero, zero))
        'its tensors are on cpu'
    """
    x, cell = recurrence.input, recurrence.cell
    if x.device.type != "cuda":
        return f"its tensors are on {x.device.type}"
    if not isinstance(cell, RNNStep) or type(cell.activation) not in KINDS:
        return f"there is no kernel for the cell {cell.key}"
    if x.dtype != torch.float32:
        return f"its dtype is {x.dtype}"
    if recurrence.state[0].shape[-1] > WIDEST:
        return f"{recurrence.state[0].shape[-1]} units are more than the {WIDEST} whose weight one multiprocessor holds"
    if recurrence.batch_sizes is not None or recurrence.reverse:
        return "its rows have several lengths, or time runs backwards"
    return None if is_there() else "this torch cannot compile a kernel"


def fused_costs(device: torch.device, size: int) -> tuple[int, float, int]:
    """Return how many rows run side by side, what a step of them costs, and what there is beside steps.

    In units of one of cuDNN's steps with few rows (0.44 us on an H200, where these were measured).
    """
    lanes = torch.cuda.get_device_properties(device).multi_processor_count * AT_ONCE * MOST_ROWS
    return lanes, 5.0 * -(-size // 32) / 4, 1600


@torch.no_grad()
def input_part(recurrence: Recurrence) -> Tensor:
    """Return what inputs and biases add to every pre-activation, (T, B, H): one product, which needs no windows yet.

    Example:
        >>> from steadyrnn.cells.registry import CELLS
        >>> zero = torch.zeros(1, 1)
        >>> input_part(Recurrence(CELLS["rnn-tanh"], torch.ones(3, 1, 1), (zero,), zero + 2, zero)).flatten()
        tensor([2., 2., 2.])
    """
    return linear(recurrence.input, recurrence.weight_ih, folded_bias(recurrence))


class FusedWindows:
    """The windows of a recurrence, run in place: outputs go where they belong in the sequence.

    Args:
        recurrence: One that :func:`refusal` accepts; no gradient flows through it.
        gates: Its :func:`input_part`.
        windows: Where they lie.
        measure: Whether to note the largest state, that of warm-ups included.
    """

    @torch.no_grad()
    def __init__(self, recurrence: Recurrence, gates: Tensor, windows: Windows, measure: bool) -> None:
        self.gates, self.windows, self.measure = gates, windows, measure
        cell = recurrence.cell
        self.weight = stacked(recurrence.weight_hh, gates.dtype).contiguous()  # (H, H)
        self.output = torch.empty_like(self.gates)
        self.squares: list[Tensor] = []  # largest sum of squares of every row's states, of each run
        activation = cell.activation if isinstance(cell, RNNStep) else Identity()
        self.kind = KINDS[type(activation)]
        self.slope = activation.slope if isinstance(activation, LeakyReLU) else 0.0

    def begin(self, cold: Tensor) -> tuple[Tensor, Tensor]:
        """Run warm-ups and windows from ``cold`` (J * B, H); return states behind warm-ups and ends, likewise."""
        return self._launch(cold, 0, self.windows.warmup)

    def again(self, start: Tensor) -> Tensor:
        """Run the windows, without warm-ups, from ``start`` (J * B, H); return their ends."""
        return self._launch(start, self.windows.warmup, 0)[1]

    @torch.no_grad()
    def _launch(self, begin: Tensor, first: int, lead: int) -> tuple[Tensor, Tensor]:
        begin = begin.contiguous()
        led, end = torch.empty_like(begin) if lead else begin, torch.empty_like(begin)
        most = begin.new_zeros(len(begin) if self.measure else 1)
        (steps, batch, size), number = self.gates.shape, self.windows.number
        shape = Shape.of(size, self.kind, self.measure)
        with OnDevice(begin.device):
            run = kernel(PACKAGE, ("head", "packed", "windows"), "run_windows", shape.defined, 0, begin.device)
            run(-(-len(begin) // MOST_ROWS), THREADS, 0, [
                self.gates, self.weight, begin, self.output, led, end, most, float(self.slope), steps, batch, size, number,
                first, lead, self.windows.chunk,
            ])  # fmt: skip
        if self.measure:
            self.squares.append(most.max())
        return led, end

    def largest(self) -> float:
        """Return a number that is not below the 2-norm of any state so far, once it is there."""
        return _root(float(torch.stack(self.squares).max()), self.gates.shape[2])


def _root(square: float, size: int) -> float:
    """Return a number not below the 2-norm of finite vectors whose computed sums of squares are at most ``square``."""
    info = torch.finfo(torch.float32)
    if math.isnan(square):
        return square
    norm = math.sqrt(min(square, info.max**2 * size))  # a square may overflow where the number does not
    return above(norm * (1 + (size + 8) * info.eps) + math.sqrt(size * info.tiny))
