"""What a run was made with: versions, processor, threads, switches; equal numbers may need all of it to be equal."""

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from .source_commit import source_commit

__all__ = ["describe_environment"]

_PACKAGES = (
    *("steadyrnn", "torch", "numpy", "safetensors", "triton", "tensorboard", "torchmetrics"),
    *("jsonargparse", "rich", "matplotlib", "jinja2"),
)
_VARIABLES = (
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUBLAS_WORKSPACE_CONFIG", "CUDA_VISIBLE_DEVICES"),
    *("STEADYRNN_DATA", "STEADYRNN_CALIBRATION"),
)


def describe_environment() -> dict[str, Any]:
    """Return what this process runs with, as JSON.

    Example:
        >>> environment = describe_environment()
        >>> environment["torch"] == str(torch.__version__), sorted(environment)[:3]
        (True, ['cpu', 'cuda', 'determinism'])
    """
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "torch": str(torch.__version__),
        "cpu": {"machine": platform.machine(), "capability": torch.backends.cpu.get_cpu_capability(), "cores": os.cpu_count()},
        "cuda": _cuda(),
        "packages": _packages(),
        "git": _git(),
        "threads": {"within": torch.get_num_threads(), "between": torch.get_num_interop_threads()},
        "determinism": _determinism(),
        "variables": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
    }


def _cuda() -> dict[str, Any] | None:
    if not torch.cuda.is_available():
        return None
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return {"version": torch.version.cuda, "cudnn": torch.backends.cudnn.version(), "devices": names}


def _packages() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _determinism() -> dict[str, Any]:
    return {
        "algorithms": torch.are_deterministic_algorithms_enabled(),
        "cudnn": torch.backends.cudnn.deterministic,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "float32_matmul": _matmul_precision(),
        "flush_denormal": _flushes_denormals(),
        "optimized": bool(sys.flags.optimize),
    }


def _matmul_precision() -> str:
    """Return the precision of float32 products; torch has no one name where backends were set apart."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return "mixed"


def _flushes_denormals() -> bool:
    """Say whether denormal numbers count as zero: the mode has no getter, but the arithmetic tells."""
    return float(torch.tensor([5e-324], dtype=torch.float64).mul(1.0).item()) == 0.0


def _git() -> dict[str, Any] | None:
    """Return the commit of the package's source tree, None where it is installed without one."""
    commit = source_commit()
    return None if commit is None else {"commit": commit}
