"""Kernels of the CUDA engine without a GPU: their own source, compiled for the CPU, threads as fibers."""

import ctypes
import hashlib
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from inspect import unwrap
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

from steadyrnn.engines.cuda.plan import windows as window_plan
from steadyrnn.gpu.nvrtc import source, word

__all__ = ["emulate", "emulated_kernel", "is_there"]

_FOLDER = Path(tempfile.gettempdir()) / "steadyrnn-emulated"


def is_there() -> bool:
    """Say whether kernels can be compiled here."""
    return sys.platform == "linux" and shutil.which("g++") is not None


def text_of(package: str, names: tuple[str, ...], entry: str, defined: tuple[tuple[str, int], ...], together: int) -> str:
    """Return the source of a kernel for the CPU: its own, with another file in the place of ``ptx``."""
    assert names[0] == "ptx"
    assert "tensor_product" not in names or dict(defined)["number"] == 1  # float16 is not multiplied here
    here = Path(__file__).parent
    head, ptx = ((here / name).read_text(encoding="utf-8") for name in ("emulated.h", "emulated_ptx.h"))
    text = source(package, (), defined) + ptx + source(package, names[1:], ())
    assert "asm" not in text
    return f"{head}{text}\nEMULATED({entry}, {together})\n"


@cache
def built(text: str) -> ctypes.CDLL:
    """Return the library of a source, compiled once for all processes."""
    _FOLDER.mkdir(exist_ok=True)
    name = _FOLDER / hashlib.sha256(text.encode()).hexdigest()[:24]
    library = name.with_suffix(".so")
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=_FOLDER) as folder:
            file, made = Path(folder, "kernel.cpp"), Path(folder, "kernel.so")
            file.write_text(text, encoding="utf-8")
            options = ["-O1", "-std=c++17", "-w", "-fno-strict-aliasing", "-shared", "-fPIC"]
            subprocess.run(["g++", *options, "-o", str(made), str(file)], check=True)
            made.replace(library)
    return ctypes.CDLL(str(library))


def emulate(monkeypatch: pytest.MonkeyPatch, processors: int, *modules: ModuleType) -> None:
    """Let modules compile kernels for the CPU, as for a GPU of some multiprocessors."""
    for module in modules:
        monkeypatch.setattr(module, "kernel", emulated_kernel)
        monkeypatch.setattr(module, "compile_kernel", unwrap(module.compile_kernel))  # nothing is kept for other tests
    for module in (*modules, window_plan):
        monkeypatch.setattr(module, "multiprocessors", lambda device: processors, raising=False)


@cache
def emulated_kernel(
    package: str, names: tuple[str, ...], entry: str, defined: tuple[tuple[str, int], ...], shared: int, device: torch.device
) -> Callable[..., None]:
    """Return a kernel to be called as :class:`steadyrnn.gpu.nvrtc.Compiled` is, on tensors of the CPU."""
    together = 8 if "spectral_factors" in names else dict(defined)["blocks"]  # of a cluster
    library = built(text_of(package, names, entry, defined, together))

    def run(blocks: int, threads: int, shared: int, arguments: Sequence[Tensor | int | float], together: bool = False) -> None:
        given = (ctypes.c_uint64 * len(arguments))(*map(word, arguments))
        wrong = library.emulate(blocks, threads, shared, given, random.randrange(2**31))
        assert wrong == 0, ("", "threads wait for each other", "a message for nobody", "misaligned memory")[wrong]

    return run
