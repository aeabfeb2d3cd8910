"""Kernels of the CUDA engine without a GPU: their own source, compiled for the CPU, threads as fibers."""

import ctypes
import hashlib
import random
import re
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

from steadyrnn.gpu.nvrtc import source, word

__all__ = ["emulate", "emulated_kernel", "is_there"]

_FOLDER = Path(tempfile.gettempdir()) / "steadyrnn-emulated"
_PLAIN = (  # what is written in machine code for a GPU
    (r'asm\("cvt\.rn\.bf16\.f32 %0, %1;" : "=h"\(p\[i\]\) : "f"\(v\)\);', "p[i] = to_bfloat16(v);"),
    (r'asm\("cvt\.f32\.f16 %0, %1;" : "=f"\(v\) : "h"\(n\)\);', "_Float16 h; std::memcpy(&h, &n, 2); v = h;"),
    (r'asm\("cvt\.rn\.f16\.f32 %0, %1;" : "=h"\(p\[i\]\) : "f"\(v\)\);', "_Float16 h = v; std::memcpy(p + i, &h, 2);"),
    (r'asm\("ex2\.approx\.f32 %0, %1;" : "=f"\(e\) : "f"\((.*)\)\);', r"e = exp2f(\1);"),
    (r'asm volatile\("prefetch\.global\.L2 \[%0\];" ::"l"\(p\)\);', ""),
    (
        r'(?s)asm volatile\("barrier\.cluster\.arrive\.release\.aligned;\\nbarrier\.cluster\.wait.*?\);',
        "cluster_arrive(), cluster_wait();",
    ),
    (r"(?s)    u32 there;\n    double value;\n    asm volatile.*?return value;\n", "    return *peers(here, peer);\n"),
    (r"extern __shared__ __align__\(\d+\) (\w+) memory\[\];", r"\1* memory = (\1*)shared_memory(blockIdx.x);"),
    (
        r"__shared__ (?:__align__\(\d+\) )?(\w+) (\w+)((?:\[[^\]]+\])*);",
        r'auto& \2 = *(\1(*)\3)named_memory("\2", sizeof(\1\3));',
    ),
    (r"(?s)    float4 v;\n    asm volatile\(\"ld\.shared.*?return v;\n", "    return *(const float4*)at(from + beyond);\n"),
    (r"(?s)    float there;\n    asm volatile\(\"shfl.*?return there;\n", "    return __shfl_xor_sync(0, v, far);\n"),
    (r"(?s)__device__ __forceinline__ void put\(.*?\n}\n", ""),
    (
        r'asm\("cvt\.rn\.bf16x2\.f32 %0, %1, %2;" : "=r"\(both\) : "f"\(high\), "f"\(low\)\);',
        "both = to_bfloat16(low) | (u32)to_bfloat16(high) << 16;",
    ),
    (r'asm\("cvt\.rn\.f16x2\.f32 %0, %1, %2;" : "=r"\(both\) : "f"\(high\), "f"\(low\)\);', "both = to_halves(low, high);"),
    (r"(?s)#if NUMBER == 1\n    asm volatile\(\"mma\.sync.*?\"r\"\(b1\)\);\n", "    multiply_fragments(c, a, b0, b1);\n"),
    (r"\*reinterpret_cast<((?:const )?\w+)\*>\(", r"*aligned<\1>("),
    (r"(?s)asm volatile\(\"mma\.sync\.[\w.]*bf16\.bf16.*?\"r\"\(b1\)\);", "multiply_fragments(c, a, b0, b1);"),
)
_HELPERS = """
static unsigned short to_bfloat16(float value) {
    unsigned bits;
    std::memcpy(&bits, &value, 4);
    return std::isnan(value) ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
static unsigned to_halves(float low, float high) {
    const _Float16 halves[2] = {(_Float16)low, (_Float16)high};
    unsigned both;
    std::memcpy(&both, halves, 4);
    return both;
}
static const double* peers(const double* here, unsigned peer) {
    return (const double*)(shared_memory(first_block + peer) + ((const char*)here - shared_memory(blockIdx.x)));
}
"""


def is_there() -> bool:
    """Say whether kernels can be compiled here."""
    return sys.platform == "linux" and shutil.which("g++") is not None


def text_of(package: str, names: tuple[str, ...], entry: str, defined: tuple[tuple[str, int], ...], together: int) -> str:
    """Return the source of a kernel for the CPU."""
    text = source(package, names, defined)
    if names[0] == "head":  # but for how blocks send each other messages, which is in emulated.h
        head = source(package, names[:1], defined).partition("__device__ __forceinline__ u32 address(")[0]
        text = head + source(package, names[1:], ())
    for pattern, plain in _PLAIN:
        text = re.sub(pattern, plain, text)
    assert "asm" not in text
    assert "tensor_product" not in names or dict(defined)["number"] == 1  # there are matrix units for no others
    head = Path(__file__).with_suffix(".h").read_text(encoding="utf-8")
    return f"{head}{_HELPERS}{text}\nEMULATED({entry}, {together})\n"


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
    """Let modules that compile kernels take these, as for a GPU of some multiprocessors."""
    for module in modules:
        monkeypatch.setattr(module, "kernel", emulated_kernel)
        monkeypatch.setattr(module, "compiled", unwrap(module.compiled))  # nothing is kept for other tests
        monkeypatch.setattr(module, "processors", lambda device: processors)


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
