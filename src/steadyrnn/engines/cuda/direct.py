"""The Elman loop with a dense weight on a GPU: in the kernel for weights that one block holds, or in that for all others."""

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from steadyrnn.gpu.nvrtc import Compiled, kernel

from .kinds import NUMBERS, PACKAGE
from .launch import Rows, gather, processors

__all__ = ["DirectLayout", "Variant", "direct_layout", "elman", "takes_bias"]

_WIDEST = 128  # units whose weight a block holds: 64 registers a thread, so that two blocks run on a multiprocessor
_THREADS = 256
_AT_ONCE, _MOST_ROWS = 2, 8  # blocks that run on a multiprocessor, rows of a block
_SPLIT = 8  # lanes that share a result


class DirectLayout(NamedTuple):
    """How ``source/packed.cu`` is compiled."""

    each: int  # results of a lane
    depth: int  # entries of a row that a lane holds
    pack: int  # rows that are multiplied at once
    items: int  # entries of the state that a thread finishes

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return self.pack * self.items

    @property
    def defined(self) -> dict[str, int]:
        """What the sources want defined, but for the variant."""
        return {"threads": _THREADS, "gates": 1, "blocks": 1, "far": 0, "units": _WIDEST, **self._asdict()}


@cache
def direct_layout(size: int, batch: int, processors: int, narrow: bool = False) -> DirectLayout | None:
    """Return the layout for ``size`` units, or None where another kernel is for them: wider, or for the matrix units.

    Args:
        size: Units.
        batch: Rows.
        processors: Multiprocessors of the device.
        narrow: Whether numbers have 16 bits: the matrix units are then faster, unless each block has one row.

    Example:
        >>> direct_layout(128, 128, 132), direct_layout(64, 1024, 132).rows, direct_layout(129, 1, 132)
        (DirectLayout(each=4, depth=16, pack=1, items=1), 4, None)
    """
    least = -(-batch // (_AT_ONCE * processors))
    rows = next((rows for rows in (1, 2, 4) if rows >= least), _MOST_ROWS)
    if size > _WIDEST or (narrow and rows > 1):
        return None
    each = next(each for each in (1, 2, 4) if each * (_THREADS // _SPLIT) >= size)
    pack = min(rows, _SPLIT // each)
    return DirectLayout(each, -(-size // (4 * _SPLIT)) * 4, pack, rows // pack)


class Variant(NamedTuple):
    """Which of the kernels of an Elman cell in a source is meant."""

    number: int  # see NUMBERS
    kind: int  # see KINDS
    back: bool
    keep: bool


@cache
def compiled(layout: DirectLayout, variant: Variant, device: torch.device) -> Compiled:
    """Return the kernel for a layout."""
    defined = {**layout.defined, **variant._asdict()}
    return kernel(PACKAGE, ("head", "packed", "direct"), "run_direct", tuple(defined.items()), 0, device)


def elman(
    weight: Tensor, gates: Tensor, output: Tensor, begin: Tensor | None, end: Tensor, rows: Rows, *, extra: Tensor,
    slope: float, kind: int, keep: bool, bias: Tensor | None = None, back: bool = False, given: bool = True,
) -> None:  # fmt: skip
    """Run an Elman cell over time, or with ``back`` its adjoint, in the kernel that is for its size.

    Arguments as in ``source/direct.cu``, tensors contiguous; ``begin`` of None is zero. ``bias`` only where :func:`takes_bias`.
    """
    steps, batch, size = output.shape
    layout = layout_for(output)
    if layout is None:
        begin = torch.zeros_like(end) if begin is None else begin
        gather(
            weight, gates, output, [begin], [end], rows, extra=extra, slope=slope, back=back, given=given, cell=0, kind=kind,
            keep=keep,
        )  # fmt: skip
        return
    run = compiled(layout, Variant(NUMBERS[output.dtype], kind, back, keep), output.device)
    nothing = output
    run(-(-batch // layout.rows), _THREADS, 0, [
        gates, weight, nothing if bias is None else bias, nothing if begin is None else begin, output, extra, end,
        nothing if rows.lengths is None else rows.lengths, float(slope), steps, batch, size, int(bias is not None),
        int(begin is not None), int(rows.lengths is not None), int(rows.backwards), int(given),
    ])  # fmt: skip


def layout_for(output: Tensor) -> DirectLayout | None:
    """Return the layout of a run with outputs (T, B, H), None where it is for another kernel."""
    _, batch, size = output.shape
    return direct_layout(size, batch, processors(output.device), output.dtype.itemsize == 2)


def takes_bias(output: Tensor) -> bool:
    """Say whether the kernel of a run with outputs (T, B, H) adds a bias: one launch less than adding two biases before."""
    return layout_for(output) is not None
