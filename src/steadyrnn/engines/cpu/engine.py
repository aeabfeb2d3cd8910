"""The CPU engine: the loop of each cell, over all time steps or segment by segment, behind a custom op."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, cast

import torch
from torch import Tensor

from steadyrnn.activations import Activation
from steadyrnn.cells.base import Cell, State
from steadyrnn.checks import without_autocast
from steadyrnn.linalg.operators import DiagonalLowRank

from ..base import Engine, Gate, Recurrence, RecurrentWeight, as_gates, flatten_weight, stack_gates
from ..loop.call import Call, Forward, Gradients, Kernel
from ..loop.family import Family
from ..loop.ops import is_kept, is_plain, register, run_op
from ..loop.segments import run_segments, run_segments_back, segments_like
from .gru import GRUFamily
from .lstm import LSTMFamily
from .onednn import OneDNNFamily, run_onednn, supports_onednn
from .rnn import RNNFamily

__all__ = ["OPS", "CPUEngine", "CPUKernel", "factored_is_faster", "flush_denormals"]

_DENORMAL = 5e-324


class Loop(NamedTuple):
    """How a cell is run: the name of its op, and its loop over a call."""

    op: str
    family: Callable[[Call, Cell], Family]


LOOPS = {
    "elman": Loop("rnn", lambda call, cell: RNNFamily(call, cast(Activation, cell.record.activation))),
    "gru_after": Loop("gru", lambda call, cell: GRUFamily(call, reset_after=True)),
    "gru_before": Loop("gru", lambda call, cell: GRUFamily(call, reset_after=False)),
    "lstm": Loop("lstm", lambda call, cell: LSTMFamily(call)),
}
"""By the kernel's name in a cell's record."""


@contextmanager
def flush_denormals() -> Iterator[None]:
    """Flush denormal numbers to zero on this thread, and restore the mode it had.

    Decayed states and gradients become denormal, on which the processor is many times slower.

    Example:
        >>> with flush_denormals():
        ...     float(torch.tensor(1e-310, dtype=torch.float64) * 1)
        0.0
    """
    was_on = _DENORMAL * 1.0 == 0.0  # the mode is the thread's, so Python's own arithmetic shows it
    if was_on:
        yield
        return
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


class CPUKernel(Kernel):
    """Runs calls on the CPU, denormal numbers flushed.

    Args:
        whole: Whether calls cover all time steps. Only such calls run on oneDNN.
    """

    def __init__(self, whole: bool = True) -> None:
        self.whole = whole

    def family(self, call: Call, cell: Cell) -> Family:
        """Return the loop for a call: chosen from the call alone, so that forward and backward choose alike."""
        asks = cell.record.onednn_mode is not None and self.whole
        if asks and supports_onednn(call.input, call.state[0], call.recurrent, call.sizes is not None):
            return OneDNNFamily(call)
        return LOOPS[cast(str, cell.record.kernel)].family(call, cell)

    def forward(self, call: Call, cell: Cell, recompute: bool, keep: bool) -> Forward:
        """Run the loop."""
        with flush_denormals(), without_autocast(call.input.device):
            if recompute:
                return run_segments(_SEGMENTS, call, cell)
            return self.family(call, cell).forward(keep)

    def backward(
        self, call: Call, cell: Cell, recompute: bool, done: Forward, grad_output: Tensor | None,
        grad_state: list[Tensor | None], needs_input: bool,
    ) -> Gradients:  # fmt: skip
        """Run the loop back."""
        with flush_denormals(), without_autocast(call.input.device):
            if recompute:
                return run_segments_back(_SEGMENTS, call, cell, done.stash, grad_output, grad_state, needs_input)
            return self.family(call, cell).backward(done, grad_output, grad_state, needs_input)

    def stash_like(self, call: Call, cell: Cell, recompute: bool) -> Tensor:
        """Return a tensor shaped as the stash; only oneDNN knows the size of its workspace."""
        return segments_like(call) if recompute else self.family(call, cell).stash_like()


_SEGMENTS = CPUKernel(whole=False)
REGISTERED = {name: register(name, "cpu", CPUKernel()) for name in dict.fromkeys(loop.op for loop in LOOPS.values())}
OPS = {name: registered.op for name, registered in REGISTERED.items()}
"""The op of each family of cells."""


def factored_is_faster(size: int, rank: int, rows: int) -> bool:
    """Say whether a step with a factored weight costs less than one with the dense weight.

    By flops it saves 2 H^2 - 4 H K per row. Against that stand thin products, which run at about half the rate of square
    ones (so at least half the flops must go), and two more operations per step, worth about 2^18 flops; below a width of
    256 the square product is too cheap to beat (``benchmarks/bench_factored.py``).

    Example:
        >>> [factored_is_faster(*sizes) for sizes in ((1024, 32, 64), (1024, 512, 64), (128, 8, 64), (256, 32, 1))]
        [True, False, False, False]
    """
    saved = rows * size * (2 * size - 4 * rank)
    return size >= 256 and 4 * rank <= size and saved >= 2**18


def choose_form(weight: RecurrentWeight, x: Tensor) -> RecurrentWeight:
    """Return a weight as the loop runs fastest: factors where they are faster, else dense; gates apart where they are large.

    Stacking copies every gate, which at a width of 512 costs more memory than one product instead of several saves time.

    Args:
        weight: The weight as the layer gives it.
        x: The input, shape (T, B, D).
    """
    if isinstance(weight, Tensor):
        return weight
    gates, rows = as_gates(weight), x.shape[1]
    kept = tuple(gate.to(x.dtype) if keeps_factors(gate, rows) else stack_gates(gate, x.dtype) for gate in gates)
    large = flatten_weight(weight)[0].shape[0] >= 512 or any(isinstance(gate, DiagonalLowRank) for gate in kept)
    return (kept[0] if len(kept) == 1 else kept) if large else stack_gates(kept, x.dtype)


def keeps_factors(gate: Gate, rows: int) -> bool:
    """Say whether a gate has factors, and they are faster for a batch of ``rows``."""
    return isinstance(gate, DiagonalLowRank) and factored_is_faster(gate.diagonal.shape[0], gate.left.shape[1], rows)


class CPUEngine(Engine):
    """One input projection before the loop, preallocated outputs, a hand-written backward; dense or factored weight."""

    name = "cpu"

    def refusal(self, recurrence: Recurrence) -> str | None:
        """Return why not: another device, a cell without a loop, or a dtype without CPU products."""
        x = recurrence.input
        if x.device.type not in ("cpu", "meta"):
            return f"its tensors are on {x.device}"
        if recurrence.cell.record.kernel not in LOOPS:
            return f"there is no kernel for the cell {recurrence.cell.key}"
        if x.dtype not in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
            return f"its dtype is {x.dtype}"
        return None

    def run(self, recurrence: Recurrence) -> tuple[Tensor, State]:
        """Run the op; shapes as in :class:`~steadyrnn.engines.base.Engine`."""
        run, record = recurrence, recurrence.cell.record
        recurrent = flatten_weight(choose_form(run.weight_hh, run.input))
        asks = record.onednn_mode is not None and not run.recompute and is_plain(run.tensors)
        if asks and supports_onednn(run.input, run.state[0], recurrent, run.batch_sizes is not None):
            with flush_denormals():
                return run_onednn(run, recurrent[0], is_kept(run.tensors))
        return run_op(REGISTERED[LOOPS[cast(str, record.kernel)].op], run, recurrent)
