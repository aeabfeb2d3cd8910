"""Time a training step of our layers next to torch.nn's plain layer of the same kind and width."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from steadyrnn.errors import ArgumentError, not_among
from steadyrnn.models.registry import SYSTEMS
from steadyrnn.models.settings import ModelSettings
from steadyrnn.models.systems import build_model
from steadyrnn.tasks.base import Interface
from steadyrnn.train.device import choose_device

__all__ = ["Comparison", "compare_with_torch"]

_PLAIN: dict[str, Callable[..., nn.Module]] = {"LSTM": nn.LSTM, "GRU": nn.GRU}


@dataclass(frozen=True)
class Comparison:
    """Times on one device.

    Args:
        device: The device, in words.
        systems: Of each system: seconds of a step, ``ours`` and ``torch``, medians over pairs; the median ``ratio`` of a pair;
            and the layer it is ``beside``.
    """

    device: str
    systems: dict[str, dict[str, Any]]


def compare_with_torch(
    names: Sequence[str],
    steps: int = 100,
    batch: int = 64,
    inputs: int = 32,
    width: int = 128,
    *,
    pairs: int = 9,
    device: str = "auto",
) -> Comparison:
    """Time forward and backward of recurrent systems and of torch.nn's plain layer, in alternating pairs.

    Args:
        names: Recurrent systems, as ``--model`` takes them.
        steps: Time steps, T.
        batch: Rows, B.
        inputs: Features of a step, D.
        width: Hidden units, H.
        pairs: Pairs of measurements.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:1``.

    Example:
        >>> found = compare_with_torch(["lstm"], steps=2, batch=2, inputs=2, width=2, pairs=1, device="cpu")
        >>> found.systems["lstm"]["beside"]
        'torch.nn.LSTM'
    """
    fitting = [name for name, system in SYSTEMS.items() if system.reads == "time" and not system.wraps]
    unknown = next((name for name in names if name not in fitting), None)
    if unknown is not None:
        raise ArgumentError(not_among("names", unknown, fitting))
    where = choose_device(device)
    x = torch.randn(steps, batch, inputs, device=where)
    systems = {name: _measure(name, x, width, pairs) for name in names}
    cpu = f"CPU, {torch.get_num_threads()} threads"
    return Comparison(torch.cuda.get_device_name(where) if where.type == "cuda" else cpu, systems)


def _measure(name: str, x: Tensor, width: int, pairs: int) -> dict[str, Any]:
    """Return the median times of a step of ours and of torch's, and the median of the pairs' ratios."""
    model: Any = build_model(ModelSettings(name, width=width), Interface(x.shape[-1], 1))
    ours: nn.Module = model.rnn.to(x.device)
    theirs = _PLAIN.get(type(ours).__name__, nn.RNN)(x.shape[-1], width).to(x.device)
    first, second = _step(ours, x), _step(theirs, x)
    for _ in range(2):
        first(), second()
    times = [(first(), second()) for _ in range(pairs)]
    return {
        "ours": statistics.median(a for a, _ in times),
        "torch": statistics.median(b for _, b in times),
        "ratio": statistics.median(a / b for a, b in times),
        "beside": f"torch.nn.{type(theirs).__name__}",
    }


def _step(layer: nn.Module, x: Tensor) -> Callable[[], float]:
    """Return a function that runs a training step without the optimizer, and returns its seconds."""

    def wait() -> None:
        if x.device.type == "cuda":
            torch.cuda.synchronize(x.device)

    def run() -> float:
        layer.zero_grad(set_to_none=True)
        wait()
        start = time.perf_counter()
        output = layer(x)[0]
        output.square().mean().backward()
        wait()
        return time.perf_counter() - start

    return run
