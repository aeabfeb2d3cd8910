"""The Elman loop with a dense weight on a GPU: in the kernel for weights that one block holds, or in that for all others."""

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from steadyrnn.gpu.device import multiprocessors
from steadyrnn.gpu.nvrtc import Compiled, kernel

from ..plan.direct import DIRECT_THREADS, DirectLayout, direct_layout
from .codes import NUMBERS, PACKAGE
from .dense import Rows, gather

__all__ = ["Variant", "adds_bias", "run_elman"]


class Variant(NamedTuple):
    """Which of the kernels of an Elman cell in a source is meant."""

    number: int  # see NUMBERS
    activation: int  # see ACTIVATIONS
    back: bool
    keep: bool
    ragged: bool = False  # whether rows have lengths of their own


@cache
def compile_kernel(layout: DirectLayout, variant: Variant, device: torch.device) -> Compiled:
    """Return the kernel for a layout."""
    defined = {**layout.defined, **variant._asdict()}
    return kernel(
        PACKAGE, ("ptx", "numbers", "activations", "packed", "direct"), "run_direct", tuple(defined.items()), 0, device
    )


def run_elman(
    weight: Tensor, gates: Tensor, output: Tensor, begin: Tensor | None, end: Tensor, rows: Rows, *, extra: Tensor,
    slope: float, activation: int, keep: bool, bias: Tensor | None = None, back: bool = False, given: bool = True,
) -> None:  # fmt: skip
    """Run an Elman cell over time, or with ``back`` its adjoint, in the kernel that is for its size.

    Arguments as in ``source/direct.cu``, tensors contiguous; ``begin`` of None is zero. ``bias`` only where :func:`adds_bias`.
    """
    steps, batch, size = output.shape
    layout = layout_for(output)
    if layout is None:
        begin = torch.zeros_like(end) if begin is None else begin
        gather(
            weight, gates, output, [begin], [end], rows, extra=extra, slope=slope, back=back, given=given, cell=0,
            activation=activation, keep=keep,
        )  # fmt: skip
        return
    variant = Variant(NUMBERS[output.dtype], activation, back, keep, rows.lengths is not None)
    run = compile_kernel(layout, variant, output.device)
    nothing = output
    run(-(-batch // layout.rows), DIRECT_THREADS, 0, [
        gates, weight, nothing if bias is None else bias, nothing if begin is None else begin, output, extra, end,
        nothing if rows.lengths is None else rows.lengths, float(slope), steps, batch, size, int(bias is not None),
        int(begin is not None), int(rows.backwards), int(given),
    ])  # fmt: skip


def layout_for(output: Tensor) -> DirectLayout | None:
    """Return the layout of a run with outputs (T, B, H), None where it is for another kernel."""
    _, batch, size = output.shape
    return direct_layout(size, batch, multiprocessors(output.device), output.dtype.itemsize == 2)


def adds_bias(output: Tensor) -> bool:
    """Say whether the kernel of a run with outputs (T, B, H) adds a bias: one launch less than adding two biases before."""
    return layout_for(output) is not None
