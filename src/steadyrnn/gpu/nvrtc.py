"""Kernels from their source, compiled by torch's NVRTC for the device at hand: once per process, kept on disk for the next."""

import ctypes
import hashlib
import struct
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any, cast

import torch
from torch import Tensor

from .kernel_cache import cache_folder, read_stored, write_stored
from .torch_private import current_raw_stream, driver

__all__ = ["Compiled", "OnDevice", "is_there", "kernel"]

_HERE = __name__.rpartition(".")[0]
_LARGE_CLUSTERS = 14  # the number of the driver's attribute of a function


@cache
def is_there() -> bool:
    """Say whether this torch can compile a kernel: what does is private to it, and may be gone in another version."""
    wanted = ("_nvrtc_compile", "_cuda_load_module", "_get_gpu_runtime_library", "_check_cuda")
    return all(hasattr(driver, name) for name in wanted) and current_raw_stream is not None and torch.version.hip is None


def source(package: str, names: tuple[str, ...], defined: tuple[tuple[str, int], ...]) -> str:
    r"""Return the text of a kernel: what is defined, then the files ``names`` of the folder ``source`` of a package.

    The file ``ptx``, which all packages share, lies in this package.

    Example:
        >>> source("steadyrnn.linalg", (), (("rows", 2),))
        '#define ROWS 2\n'
    """
    head = "".join(f"#define {name.upper()} {int(value)}\n" for name, value in defined)
    return head + "".join(
        files(_HERE if name == "ptx" else package).joinpath("source", f"{name}.cu").read_text(encoding="utf-8")
        for name in names
    )


def compile_source(text: str, entry: str, capability: str) -> bytes:
    """Return the machine code of a kernel, from the disk where it was compiled before.

    The file's name is a hash of everything the code depends on.
    """
    key = "\n".join((torch.__version__, str(torch.version.cuda), capability, entry, text))
    folder = cache_folder()
    file = None if folder is None else folder / (hashlib.sha256(key.encode()).hexdigest()[:40] + ".cubin")
    code = None if file is None else read_stored(file)
    if code is None:
        code, _ = driver._nvrtc_compile(text, entry, compute_capability=capability)
        if file is not None:
            write_stored(file, code)
    return bytes(code)


def architecture(defined: dict[str, int], major: int = 9, minor: int = 0) -> str:
    """Return what a kernel is compiled for; an "a" asks for what only this very architecture has: warps that hand on registers.

    Example:
        >>> architecture({"far": 0}), architecture({"far": 1})
        ('90', '90a')
    """
    return f"{major}{minor}{'a' if defined.get('far') else ''}"


class OnDevice:
    """Make a device the current one, also for the driver.

    A thread of autograd's that has asked the runtime for nothing yet has no context: torch's own guard sees that the device
    is the current one and does nothing, and the driver then refuses a launch.
    """

    def __init__(self, device: torch.device) -> None:
        self.index = device.index

    def __enter__(self) -> None:
        self.before = torch.cuda.current_device()
        torch.cuda.set_device(self.before if self.index is None else self.index)

    def __exit__(self, *_: object) -> None:
        if self.index not in (None, self.before):
            torch.cuda.set_device(self.before)


class Compiled:
    """A kernel on a device, ready to be launched on its current stream.

    torch's own object for this opens the driver's library and looks at every argument again on each call, which takes longer
    than a short recurrence.
    """

    def __init__(self, code: bytes, entry: str, shared: int, large: bool, device: torch.device) -> None:
        loaded: Any = driver._cuda_load_module(code, [entry])
        self.found = loaded[entry]
        self.found.set_shared_memory_config(shared)
        library = driver._get_gpu_runtime_library()
        if large:
            driver._check_cuda(library.cuFuncSetAttribute(self.found.func, _LARGE_CLUSTERS, 1))
        self.start, self.start_together = library.cuLaunchKernel, library.cuLaunchCooperativeKernel
        self.stream = cast(Callable[[int], int], current_raw_stream)  # `is_there` has seen it
        self.index = device.index if device.index is not None else torch.cuda.current_device()

    def __call__(
        self, blocks: int, threads: int, shared: int, arguments: list[Tensor | int | float], together: bool = False
    ) -> None:
        """Launch ``blocks`` blocks; tensors go as pointers, integers as 32 bits, other numbers as doubles.

        With ``together`` the driver sees to it that all blocks run at the same time, or refuses.
        """
        words = (ctypes.c_uint64 * len(arguments))(*map(word, arguments))
        base = ctypes.addressof(words)
        places = (ctypes.c_void_p * len(arguments))(*range(base, base + 8 * len(arguments), 8))
        stream = ctypes.c_void_p(self.stream(self.index))
        shape = (self.found.func, blocks, 1, 1, threads, 1, 1, shared, stream, places)
        driver._check_cuda(self.start_together(*shape) if together else self.start(*shape, None))


def word(argument: Tensor | int | float) -> int:
    """Return the eight bytes of an argument as a number; an integer's are its first four.

    Example:
        >>> word(-1) == 2**32 - 1, word(0.0)
        (True, 0)
    """
    if isinstance(argument, Tensor):
        return argument.data_ptr()
    if isinstance(argument, int):
        return argument & 0xFFFFFFFF
    return int(struct.unpack("<Q", struct.pack("<d", argument))[0])


@cache
def kernel(
    package: str, names: tuple[str, ...], entry: str, defined: tuple[tuple[str, int], ...], shared: int, device: torch.device
) -> Compiled:
    """Return a compiled kernel.

    Args:
        package: Where the folder ``source`` lies.
        names: Files of it, in order.
        entry: The function's name.
        defined: What the files want defined, in lower case.
        shared: The most bytes of shared memory it will be called with.
        device: Where it will run.
    """
    with OnDevice(device):
        major, minor = torch.cuda.get_device_capability(device)
        given = dict(defined)
        code = compile_source(source(package, names, defined), entry, architecture(given, major, minor))
        return Compiled(code, entry, shared, given.get("blocks", 1) > 8 and not given.get("far"), device)
