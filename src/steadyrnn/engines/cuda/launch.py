"""The kernels of a dense recurrence, launched: layout, packed weight, arguments."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from steadyrnn.errors import EngineError

from ..call import Call
from .compile import kernel
from .kinds import NUMBERS
from .pack import packed_columns, packed_rows
from .plan import SHARED, THREADS, Layout, gather_layout, scatter_layout

__all__ = ["Rows", "fits", "gather", "scatter"]


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
        lengths = (sizes.unsqueeze(1) > rows).sum(0, dtype=torch.int32)
        return cls(lengths.to(call.input.device, non_blocking=True), call.reverse)


def processors(device: torch.device) -> int:
    """Return how many multiprocessors a device has."""
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def fits(size: int, gates: int) -> bool:
    """Say whether a weight of ``gates`` square matrices fits the chip, forward and for the adjoint.

    Example:
        >>> fits(1024, 1), fits(1024, 4)
        (True, False)
    """
    run = gather_layout(size, gates, 1, 132)
    return run is not None and (gates == 1 or scatter_layout(size, gates, 1, 132) is not None)


def found(layout: Layout | None) -> Layout:
    """Return a layout that :func:`fits` said there is."""
    if layout is None:
        raise EngineError("The weight does not fit a cluster of multiprocessors; use `engine='auto'`.")
    return layout


def compiled(name: str, layout: Layout, device: torch.device, **more: int) -> Any:
    """Return the kernel ``source/{name}.cu`` for a layout."""
    defined = {
        **layout.product._asdict(), "threads": THREADS, "blocks": layout.blocks, "units": layout.units,
        "items": layout.items, "buffers": layout.buffers, **more,
    }  # fmt: skip
    return kernel(("head", "product", name), f"run_{name}", tuple(defined.items()), SHARED, device)


def start(run: Any, layout: Layout, batch: int, arguments: list[Any]) -> None:
    """Launch a kernel over all rows."""
    grid = -(-batch // layout.height) * layout.blocks
    run((grid, 1, 1), (THREADS, 1, 1), arguments, layout.shared)


def gather(
    weight: Tensor, gates: Tensor, output: Tensor, begin: list[Tensor], end: list[Tensor], rows: Rows, *, extra: Tensor | None,
    bias: Tensor | None = None, slope: float = 0.0, back: bool = False, given: bool = True, cell: int, kind: int, keep: bool,
) -> None:  # fmt: skip
    """Run a cell over time, or the adjoint of an Elman cell; arguments as in ``source/gather.cu``."""
    steps, batch, size = output.shape
    number = weight.shape[0] // size
    layout = found(gather_layout(size, number, batch, processors(weight.device)))
    run = compiled(
        "gather", layout, weight.device, gates=number, number=NUMBERS[output.dtype], kind=kind, cell=cell, back=back, keep=keep
    )
    packed = packed_rows(weight.T if back else weight, number, layout)
    nothing = output
    lengths = nothing if rows.lengths is None else rows.lengths
    start(run, layout, batch, [
        gates, packed, nothing if bias is None else bias, begin[0], begin[-1], output, nothing if extra is None else extra,
        end[0], end[-1], lengths, float(slope), steps, batch, size, layout.height, int(rows.lengths is not None),
        int(rows.backwards), int(given),
    ])  # fmt: skip


def scatter(
    weight: Tensor, gates: Tensor, extra: Tensor, states: Tensor, before: Tensor, grad: Tensor | None, begin: list[Tensor],
    adjoint: Tensor, inner: Tensor | None, end: list[Tensor], rows: Rows, *, cell: int,
) -> None:  # fmt: skip
    """Run the adjoint of a gated cell; arguments as in ``source/scatter.cu``."""
    steps, batch, size = states.shape
    number = weight.shape[0] // size
    layout = found(scatter_layout(size, number, batch, processors(weight.device)))
    run = compiled("scatter", layout, weight.device, gates=number, number=NUMBERS[states.dtype], kind=0, cell=cell)
    packed = packed_columns(weight, number, layout)
    lengths = states if rows.lengths is None else rows.lengths
    start(run, layout, batch, [
        gates, extra, packed, states, before, states if grad is None else grad, begin[0], begin[-1], adjoint,
        states if inner is None else inner, end[0], end[-1], lengths, steps, batch, size, layout.height,
        int(rows.lengths is not None), int(rows.backwards), int(grad is not None),
    ])  # fmt: skip
