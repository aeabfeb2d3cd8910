"""Run a function of tensors on a GPU again by one launch: a CUDA graph of it is captured at its second run."""

from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from threading import Lock
from typing import Any, NamedTuple

import torch
from torch import Tensor

__all__ = ["Replay", "call_through_graph"]

Function = Callable[..., tuple[Tensor, ...]]
Arguments = tuple[Tensor | None, ...]

_NUMBERS = 2**24
"""Most numbers that the arguments of all kept graphs hold: with more, launches are a small part of a function's time."""
_ENTRIES = 16
_BYTES = 256
"""Free memory that is required, for each number of the arguments: the functions here need less than a quarter of it."""
_lock = Lock()


class Replay:
    """A captured function: it reads its arguments from its own memory and writes its results there.

    Capturing waits for the device and gives torch's unused memory back.

    Args:
        function: Of tensors (and None), which are on one GPU. It never waits for the GPU, copies nothing to it, and returns
            tensors.
        arguments: What it is captured with; later arguments have the same shapes and dtypes.
    """

    def __init__(self, function: Function, arguments: Arguments) -> None:
        device = next(t.device for t in arguments if t is not None)
        current = torch.cuda.current_stream(device)
        stream = _capture_stream(device, current.cuda_stream)
        with torch.inference_mode(False), torch.no_grad(), torch.cuda.device(device):  # written to in any mode later
            self.arguments = tuple(None if t is None else _copy(t) for t in arguments)
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                function(*self.arguments)  # libraries get their memory for this stream before the capture
            current.wait_stream(stream)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, stream=stream, capture_error_mode="thread_local"):
                self.results = function(*self.arguments)

    def __call__(self, arguments: Arguments) -> tuple[Tensor, ...]:
        """Return what the function returns of other numbers."""
        for own, tensor in zip(self.arguments, arguments, strict=True):
            if own is not None and tensor is not None:
                own.copy_(tensor)
        self.graph.replay()
        return tuple(result.clone() for result in self.results)


class Entry(NamedTuple):
    """A function that has run with arguments of some form."""

    function: Function  # kept, so that no other takes its identity
    numbers: int  # in its arguments
    replay: Replay | None = None
    refused: bool = False  # there was no memory for a graph


_entries: OrderedDict[tuple[Any, ...], Entry] = OrderedDict()
"""By function, stream and form of its arguments, the last used last."""


def call_through_graph(function: Function, arguments: Arguments) -> tuple[Tensor, ...]:
    """Return ``function(*arguments)``, from a graph where one has been captured, or can be.

    Args:
        function: As :class:`Replay` has it; what it returns depends on ``arguments`` alone.
        arguments: On any device; only a GPU has graphs.

    Example:
        >>> call_through_graph(lambda x: (x + 1,), (torch.ones(2),))
        (tensor([2., 2.]),)
    """
    tensors = [t for t in arguments if t is not None]
    if not _has_graphs(tensors):
        return function(*arguments)
    stream = torch.cuda.current_stream(tensors[0].device).cuda_stream
    key = (id(function), tensors[0].device, stream, *(None if t is None else (t.shape, t.dtype) for t in arguments))
    with _lock:
        entry = _entries.get(key)
        if entry is None:
            entry = Entry(function, sum(t.numel() for t in tensors))
        elif entry.replay is None and not entry.refused:
            entry = _capture(entry, arguments)
        _keep(key, entry)
        return function(*arguments) if entry.replay is None else entry.replay(arguments)


def _has_graphs(tensors: list[Tensor]) -> bool:
    """Say whether a function of these may be captured."""
    device = tensors[0].device
    if device.type != "cuda" or any(t.device != device for t in tensors) or sum(t.numel() for t in tensors) > _NUMBERS:
        return False
    return not torch.cuda.is_current_stream_capturing()


def _capture(entry: Entry, arguments: Arguments) -> Entry:
    """Return the entry with a graph; without, if memory is scarce: a capture that fails breaks torch's random numbers."""
    free, _ = torch.cuda.mem_get_info(next(t.device for t in arguments if t is not None))
    if free < _BYTES * entry.numbers:
        return entry._replace(refused=True)
    return entry._replace(replay=Replay(entry.function, arguments))


def _keep(key: tuple[Any, ...], entry: Entry) -> None:
    """Keep what was used last, within the limits."""
    _entries[key] = entry
    _entries.move_to_end(key)
    while len(_entries) > _ENTRIES or sum(e.numbers for e in _entries.values() if e.replay) > _NUMBERS:
        _entries.popitem(last=False)


def _copy(tensor: Tensor) -> Tensor:
    """Return a contiguous copy in memory of its own."""
    return torch.empty_like(tensor, memory_format=torch.contiguous_format).copy_(tensor)


@lru_cache(64)
def _capture_stream(device: torch.device, current: int) -> torch.cuda.Stream:
    """Return the stream to capture on for work of another one: libraries keep memory per stream, for good."""
    return torch.cuda.Stream(device)
