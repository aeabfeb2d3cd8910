"""Kernels from their source, compiled by torch's NVRTC for the device at hand: once a process, kept on disk for the next."""

import hashlib
import os
import tempfile
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

__all__ = ["is_there", "kernel"]

_LARGE_CLUSTERS = 14  # the number of the driver's attribute of a function


@cache
def is_there() -> bool:
    """Say whether this torch can compile a kernel."""
    return hasattr(torch.cuda, "_compile_kernel") and torch.version.hip is None


def source(names: tuple[str, ...], defined: tuple[tuple[str, int], ...]) -> str:
    r"""Return the text of a kernel: what is defined, then the files ``names``.

    Example:
        >>> source((), (("rows", 2),))
        '#define ROWS 2\n'
    """
    head = "".join(f"#define {name.upper()} {int(value)}\n" for name, value in defined)
    folder = files(__package__).joinpath("source")
    return head + "".join(folder.joinpath(f"{name}.cu").read_text(encoding="utf-8") for name in names)


def cache_folder() -> Path | None:
    """Return where compiled kernels are kept, or None if nowhere can be written."""
    base = os.environ.get("XDG_CACHE_HOME") or (Path.home() / ".cache")
    folder = Path(base) / "steadyrnn" / "kernels"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


def compiled(text: str, entry: str, capability: str) -> bytes:
    """Return the machine code of a kernel, from the disk where it was compiled before.

    The file's name is a hash of everything the code depends on; its end is a hash of its beginning, so that a broken file is
    compiled again.
    """
    from torch.cuda import _utils  # private, and absent from some builds

    key = "\n".join((torch.__version__, str(torch.version.cuda), capability, entry, text))
    folder = cache_folder()
    file = None if folder is None else folder / (hashlib.sha256(key.encode()).hexdigest()[:40] + ".cubin")
    if file is not None and file.is_file():
        stored = file.read_bytes()
        if hashlib.sha256(stored[:-32]).digest() == stored[-32:]:
            return stored[:-32]
    code, _ = _utils._nvrtc_compile(text, entry, compute_capability=capability)
    if file is not None:
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as part:
            part.write(code + hashlib.sha256(code).digest())
        os.replace(part.name, file)
    return bytes(code)


@cache
def kernel(names: tuple[str, ...], entry: str, defined: tuple[tuple[str, int], ...], shared: int, device: torch.device) -> Any:
    """Return a compiled kernel, to be called with (grid, block, arguments, bytes of shared memory).

    Args:
        names: Files of ``source``, in order.
        entry: The function's name.
        defined: What the files want defined, in lower case.
        shared: The most bytes of shared memory it will be called with.
        device: Where it will run.
    """
    from torch.cuda import _utils

    with torch.cuda.device(device):
        major, minor = torch.cuda.get_device_capability(device)
        code = compiled(source(names, defined), entry, f"{major}{minor}")
        found: Any = _utils._cuda_load_module(code, [entry])
        found = found[entry]
        found.set_shared_memory_config(shared)
        if dict(defined).get("blocks", 1) > 8:
            driver = _utils._get_gpu_runtime_library()
            _utils._check_cuda(driver.cuFuncSetAttribute(found.func, _LARGE_CLUSTERS, 1))
        return found
