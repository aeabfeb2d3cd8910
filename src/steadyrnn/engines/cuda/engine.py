"""The engine that runs a recurrence in our own CUDA kernels."""

from torch import Tensor

from steadyrnn.cells.base import Cell, State
from steadyrnn.checks import constant_result, without_autocast
from steadyrnn.gpu.device import has_clusters
from steadyrnn.gpu.nvrtc import OnDevice

from ..base import Engine, Recurrence
from ..loop.call import Call, Forward, Gradients, Kernel
from ..loop.family import Family
from ..loop.ops import register, run_op
from .kernels.codes import CELLS, NUMBERS, supports_elman
from .loops.dense import GatedLoop, RNNLoop
from .loops.factored import FactoredLoop, arrange_weight, runs_in_factors
from .plan.layouts import fits

__all__ = ["CUDAEngine"]


@constant_result  # asks the driver, which a compiler cannot look into
def is_capable(index: int) -> bool:
    """Say whether kernels can be compiled for a device, and run there."""
    return has_clusters(index)


@constant_result
def weight_fits(size: int, gates: int) -> bool:
    """Say whether a weight fits the chip, from what a compiler need not look into either."""
    return fits(size, gates)


def loop_of(call: Call, cell: Cell) -> Family:
    """Return the loop for a call; factors are three tensors, a dense weight is one."""
    kernel, activation = cell.record.kernel, cell.record.activation
    if activation is not None:
        return FactoredLoop(call, activation) if len(call.recurrent) == 3 else RNNLoop(call, activation)
    return GatedLoop(call, kernel or "")


class CUDAKernel(Kernel):
    """Runs calls on a GPU."""

    def forward(self, call: Call, cell: Cell, recompute: bool, keep: bool) -> Forward:
        """Run the loop."""
        with OnDevice(call.input.device), without_autocast(call.input.device):
            return loop_of(call, cell).forward(keep)

    def backward(
        self, call: Call, cell: Cell, recompute: bool, done: Forward, grad_output: Tensor | None,
        grad_state: list[Tensor | None], needs_input: bool,
    ) -> Gradients:  # fmt: skip
        """Run the adjoint."""
        with OnDevice(call.input.device), without_autocast(call.input.device):
            return loop_of(call, cell).backward(done, grad_output, grad_state, needs_input)

    def stash_like(self, call: Call, cell: Cell, recompute: bool) -> Tensor:
        """Return a tensor shaped as the stash."""
        return loop_of(call._replace(sizes=None), cell).stash_like()


OP = register("cuda", "cuda", CUDAKernel())


def supports(cell: Cell) -> bool:
    """Say whether there is a kernel for a cell.

    Example:
        >>> from steadyrnn.cells.registry import CELLS
        >>> supports(CELLS["lstm"]), supports(CELLS["gru-before"])
        (True, False)
    """
    return supports_elman(cell) or (cell.record.activation is None and cell.record.kernel in CELLS)


class CUDAEngine(Engine):
    """Elman, GRU (reset after) and LSTM in one launch for all time steps; the weight stays on the chip.

    A cluster of up to 16 multiprocessors shares the weight, in registers and shared memory, and runs a tile of rows; states
    go from one to the other without leaving the chip. float32 products of a step are float32 throughout; those outside of time
    are as accurate, or in TF32 where that is allowed.
    """

    name = "cuda"

    def refusal(self, recurrence: Recurrence) -> str | None:
        """Return why not: another device, a cell or dtype without a kernel, a weight too large, nothing to run."""
        x, cell, size = recurrence.input, recurrence.cell, recurrence.state[0].shape[-1]
        if x.device.type != "cuda":
            return f"its tensors are on {x.device.type}"
        if not is_capable(x.device.index or 0):
            return "its kernels need an NVIDIA GPU of compute capability 9.0 and a torch that can compile them"
        if not supports(cell):
            return f"there is no kernel for the cell {cell.key}"
        if x.dtype not in NUMBERS:
            return f"its dtype is {x.dtype}"
        if recurrence.recompute:
            return "its kernels keep every state, and recompute was requested"
        if x.shape[0] == 0 or x.shape[1] == 0:
            return "there is nothing to run"
        fit = runs_in_factors(recurrence) or weight_fits(size, len(cell.gates))
        return None if fit else f"a weight of {len(cell.gates)} x {size} x {size} does not fit a cluster of multiprocessors"

    def run(self, recurrence: Recurrence) -> tuple[Tensor, State]:
        """Run the op; shapes as in :class:`~steadyrnn.engines.base.Engine`."""
        return run_op(OP, recurrence, arrange_weight(recurrence))
