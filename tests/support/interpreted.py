"""Triton's kernels run by its interpreter, on the CPU, in a process that may compile the same kernels for a GPU."""

import sys
from functools import cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import steadyrnn.engines.triton as package

__all__ = ["interpreted_kernels"]

_NAME = "interpreted_triton_kernels"


@cache
def interpreted_kernels() -> ModuleType:
    """Return a second copy of the module of kernels, whose functions Triton interprets.

    Triton decides when a function is decorated, so the copy is imported under another name while the interpreter is on;
    the kernels use Triton's builtins only, which the choice does not touch.
    """
    import triton

    folder = Path(package.__path__[0])
    spec = spec_from_file_location(_NAME, folder / "__init__.py", submodule_search_locations=[str(folder)])
    sys.modules[_NAME] = module_from_spec(spec)
    was_on, triton.knobs.runtime.interpret = triton.knobs.runtime.interpret, True
    try:
        return import_module(f"{_NAME}.kernels")
    finally:
        triton.knobs.runtime.interpret = was_on
