"""Kernels from their source, compiled by torch's NVRTC for the device at hand, once a process."""

from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import torch

__all__ = ["Shape", "is_there", "kernel"]


class Shape(NamedTuple):
    """What a kernel is compiled for."""

    width: int  # units, a power of two
    kind: int  # of activation
    measure: bool  # whether the largest state is noted
    rows: int = 8  # of a block
    split: int = 4  # threads that share a product
    each: int = 2  # rows of the weight that a thread holds
    blocks: int = 2  # at least so many on a multiprocessor

    @classmethod
    def of(cls, size: int, kind: int, measure: bool) -> "Shape":
        """Return the shape for a layer of ``size`` units."""
        return cls(max(32, 1 << (size - 1).bit_length()), kind, measure)

    @classmethod
    def rows_at_once(cls) -> int:
        """Return how many rows a multiprocessor runs side by side."""
        defaults = cls._field_defaults
        return int(defaults["rows"] * defaults["blocks"])

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.width // self.each * self.split


@cache
def is_there() -> bool:
    """Say whether this torch can compile a kernel."""
    return hasattr(torch.cuda, "_compile_kernel")


@cache
def kernel(shape: Shape, device: torch.device) -> Any:
    """Return the compiled kernel ``run_windows``, to be called with (grid, block, arguments)."""
    head = "".join(f"#define {name.upper()} {int(value)}\n" for name, value in shape._asdict().items())
    source = files(__package__).joinpath("windows.cu").read_text(encoding="utf-8")
    with torch.cuda.device(device):
        return torch.cuda._compile_kernel(head + source, "run_windows")
