"""The engine that hands a recurrence to the custom op of its family."""

import torch
from torch import Tensor

from steadyrnn.cells.base import State
from steadyrnn.linalg.operators import DiagonalLowRank

from ..base import Engine, Recurrence
from ..ops import register, run_op
from .kernel import CPUKernel

__all__ = ["OPS", "CPUEngine", "factored_pays"]

REGISTERED = {family: register(family, "cpu", CPUKernel()) for family in ("rnn", "gru", "lstm")}
OPS = {family: registered.op for family, registered in REGISTERED.items()}
"""The op of each cell family."""


def factored_pays(size: int, rank: int, rows: int) -> bool:
    """Say whether a step with a factored weight costs less than one with the dense weight.

    By flops it saves 2 H^2 - 4 H K a row. Against that stand thin products, which run at about half the rate of square
    ones (so at least half the flops must go), and two more operations a step, worth about 2^18 flops; below a width of
    256 the square product is too cheap to beat (``benchmarks/bench_factored.py``).

    Example:
        >>> factored_pays(1024, 32, 64), factored_pays(1024, 512, 64), factored_pays(128, 8, 64), factored_pays(256, 32, 1)
        (True, False, False, False)
    """
    saved = rows * size * (2 * size - 4 * rank)
    return size >= 256 and 4 * rank <= size and saved >= 2**18


class CPUEngine(Engine):
    """Hoisted input product, preallocated outputs, hand-written adjoint; dense or factored weight."""

    name = "cpu"

    def refusal(self, recurrence: Recurrence) -> str | None:
        """Return why not: another device, or a dtype without CPU products."""
        x = recurrence.input
        if x.device.type not in ("cpu", "meta"):
            return f"its tensors are on {x.device}"
        if x.dtype not in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
            return f"its dtype is {x.dtype}"
        return None

    def run(self, recurrence: Recurrence) -> tuple[Tensor, State]:
        """Run the op; shapes as in :class:`~steadyrnn.engines.base.Engine`."""
        x, weight = recurrence.input, recurrence.weight_hh
        if isinstance(weight, DiagonalLowRank):
            pays = factored_pays(weight.diagonal.shape[0], weight.left.shape[1], x.shape[1])
            recurrent = [*weight.to(x.dtype)] if pays else [weight.dense().to(x.dtype)]
        else:
            recurrent = [weight]
        return run_op(REGISTERED[recurrence.cell.key.partition(":")[0]], recurrence, recurrent)
