"""Where and how precisely a run computes: device, threads, deterministic algorithms, autocast."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from steadyrnn.errors import ArgumentError, DeviceError

from .ranks import Ranks, join, local_rank
from .settings import TrainSettings

__all__ = ["AUTOCAST", "SMALLEST_SCALE", "autocast", "choose_device", "device_context", "join_on", "make_scaler"]

AUTOCAST = {"bfloat16": torch.bfloat16, "float16": torch.float16}
"""The dtypes of ``TrainSettings.autocast`` by name."""

SMALLEST_SCALE = torch.finfo(torch.float16).tiny
"""Gradients that are not finite below this scale of the loss, after some thirty steps left out, are not so by the scale."""


def choose_device(name: str) -> torch.device:
    """Return the device of a name; ``auto`` is the first GPU where there is one, else the CPU.

    Of processes that torchrun started each has a GPU of its own: that of the number ``LOCAL_RANK``, or the only one that it
    sees, as Slurm's ``--gpus-per-task=1`` has it.

    Example:
        >>> choose_device("cpu")
        device(type='cpu')
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ArgumentError(f"`device` must be auto, cpu, cuda or cuda:1, but is {name!r}.") from error
    if device.type not in ("cpu", "cuda"):
        raise ArgumentError(f"`device` must be auto, cpu, cuda or cuda:1, but is {name!r}.")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    own = local_rank()
    if device.type == "cuda" and own is not None:
        return _device_of_rank(own, device.index, count)
    if device.type == "cuda" and (device.index or 0) >= count:
        raise DeviceError(f"`device` is {name!r}, but torch sees {count} CUDA devices here. Use auto or cpu.")
    return torch.device("cuda", device.index or 0) if device.type == "cuda" else device


def _device_of_rank(own: int, index: int | None, count: int) -> torch.device:
    """Return the GPU of one of several processes on a machine with ``count`` GPUs."""
    several = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) > 1
    if index is not None and several:
        raise ArgumentError(
            f"`device` must be auto, cpu or cuda for several ranks, each with its own GPU, but is 'cuda:{index}'."
        )
    place = own if index is None else index
    if index is None and count == 1:
        return torch.device("cuda", 0)  # whether it is another's, too, is seen when ranks tell one another
    if place >= count:
        raise DeviceError(
            f"Rank {os.environ['RANK']} needs the GPU number {place} of its machine, but torch sees {count} there. Start at "
            f"most {count} ranks per machine, or give `device` cpu."
        )
    return torch.device("cuda", place)


def join_on(name: str) -> tuple[Ranks, torch.device]:
    """Join the processes that this one was started with, if any, and return them and the device that this one computes on.

    Raises:
        DeviceError: A process has no device of that name.
        RanksError: Another process has none.

    Example:
        >>> ranks, device = join_on("cpu")
        >>> ranks.size, device
        (1, device(type='cpu'))
    """
    ranks = join()
    device = ranks.agree(lambda: choose_device(name))
    ranks.compute_on(device)
    return ranks, device


@contextmanager
def device_context(settings: TrainSettings) -> Iterator[None]:
    """Set the number of threads and deterministic algorithms; put both back afterwards.

    Example:
        >>> with device_context(TrainSettings(threads=1, deterministic=True)):
        ...     torch.are_deterministic_algorithms_enabled()
        True
    """
    threads, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    if settings.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS refuses to promise anything
        torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        if settings.deterministic:
            torch.use_deterministic_algorithms(strict, warn_only=warns)
        if settings.threads is not None:
            torch.set_num_threads(threads)


def autocast(name: str | None, device: torch.device) -> AbstractContextManager[Any]:
    """Return the context a model runs in: autocast to the named dtype, or none.

    Example:
        >>> with autocast("bfloat16", torch.device("cpu")):
        ...     (torch.ones(1, 1) @ torch.ones(1, 1)).dtype
        torch.bfloat16
    """
    return nullcontext() if name is None else torch.autocast(device.type, dtype=AUTOCAST[name])


def make_scaler(name: str | None, device: torch.device) -> torch.amp.GradScaler | None:
    """Return what scales the loss of a run in float16, whose small gradients would vanish, else None.

    Example:
        >>> make_scaler("bfloat16", torch.device("cpu")) is None
        True
    """
    return torch.amp.GradScaler(device.type) if name == "float16" else None
