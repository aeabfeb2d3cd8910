"""Triton's kernels without a GPU: run by its interpreter on the CPU, or compiled and not run."""

import sys
from functools import cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from torch import Tensor

import steadyrnn.engines.triton as package
from steadyrnn.cells.base import State
from steadyrnn.cells.rnn import RNNStep
from steadyrnn.engines.base import Engine, Recurrence, flatten_weight, stack_gates
from steadyrnn.engines.loop.call import Call
from steadyrnn.engines.loop.ops import RegisteredOp, register, run_op
from steadyrnn.engines.triton.kernel import TritonKernel
from steadyrnn.engines.triton.launch import Blocks
from steadyrnn.engines.triton.specs import CellSpec

__all__ = ["InterpretedEngine", "copied_kernels"]


@cache
def copied_kernels(interpret: bool) -> ModuleType:
    """Return a copy of the module of kernels of one's own, whose functions Triton interprets or compiles.

    Triton decides when a function is decorated, so the copy is imported under another name while the interpreter is on.
    The kernels use Triton's builtins only, which the choice does not touch: one process can do both.
    """
    import triton

    name, folder = f"kernels_copied_{interpret}", Path(package.__path__[0])
    spec = spec_from_file_location(name, folder / "__init__.py", submodule_search_locations=[str(folder)])
    sys.modules[name] = module_from_spec(spec)
    was_on, triton.knobs.runtime.interpret = triton.knobs.runtime.interpret, interpret
    try:
        return import_module(f"{name}.kernels")
    finally:
        triton.knobs.runtime.interpret = was_on


@cache
def operation(blocks: Blocks) -> RegisteredOp:
    """Return the op that runs a call in the interpreter, cut up into ``blocks``."""

    def choose(call: Call, spec: CellSpec) -> Blocks:
        return blocks

    words = "_".join(str(number) for number in blocks).replace("-", "")
    return register(f"interpreted_{words}", "cpu", TritonKernel(lambda: copied_kernels(True), choose))


class InterpretedEngine(Engine):
    """The Triton engine in the interpreter; small blocks, so that small sizes have several; factors stay factors."""

    name = "interpreted"

    def __init__(self, rows: int = 2, units: int = 16, depth: int = 16, stay: bool = False) -> None:
        self.registered = operation(Blocks(rows, units, depth, stay=stay, upcast=True))

    def refusal(self, recurrence: Recurrence) -> str | None:
        return None

    def weights(self, recurrence: Recurrence) -> list[Tensor]:
        """Return the tensors of the recurrent weight as the kernel expects them."""
        weight, elman = recurrence.weight_hh, isinstance(recurrence.cell, RNNStep)
        return flatten_weight(weight) if elman else [stack_gates(weight, recurrence.input.dtype)]

    def run(self, recurrence: Recurrence) -> tuple[Tensor, State]:
        return run_op(self.registered, recurrence, self.weights(recurrence))
