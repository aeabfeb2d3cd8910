"""Measurements of a model while it trains: callbacks that are handed in, and lines of what they return."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from steadyrnn.runs.folder import Run

from .randomness import keep_random_state

__all__ = ["Callback", "probe"]

Callback = Callable[[int, nn.Module], Mapping[str, Any]]
"""``callback(step, model)`` returns what a line says of a measurement."""


def probe(callbacks: Mapping[str, Callback], step: int, model: nn.Module, run: Run | None) -> None:
    """Call each measurement, and write what it returns as a line; the model is in training mode afterwards.

    Before the first step, those that a killed start has left are not taken again.
    """
    done = {record.get("name") for record in run.metrics()} if run is not None and step == 0 else set()
    for name, callback in callbacks.items():
        if name in done:
            continue
        with keep_random_state():
            record = callback(step, model)
        model.train()
        if run is not None:
            run.log({"kind": "probe", "step": step, "name": name, **record})
