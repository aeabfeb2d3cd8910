"""The Elman loop on a GPU with a weight in factors: where it is faster, and the products outside of time."""

from typing import Any, cast

import torch
from torch import Tensor

from steadyrnn.activations import Activation
from steadyrnn.linalg.operators import DiagonalLowRank

from ...base import Recurrence, stack_gates
from ...loop.call import Call
from ...loop.family import History, flat
from ..kernels.codes import NUMBERS, supports_elman
from ..kernels.factored import run_factored
from ..plan.factored import HIGHEST_RANK, WIDEST
from .dense import ElmanLoop, Products

__all__ = ["FactoredLoop", "arrange_weight", "is_faster", "refusal", "runs_in_factors"]


def is_faster(size: int, rank: int, rows: int) -> bool:
    """Say whether a step with factors is expected to take less time than one with the dense weight.

    As on the CPU, half of the flops must go, in a weight that is not small; how many ``rows`` there are changes nothing, as
    long as there is one: both kernels then share the GPU out to them.

    Example:
        >>> is_faster(512, 32, 128), is_faster(512, 160, 128), is_faster(128, 8, 128)
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
    if not supports_elman(cell):
        return f"there is no kernel for the cell {cell.key}"
    if recurrence.input.dtype not in NUMBERS:
        return f"its dtype is {recurrence.input.dtype}"
    size, rank = weight.left.shape
    if not 0 < rank <= HIGHEST_RANK:
        return f"its factors have {rank} columns, and the kernel supports 1 to {HIGHEST_RANK}"
    return None if size <= WIDEST else f"{size} units are more than the {WIDEST} whose factors a cluster holds"


def runs_in_factors(recurrence: Recurrence) -> bool:
    """Say whether a recurrence has factors that the kernel runs and with which it is faster."""
    weight = recurrence.weight_hh
    if not isinstance(weight, DiagonalLowRank) or refusal(recurrence) is not None:
        return False
    size, rank = weight.left.shape
    return is_faster(size, rank, recurrence.input.shape[1])


def arrange_weight(recurrence: Recurrence) -> list[Tensor]:
    """Return the tensors of the recurrent weight as kernels read them: factors where these are faster, else one matrix."""
    weight, dtype = recurrence.weight_hh, recurrence.input.dtype
    if isinstance(weight, DiagonalLowRank) and runs_in_factors(recurrence):
        return list(weight.to(dtype))
    return [stack_gates(weight, dtype).contiguous()]


def factor_gradients(weight: DiagonalLowRank, history: History, along: Tensor) -> list[Tensor]:
    r"""Return the gradients of diagonal (H,) and factors (H, K) from products over all time.

    With adjoints a and states h, :math:`\sum_t a_t \circ h_{t-1}`, :math:`\sum_t a_t (R^\top h_{t-1})^\top` and
    :math:`\sum_t h_{t-1} (L^\top a_t)^\top`.

    Args:
        weight: In factors.
        history: Adjoints and the states before them.
        along: The first of these sums except for the first step, (H,).
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
        self.sums = run_factored(
            self.factors, gates, output, begin, end, self.rows, slope=self.slope, activation=self.activation, **more
        )

    def products(self, adjoint: Tensor, states: Tensor, needs_input: bool) -> Products:
        """Return gradients of the diagonal and of both factors, beside the others; some sums the adjoint brought along."""
        along, bias = (part.sum(0) for part in cast(Tensor, self.sums))  # each at the beginning of its own memory
        factors = factor_gradients(self.factors, self.history(adjoint, states, self.starts[0]), along)
        grad_w, grad_b = flat(adjoint).t() @ flat(self.call.input), bias.to(adjoint.dtype)
        return self.grad_input(adjoint, needs_input), grad_w, None if self.call.bias_ih is None else grad_b, factors
