"""The Elman loop on a GPU with a weight in factors: layout, launch, and the products outside of time."""

from functools import cache
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from steadyrnn.activations import Activation
from steadyrnn.cells.rnn import RNNStep
from steadyrnn.errors import EngineError
from steadyrnn.gpu.nvrtc import Compiled, kernel
from steadyrnn.linalg.operators import DiagonalLowRank

from ..base import Recurrence, stacked
from ..loop.call import Call
from ..loop.products import History, flat
from .direct import Variant
from .families import ElmanLoop, Products
from .kinds import KINDS, NUMBERS, PACKAGE
from .launch import Rows, processors
from .plan import SHARED, clusters_at_once

__all__ = ["FactoredLoop", "arranged", "factored_layout", "in_factors", "pays", "refusal"]

HIGHEST_RANK, WIDEST = 64, 4096
"""The most columns of a factor, and the most units, that a cluster holds in registers."""
_THREADS = 256
_NUMBERS = 16384  # of a factor that a block holds: 64 registers a thread
_MOST_UNITS = 1024
_ENTRIES = 16  # of the state that a thread finishes in a step


class FactoredLayout(NamedTuple):
    """How ``source/factored.cu`` is launched."""

    blocks: int  # of a cluster
    units: int  # of a block
    rank: int  # columns of a factor, padded
    height: int  # rows of a cluster

    @property
    def items(self) -> int:
        """Units of a thread."""
        return -(-self.units // _THREADS)

    @property
    def rows(self) -> int:
        """Rows that there is place for: they are multiplied in pairs."""
        return self.height if self.height == 1 else self.height + self.height % 2

    @property
    def shared(self) -> int:
        """Bytes of shared memory: states, their products, what blocks send, and a factor on its way to registers."""
        parts = 1 if self.blocks == 1 else 1 + 2 * self.blocks
        state = -(-self.units // 128) * 128
        return 4 * (self.rows * (state + parts * self.rank) + self.units * (self.rank + 1))


@cache
def factored_layout(size: int, rank: int, batch: int, processors: int) -> FactoredLayout:
    """Return the layout for ``size`` units and factors of ``rank`` columns: as few blocks as hold the factors.

    Example:
        >>> factored_layout(512, 32, 128, 132)
        FactoredLayout(blocks=1, units=512, rank=32, height=1)
        >>> factored_layout(1024, 32, 128, 132)
        FactoredLayout(blocks=2, units=512, rank=32, height=2)
    """
    padded = max(8, 1 << (rank - 1).bit_length())
    most = min(_MOST_UNITS, _NUMBERS // padded)
    for blocks in (1, 2, 4, 8, 16):
        units = -(-size // (4 * blocks)) * 4
        if units <= most:
            layout = FactoredLayout(blocks, units, padded, 1)
            lanes, tallest = clusters_at_once(blocks, processors), _ENTRIES // layout.items // 2 * 2
            rounds = -(-batch // (lanes * tallest))
            return layout._replace(height=-(-batch // (lanes * rounds)))
    raise EngineError(f"Factors of {size} x {rank} fit no cluster of multiprocessors; use `engine='auto'`.")


def pays(size: int, rank: int, rows: int) -> bool:
    """Say whether a step with factors is expected to take less time than one with the dense weight.

    As on the CPU, half of the flops must go, in a weight that is not small; how many ``rows`` there are changes nothing, as
    long as there is one: both kernels then share the GPU out to them.

    Example:
        >>> pays(512, 32, 128), pays(512, 160, 128), pays(128, 8, 128)
        (True, False, False)
    """
    return rows > 0 and size >= 256 and 4 * rank <= size


def refusal(recurrence: Recurrence) -> str | None:
    """Return why the kernel cannot run a recurrence on a GPU, as a clause that ends a sentence; None if it can.

    Example:
        >>> from steadyrnn.cells.registry import CELLS
        >>> zero = torch.zeros(1, 1)
        >>> refusal(Recurrence(CELLS["rnn-tanh"], torch.ones(3, 1, 1), (zero,), zero, zero))
        'its recurrent weight is not one matrix in factors'
    """
    weight, cell = recurrence.weight_hh, recurrence.cell
    if not isinstance(weight, DiagonalLowRank):
        return "its recurrent weight is not one matrix in factors"
    if not isinstance(cell, RNNStep) or type(cell.activation) not in KINDS:
        return f"there is no kernel for the cell {cell.key}"
    if recurrence.input.dtype not in NUMBERS:
        return f"its dtype is {recurrence.input.dtype}"
    size, rank = weight.left.shape
    if not 0 < rank <= HIGHEST_RANK:
        return f"its factors have {rank} columns, and the kernel takes 1 to {HIGHEST_RANK}"
    return None if size <= WIDEST else f"{size} units are more than the {WIDEST} whose factors a cluster holds"


def in_factors(recurrence: Recurrence) -> bool:
    """Say whether a recurrence has factors that the kernel runs and that pay."""
    weight = recurrence.weight_hh
    if not isinstance(weight, DiagonalLowRank) or refusal(recurrence) is not None:
        return False
    size, rank = weight.left.shape
    return pays(size, rank, recurrence.input.shape[1])


def arranged(recurrence: Recurrence) -> list[Tensor]:
    """Return the tensors of the recurrent weight as the kernels take them: factors where they pay, else a dense matrix."""
    weight, dtype = recurrence.weight_hh, recurrence.input.dtype
    if isinstance(weight, DiagonalLowRank) and in_factors(recurrence):
        return list(weight.to(dtype))
    return [stacked(weight, dtype).contiguous()]


@cache
def compiled(layout: FactoredLayout, variant: Variant, device: torch.device) -> Compiled:
    """Return the kernel for a layout."""
    defined = {
        "threads": _THREADS, "gates": 1, "blocks": layout.blocks, "units": layout.units, "rank": layout.rank,
        "rows": layout.rows, "items": layout.items, **variant._asdict(),
    }  # fmt: skip
    return kernel(PACKAGE, ("head", "factored"), "run_factored", tuple(defined.items()), SHARED, device)


def launch(
    weight: DiagonalLowRank, gates: Tensor, output: Tensor, begin: Tensor, end: Tensor, rows: Rows, *, extra: Tensor,
    slope: float, kind: int, keep: bool, back: bool = False, given: bool = True,
) -> Tensor | None:  # fmt: skip
    """Run the loop, or with ``back`` its adjoint; arguments as in ``source/factored.cu``, tensors contiguous.

    Returns:
        With ``back``, the sums over all time of each tile of rows, (2, tiles, H) in float32.
    """
    steps, batch, size = output.shape
    rank, device = weight.left.shape[1], output.device
    layout = factored_layout(size, rank, batch, processors(device))
    run = compiled(layout, Variant(NUMBERS[output.dtype], kind, back, keep), device)
    inward, outward = (weight.left, weight.right) if back else (weight.right, weight.left)
    tiles = -(-batch // layout.height)
    sums = output.new_empty(2, tiles, size, dtype=torch.float32) if back else None
    run(tiles * layout.blocks, _THREADS, layout.shared, [
        gates, weight.diagonal, inward, outward, begin, output, extra, end, output if sums is None else sums,
        output if rows.lengths is None else rows.lengths, float(slope), steps, batch, size, rank, layout.height,
        int(rows.lengths is not None), int(rows.backwards), int(given),
    ])  # fmt: skip
    return sums


def factor_gradients(weight: DiagonalLowRank, history: History, along: Tensor) -> list[Tensor]:
    r"""Return the gradients of diagonal (H,) and factors (H, K) from products over all time.

    With adjoints a and states h, :math:`\sum_t a_t \circ h_{t-1}`, :math:`\sum_t a_t (R^\top h_{t-1})^\top` and
    :math:`\sum_t h_{t-1} (L^\top a_t)^\top`.

    Args:
        weight: In factors.
        history: Adjoints and the states before them.
        along: The first of these sums but for the first step, (H,).
    """
    late, early, first, start = history
    grad_left = (flat(late).t() @ (flat(early) @ weight.right)).addmm_(first.t(), start @ weight.right)
    grad_right = (flat(early).t() @ (flat(late) @ weight.left)).addmm_(start.t(), first @ weight.left)
    return [(along + (first.to(along.dtype) * start).sum(0)).to(first.dtype), grad_left, grad_right]


class FactoredLoop(ElmanLoop):
    r"""The loop :math:`h_t = \varphi(d \circ h_{t-1} + L R^\top h_{t-1} + g_t)`; its adjoint has the factors exchanged."""

    def __init__(self, call: Call, activation: Activation) -> None:
        super().__init__(call, activation)
        self.factors = DiagonalLowRank(*(part.contiguous() for part in call.recurrent))

    def launch(self, gates: Tensor, output: Tensor, begin: Tensor | None, end: Tensor, **more: Any) -> None:
        """Run ``source/factored.cu``."""
        begin = torch.zeros_like(end) if begin is None else begin
        self.sums = launch(self.factors, gates, output, begin, end, self.rows, slope=self.slope, kind=self.kind, **more)

    def products(self, adjoint: Tensor, states: Tensor, needs_input: bool) -> Products:
        """Return gradients of the diagonal and of both factors, beside the others; some sums the adjoint brought along."""
        along, bias = (part.sum(0) for part in cast(Tensor, self.sums))  # each at the beginning of its own memory
        factors = factor_gradients(self.factors, self.history(adjoint, states, self.starts[0]), along)
        grad_w, grad_b = flat(adjoint).t() @ flat(self.call.input), bias.to(adjoint.dtype)
        return self.grad_input(adjoint, needs_input), grad_w, None if self.call.bias_ih is None else grad_b, factors
