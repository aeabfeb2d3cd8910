"""The Elman kernel for a weight in factors."""

from functools import cache

import torch
from torch import Tensor

from steadyrnn.gpu.device import multiprocessors
from steadyrnn.gpu.nvrtc import Compiled, kernel
from steadyrnn.linalg.operators import DiagonalLowRank

from ..plan.factored import THREADS, FactoredLayout, factored_layout
from ..plan.layouts import SHARED
from .codes import NUMBERS, PACKAGE
from .dense import Rows
from .elman import Variant

__all__ = ["run_factored"]


@cache
def compile_kernel(layout: FactoredLayout, variant: Variant, device: torch.device) -> Compiled:
    """Return the kernel for a layout."""
    defined = {
        "threads": THREADS, "far": 0, "blocks": layout.blocks, "units": layout.units, "rank": layout.rank,
        "rows": layout.rows, "items": layout.items, **variant._asdict(),
    }  # fmt: skip
    return kernel(
        PACKAGE,
        ("ptx", "numbers", "activations", "cluster", "factored"),
        "run_factored",
        tuple(defined.items()),
        SHARED,
        device,
    )


def run_factored(
    weight: DiagonalLowRank, gates: Tensor, output: Tensor, begin: Tensor, end: Tensor, rows: Rows, *, extra: Tensor,
    slope: float, activation: int, keep: bool, back: bool = False, given: bool = True,
) -> Tensor | None:  # fmt: skip
    """Run the loop, or with ``back`` its adjoint; arguments as in ``source/factored.cu``, tensors contiguous.

    Returns:
        With ``back``, the sums over all time of each tile of rows, (2, tiles, H) in float32.
    """
    steps, batch, size = output.shape
    rank, device = weight.left.shape[1], output.device
    layout = factored_layout(size, rank, batch, multiprocessors(device))
    run = compile_kernel(layout, Variant(NUMBERS[output.dtype], activation, back, keep), device)
    inward, outward = (weight.left, weight.right) if back else (weight.right, weight.left)
    tiles = -(-batch // layout.height)
    sums = output.new_empty(2, tiles, size, dtype=torch.float32) if back else None
    run(tiles * layout.blocks, THREADS, layout.shared, [
        gates, weight.diagonal, inward, outward, begin, output, extra, end, output if sums is None else sums,
        output if rows.lengths is None else rows.lengths, float(slope), steps, batch, size, rank, layout.height,
        int(rows.lengths is not None), int(rows.backwards), int(given),
    ])  # fmt: skip
    return sums
