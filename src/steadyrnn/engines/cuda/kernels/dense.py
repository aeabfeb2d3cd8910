"""The kernels of a dense recurrence, launched: layout, packed weight, arguments."""

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from steadyrnn.errors import EngineError
from steadyrnn.gpu.device import multiprocessors
from steadyrnn.gpu.nvrtc import Compiled, kernel

from ...loop.call import Call
from ..plan.layouts import SHARED, Layout, gather_layout, scatter_layout
from .codes import NUMBERS, PACKAGE

__all__ = ["Rows", "Variant", "gather", "scatter"]


_FILES = {"gather": ("vector_io", "gather_block", "gather"), "scatter": ("scatter",)}  # of each kernel


class Rows(NamedTuple):
    """Which rows of a call run when."""

    lengths: Tensor | None  # (B,) int32 on the device; None where all run at all times
    backwards: bool

    @classmethod
    def of(cls, call: Call) -> "Rows":
        """Return those of a call."""
        if call.sizes is None:
            return cls(None, call.reverse)
        sizes, rows = torch.tensor(call.sizes, dtype=torch.int64), torch.arange(call.input.shape[1])
        lengths = torch.searchsorted(-sizes, -rows).to(torch.int32)  # fewer and fewer rows run
        return cls(lengths.to(call.input.device, non_blocking=True), call.reverse)


def require(layout: Layout | None) -> Layout:
    """Return a layout that :func:`~steadyrnn.engines.cuda.plan.layouts.fits` said there is."""
    if layout is None:
        raise EngineError("The weight does not fit a cluster of multiprocessors; use `engine='auto'`.")
    return layout


UNKNOWN = 2
"""What ``Variant.ragged`` is where the kernel learns it when it is launched."""


class Variant(NamedTuple):
    """Which of a source's kernels is meant."""

    gates: int
    number: int  # see NUMBERS
    activation: int  # see ACTIVATIONS
    cell: int  # see CELLS
    back: bool = False
    keep: bool = False
    vector_io: int = 1  # neighbours that a thread reads, finishes and writes at once
    ragged: int = UNKNOWN  # whether rows have lengths of their own


def known_ragged(layout: Layout, rows: Rows, dtype: torch.dtype) -> int:
    """Return ``Variant.ragged``: known where the kernel is faster then.

    With numbers of 16 bits a step without lengths takes 0.93 to 1.00 of the time if the compiler knows that there are none. In
    float32 it schedules the product worse then (an RNN of 512 units: 1.09 of the time), and with far blocks 1.01.
    """
    return UNKNOWN if layout.far or dtype == torch.float32 else int(rows.lengths is not None)


@cache
def compile_kernel(name: str, layout: Layout, variant: Variant, device: torch.device) -> Compiled:
    """Return the kernel ``source/{name}.cu`` for a layout."""
    items = layout.items(variant.vector_io)
    defined = {
        **layout.product._asdict(), "threads": layout.threads, "blocks": layout.blocks, "units": layout.units, "items": items,
        "buffers": layout.buffers, "sets": layout.sets, "far": layout.far, "posted": layout.posted,
        "ahead": layout.sets == items == 1,  # steps are so short that what they read must be read before
        **variant._asdict(),
    }  # fmt: skip
    names = ("ptx", "numbers", "activations", "cluster", layout.product.source, *_FILES[name])
    return kernel(PACKAGE, names, f"run_{name}", tuple(defined.items()), SHARED, device)


def gather(
    weight: Tensor, gates: Tensor, output: Tensor, begin: list[Tensor], end: list[Tensor], rows: Rows, *, extra: Tensor | None,
    bias: Tensor | None = None, slope: float = 0.0, back: bool = False, given: bool = True, cell: int, activation: int,
    keep: bool,
) -> None:  # fmt: skip
    """Run a cell over time, or the adjoint of an Elman cell; arguments as in ``source/gather.cu``."""
    steps, batch, size = output.shape
    number = weight.shape[0] // size
    layout = require(gather_layout(size, number, batch, multiprocessors(weight.device), output.dtype.itemsize == 2))
    nothing = output
    extra = nothing if extra is None else extra
    vector_io = 2 if size % 2 == 0 and all(t.data_ptr() % (2 * t.itemsize) == 0 for t in (gates, output, extra)) else 1
    ragged = known_ragged(layout, rows, output.dtype)
    variant = Variant(number, NUMBERS[output.dtype], activation, cell, back, keep, vector_io, ragged)
    run = compile_kernel("gather", layout, variant, weight.device)
    lengths = nothing if rows.lengths is None else rows.lengths
    tiles = -(-batch // layout.height)
    at_once = layout.at_once(multiprocessors(weight.device)) if layout.far else tiles
    launches = -(-tiles // at_once)
    post, announced = messages(layout, at_once, launches, output)
    for launch in range(launches):
        run(min(at_once, tiles - launch * at_once) * layout.blocks, layout.all_threads, layout.shared, [
            gates, weight, nothing if bias is None else bias, begin[0], begin[-1], output, extra,
            end[0], end[-1], lengths, post, announced[launch], float(slope), steps, batch, size, layout.height,
            int(rows.lengths is not None), int(rows.backwards), int(given), launch * at_once * layout.height, 0,
        ], layout.far)  # fmt: skip


def messages(layout: Layout, groups: int, launches: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return memory for messages that go by way of it and, where blocks are no cluster, for how many were sent, by launch."""
    if not (layout.far or layout.posted):
        return like, like.unsqueeze(0)
    numbers = groups * layout.sets * 2 * layout.blocks * layout.slab
    post = like.new_empty(numbers, dtype=torch.float32 if layout.product.entry_bytes == 4 else like.dtype)
    return post, like.new_zeros(launches, groups * layout.sets, dtype=torch.int32) if layout.far else like.unsqueeze(0)


def scatter(
    weight: Tensor, gates: Tensor, extra: Tensor, states: Tensor, before: Tensor, grad: Tensor | None, begin: list[Tensor],
    adjoint: Tensor, inner: Tensor | None, end: list[Tensor], rows: Rows, *, cell: int,
) -> None:  # fmt: skip
    """Run the adjoint of a gated cell; arguments as in ``source/scatter.cu``."""
    steps, batch, size = states.shape
    number = weight.shape[0] // size
    layout = require(scatter_layout(size, number, batch, multiprocessors(weight.device), states.dtype.itemsize == 2))
    variant = Variant(number, NUMBERS[states.dtype], 0, cell, ragged=known_ragged(layout, rows, states.dtype))
    run = compile_kernel("scatter", layout, variant, weight.device)
    lengths = states if rows.lengths is None else rows.lengths
    run(-(-batch // layout.height) * layout.blocks, layout.threads, layout.shared, [
        gates, extra, weight, states, before, states if grad is None else grad, begin[0], begin[-1], adjoint,
        states if inner is None else inner, end[0], end[-1], lengths, steps, batch, size, layout.height,
        int(rows.lengths is not None), int(rows.backwards), int(grad is not None), 0,
    ])  # fmt: skip
