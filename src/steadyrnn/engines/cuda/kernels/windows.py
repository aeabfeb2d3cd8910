"""The kernel that runs an Elman cell over windows of time, or its adjoint, launched: layout, memory, arguments."""

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from steadyrnn.activations import Activation
from steadyrnn.cells.base import Cell
from steadyrnn.errors import EngineError
from steadyrnn.gpu.nvrtc import Compiled, OnDevice, kernel

from ...base import Windows
from ..plan.windows import ROWS, WindowLayout, window_layout
from .codes import ACTIVATIONS, PACKAGE

__all__ = ["Adjoints", "Passed", "Way", "run_adjoint", "run_windows"]


class Way(NamedTuple):
    """Which windows are run, and by which cell."""

    cell: Cell
    windows: Windows
    first: int  # time at which window 0 starts
    lead: int  # steps of other windows that are those of the window before, too

    @property
    def activation(self) -> Activation:
        """Of the cell, which is an Elman cell."""
        if self.cell.record.activation is None:
            raise EngineError(f"There is no kernel for the cell {self.cell.key}.")
        return self.cell.record.activation


class Passed(NamedTuple):
    """What windows leave behind."""

    output: Tensor  # (T, B, H)
    end: Tensor  # (J * B, H)
    led: Tensor  # states behind leads, (J * B, H)
    trail: Tensor  # states in leads of windows except the first, (lead, (J - 1) * B, H); of no step where they are not kept
    squares: Tensor  # largest sum of squares of each row's states, (J * B,); of no row where they are not measured


class Adjoints(NamedTuple):
    """What their adjoint leaves behind: gradients of arguments of the activation, and of states before windows."""

    sequence: Tensor  # (T, B, H), nothing before the first window
    trail: Tensor  # (lead, (J - 1) * B, H)
    begin: Tensor  # (J * B, H)


class Variant(NamedTuple):
    """Which of the kernels of a source is meant."""

    activation: int  # see ACTIVATIONS
    back: bool
    measure: bool
    trail: bool
    even: bool


@cache
def compile_kernel(layout: WindowLayout, variant: Variant, device: torch.device) -> Compiled:
    """Return the kernel for a layout."""
    defined = {"blocks": 1, **layout._asdict(), **variant._asdict()}
    return kernel(
        PACKAGE, ("ptx", "activations", "bf16x3_product", "windows"), "run_windows", tuple(defined.items()), 0, device
    )


def run_windows(
    gates: Tensor, weight: Tensor, begin: Tensor, way: Way, *, keep: bool, measure: bool, output: Tensor | None = None
) -> Passed:
    """Run windows.

    Args:
        gates: What inputs and biases add to every pre-activation, (T, B, H).
        weight: (H, H).
        begin: States before windows, (J * B, H).
        way: Which windows.
        keep: Whether states of leads are kept.
        measure: Whether the largest states are noted.
        output: Where outputs go; times before the first window stay as they are.
    """
    output = torch.empty_like(gates) if output is None else output
    led, end = torch.empty_like(begin) if way.lead else begin, torch.empty_like(begin)
    behind, size = begin.shape[0] - gates.shape[1], begin.shape[1]
    trail = gates.new_empty(way.lead if keep else 0, behind, size)
    squares = begin.new_zeros(len(begin) if measure else 0)
    nothing = output
    start(
        [gates, weight, begin, output, trail, nothing, nothing, led, end, squares], way, gates.shape, back=False,
        measure=measure, trail=keep,
    )  # fmt: skip
    return Passed(output, end, led, trail, squares)


def run_adjoint(
    grad: Tensor | None, grad_end: Tensor | None, weight: Tensor, output: Tensor, trail: Tensor, way: Way
) -> Adjoints:
    """Run the adjoint of windows.

    Args:
        grad: Gradient of the outputs, (T, B, H), contiguous.
        grad_end: Gradient of the last states, (J * B, H), contiguous.
        weight: (H, H).
        output: What windows gave.
        trail: Likewise, kept.
        way: Which windows.
    """
    adjoint, back = torch.empty_like(output), torch.empty_like(trail)
    end = output.new_empty(way.windows.number * output.shape[1], output.shape[2])
    nothing = output
    start(
        [
            nothing if grad is None else grad, weight, nothing if grad_end is None else grad_end, adjoint, back, output, trail,
            nothing, end, nothing,
        ],
        way, output.shape, back=True, trail=True, given=grad is not None, begun=grad_end is not None,
    )  # fmt: skip
    return Adjoints(adjoint, back, end)


def start(
    tensors: list[Tensor], way: Way, shape: torch.Size, *, back: bool, trail: bool, measure: bool = False, given: bool = True,
    begun: bool = True,
) -> None:  # fmt: skip
    """Launch the kernel; arguments as in ``source/windows.cu``."""
    (steps, batch, size), number, device = shape, way.windows.number, tensors[0].device
    layout = window_layout(size)
    even = size % 2 == 0 and all(t.data_ptr() % 8 == 0 for t in tensors)
    activation = way.activation
    run = compile_kernel(layout, Variant(ACTIVATIONS[activation.kernel or ""], back, measure, trail, even), device)
    with OnDevice(device):
        run(-(-number * batch // ROWS), layout.threads, 0, [
            *tensors, float(activation.kernel_argument), steps, batch, size, number, way.first, way.lead, way.windows.chunk,
            int(given), int(begun),
        ])  # fmt: skip
