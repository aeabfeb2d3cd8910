"""The engine that hands a recurrence to the custom op of its family."""

import torch
from torch import Tensor

from steadyrnn.cells.base import State
from steadyrnn.linalg.operators import DiagonalLowRank

from ..base import Engine, Recurrence
from ..loop.ops import is_kept, is_plain, register, run_op
from ..weights import Gate, RecurrentWeight, as_gates, flattened, stacked
from .kernel import CPUKernel
from .onednn import onednn_runs, run_onednn

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


def arranged(weight: RecurrentWeight, x: Tensor) -> RecurrentWeight:
    """Return a weight as the loop runs fastest: factors where they pay, else dense; gates apart where they are large.

    Stacking copies every gate, which at a width of 512 costs more memory than one product instead of several saves time.

    Args:
        weight: The weight as the layer gives it.
        x: The input, shape (T, B, D).
    """
    if isinstance(weight, Tensor):
        return weight
    gates, rows = as_gates(weight), x.shape[1]
    kept = tuple(gate.to(x.dtype) if pays_here(gate, rows) else stacked(gate, x.dtype) for gate in gates)
    large = flattened(weight)[0].shape[0] >= 512 or any(isinstance(gate, DiagonalLowRank) for gate in kept)
    return (kept[0] if len(kept) == 1 else kept) if large else stacked(kept, x.dtype)


def pays_here(gate: Gate, rows: int) -> bool:
    """Say whether a gate has factors that pay for a batch of ``rows``."""
    return isinstance(gate, DiagonalLowRank) and factored_pays(gate.diagonal.shape[0], gate.left.shape[1], rows)


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
        recurrent = flattened(arranged(recurrence.weight_hh, recurrence.input))
        if is_plain(recurrence.tensors) and onednn_runs(recurrence, recurrent):
            return run_onednn(recurrence, recurrent[0], is_kept(recurrence.tensors))
        return run_op(REGISTERED[recurrence.cell.key.partition(":")[0]], recurrence, recurrent)
