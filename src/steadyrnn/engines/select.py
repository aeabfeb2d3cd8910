"""Which engine runs a recurrence, and why."""

from typing import NamedTuple

import torch

from steadyrnn.checks import carries_transform
from steadyrnn.errors import ArgumentError, EngineError

from .base import Engine, Recurrence
from .cpu.engine import CPUEngine
from .cudnn import CuDNNEngine
from .reference import ReferenceEngine

__all__ = ["ENGINES", "Choice", "select"]

ENGINES: dict[str, Engine] = {engine.name: engine for engine in (CPUEngine(), CuDNNEngine(), ReferenceEngine())}
"""Every engine, in the order in which ``"auto"`` asks them; the reference takes what the others refuse."""


class Choice(NamedTuple):
    """An engine's name and why it was chosen."""

    engine: str
    reason: str

    def __str__(self) -> str:
        """Say it in a sentence."""
        return f"engine {self.engine}: {self.reason}"


def check_engine(name: str) -> str:
    """Return ``name`` if it is an engine's or ``"auto"``.

    Example:
        >>> check_engine("cpu")
        'cpu'
    """
    if not isinstance(name, str) or (name != "auto" and name not in ENGINES):
        raise ArgumentError(f"`engine` must be one of auto, {', '.join(ENGINES)}, but is {name!r}.")
    return name


def select(requested: str, recurrence: Recurrence) -> Choice:
    """Return the engine to run, with the reason.

    Forward-mode AD and ``torch.func`` transforms go to the reference, whose plain operations they understand; an engine
    asked for by name is never replaced by another, but raises where it cannot run.
    """
    if carries_transform(*recurrence.tensors):
        if requested in ("auto", "reference"):
            return Choice("reference", "forward-mode AD or a torch.func transform is at work")
        raise EngineError(
            f"`engine` {requested!r} cannot run under forward-mode AD or a torch.func transform; use 'auto' or 'reference'."
        )
    if torch.compiler.is_compiling() and torch.autograd.forward_ad._current_level >= 0:
        raise EngineError("Forward-mode AD through a compiled layer would be silently zero; call the layer uncompiled.")
    if requested != "auto":
        refusal = ENGINES[requested].refusal(recurrence)
        if refusal is not None:
            raise EngineError(f"`engine` {requested!r} cannot run this layer: {refusal}.")
        return Choice(requested, "asked for by name")
    refusals: list[str] = []
    for name, engine in ENGINES.items():
        refusal = engine.refusal(recurrence)
        if refusal is None:
            return Choice(name, "; ".join(refusals) or f"first choice on {recurrence.input.device.type}")
        refusals.append(f"{name} refused, since {refusal}")
    raise EngineError("No engine can run this layer: " + "; ".join(refusals) + ".")
