"""Run a function of tensors on a GPU again by one launch: a CUDA graph of it is captured at its second run."""

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Any

import torch
from torch import Tensor

__all__ = ["Replay", "replayed"]

Function = Callable[..., tuple[Tensor, ...]]
Given = tuple[Tensor | None, ...]

_NUMBERS = 2**24
"""Most numbers that a function may be given for its graph: with more, launches are a small part of its time."""
_GRAPHS = 4
_known: "OrderedDict[tuple[Any, ...], tuple[Function, Replay | None]]" = OrderedDict()
"""By function, stream and form of its arguments, the last used last; no graph where it has run once, or cannot be captured."""
_lock = Lock()


class Replay:
    """A captured function: it reads its arguments from its own memory and writes its results there.

    Args:
        function: Of tensors (and None), which are on one GPU; it waits for nothing and returns tensors.
        given: What it is captured with; later arguments have the same shapes and dtypes.
    """

    def __init__(self, function: Function, given: Given) -> None:
        self.given = tuple(None if t is None else t.clone(memory_format=torch.contiguous_format) for t in given)
        device = next(t.device for t in given if t is not None)
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.device(device), torch.cuda.stream(stream):
            function(*self.given)  # libraries get their memory for this stream before the capture
        torch.cuda.current_stream(device).wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(device), torch.cuda.graph(self.graph, stream=stream, capture_error_mode="thread_local"):
            self.results = function(*self.given)

    def __call__(self, given: Given) -> tuple[Tensor, ...]:
        """Return what the function returns of other numbers."""
        for own, tensor in zip(self.given, given, strict=True):
            if own is not None and tensor is not None:
                own.copy_(tensor)
        self.graph.replay()
        return tuple(result.clone() for result in self.results)


def replayed(function: Function, given: Given) -> tuple[Tensor, ...]:
    """Return ``function(*given)``, from a graph where one has been captured, or can be.

    Args:
        function: As :class:`Replay` has it; what it returns depends on ``given`` alone.
        given: On any device; only a GPU has graphs.

    Example:
        >>> replayed(lambda x: (x + 1,), (torch.ones(2),))
        (tensor([2., 2.]),)
    """
    tensors = [t for t in given if t is not None]
    if not _has_graphs(tensors):
        return function(*given)
    stream = torch.cuda.current_stream(tensors[0].device).cuda_stream
    key = (id(function), stream, *(None if t is None else (t.shape, t.dtype) for t in given))
    with _lock:
        if key not in _known:
            _remember(key, function, None)
            return function(*given)
        replay = _known[key][1] or _captured(function, given)
        _remember(key, function, replay)
        return function(*given) if replay is None else replay(given)


def _has_graphs(tensors: list[Tensor]) -> bool:
    """Say whether a function of these may be captured."""
    device = tensors[0].device
    if device.type != "cuda" or any(t.device != device for t in tensors) or sum(t.numel() for t in tensors) > _NUMBERS:
        return False
    return not torch.cuda.is_current_stream_capturing()


def _captured(function: Function, given: Given) -> Replay | None:
    """Return a graph, or None where there is no memory for one."""
    try:
        return Replay(function, given)
    except torch.OutOfMemoryError:
        return None


def _remember(key: tuple[Any, ...], function: Function, replay: Replay | None) -> None:
    """Keep what was used last; the function, too, so that no other takes its identity."""
    _known[key] = (function, replay)
    _known.move_to_end(key)
    while len(_known) > _GRAPHS:
        _known.popitem(last=False)
