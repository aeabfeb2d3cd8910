"""The engine that runs every cell on a GPU, of any width, through Triton."""

import os
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from shutil import which

import torch
from torch import Tensor

from steadyrnn.cells.base import State
from steadyrnn.checks import constant_result
from steadyrnn.linalg.operators import DiagonalLowRank

from ..base import Engine, Recurrence, RecurrentWeight, flatten_weight, stack_gates
from ..loop.ops import register, run_op
from .kernel import TritonKernel
from .specs import spec_of

__all__ = ["OP", "TritonEngine", "factored_is_faster"]

OP = register("triton", "cuda", TritonKernel())
_INSTALLED = find_spec("triton") is not None  # here, since a compiler cannot look into it
_HEADER = Path(sysconfig.get_paths()["include"], "Python.h").is_file()
_BUILDS = _HEADER and ("CC" in os.environ or any(which(name) for name in ("gcc", "clang")))  # Triton's launchers are in C
_CAPABLE = (8, 0)
"""The compute capability from which Triton supports a GPU."""
_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


@constant_result  # asks the driver, which a compiler cannot look into
def is_capable(index: int) -> bool:
    """Say whether Triton supports a device; AMD's, on which nothing was run, count as none."""
    return torch.version.hip is None and torch.cuda.get_device_capability(index) >= _CAPABLE


def factored_is_faster(size: int, rank: int) -> bool:
    """Say whether a step in factors costs less than one with the dense weight: two thin products and a barrier more.

    Example:
        >>> factored_is_faster(512, 32), factored_is_faster(64, 32)
        (True, False)
    """
    return size >= 128 and 4 * rank <= size


def choose_form(weight: RecurrentWeight, recurrence: Recurrence) -> list[Tensor]:
    """Return the tensors of a weight as the kernels read it: factors of an Elman layer where they are faster, else dense."""
    dtype = recurrence.input.dtype
    if (
        isinstance(weight, DiagonalLowRank)
        and recurrence.cell.record.kernel == "elman"
        and factored_is_faster(*weight.left.shape)
    ):
        return flatten_weight(weight.to(dtype))
    return [stack_gates(weight, dtype)]


class TritonEngine(Engine):
    """Every cell, activation of this package and width; one program runs a tile of rows over all time steps."""

    name = "triton"

    def refusal(self, recurrence: Recurrence) -> str | None:
        """Return why not: another device, a cell or dtype without a kernel, no Triton, nothing to build with."""
        x = recurrence.input
        if x.device.type != "cuda":
            return f"its tensors are on {x.device.type}"
        if spec_of(recurrence.cell) is None:
            return f"there is no kernel for the cell {recurrence.cell.key}"
        if not _INSTALLED:
            return "triton is not installed"
        if not _BUILDS:
            return "triton finds no C compiler, or no header of Python's"
        if not is_capable(x.device.index or 0):
            return "its kernels need an NVIDIA GPU of compute capability 8.0 or above"
        return None if x.dtype in _DTYPES else f"its dtype is {x.dtype}"

    def run(self, recurrence: Recurrence) -> tuple[Tensor, State]:
        """Run the op; shapes as in :class:`~steadyrnn.engines.base.Engine`."""
        return run_op(OP, recurrence, choose_form(recurrence.weight_hh, recurrence))
