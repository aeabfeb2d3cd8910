"""Which engine runs a recurrence, and why."""

import os
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from steadyrnn.checks import carries_transform, has_forward_level, writes_onnx
from steadyrnn.errors import ArgumentError, EngineError
from steadyrnn.linalg.operators import DiagonalLowRank

from .base import Engine, Recurrence
from .calibration import Fastest, fastest
from .calibration_table import VARIABLE
from .cpu.engine import CPUEngine
from .deferred import DEFERRED, register_on_demand
from .loop.ops import is_kept
from .reference import ReferenceEngine

__all__ = ["ENGINES", "Choice", "select"]

_ORDER = (CPUEngine(), *DEFERRED.values(), ReferenceEngine())
ENGINES: dict[str, Engine] = {engine.name: engine for engine in _ORDER}
"""Every engine, in the order in which ``"auto"`` asks them where nothing was measured; the reference runs the rest."""
register_on_demand()

_TABLED = "cuda"
"""The type of device for which engines are measured."""
_OURS = ("cuda", "triton")
"""Kernels that run rows of several lengths as they are; cuDNN must have them packed."""
_LENGTHS = "cudnn is left out, since rows have several lengths"


class Choice(NamedTuple):
    """An engine's name and why it was chosen."""

    engine: str
    reason: str

    def __str__(self) -> str:
        """Say it in a sentence."""
        return f"engine {self.engine}: {self.reason}"


_ANSWERS: dict[tuple[Hashable, ...], Choice] = {}  # to questions of `auto` on a GPU
_MOST = 1024


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

    Forward-mode AD, ``torch.func`` and traces go to the reference, whose plain operations they understand; an engine
    requested by name is never replaced by another, but raises where it cannot run. On a GPU ``"auto"`` chooses the fastest
    by a table of measured times, where there is one for the device.
    """
    if carries_transform(*recurrence.tensors):
        if requested in ("auto", "reference"):
            return Choice("reference", "forward-mode AD, a torch.func transform or a trace is at work")
        raise EngineError(
            f"`engine` {requested!r} cannot run under forward-mode AD, a torch.func transform or torch.jit.trace; "
            "use 'auto' or 'reference'."
        )
    if torch.compiler.is_exporting() and requested == "auto" and writes_onnx():
        return Choice("reference", "ONNX has none of our operations")
    if torch.compiler.is_compiling() and has_forward_level():
        raise EngineError("Forward-mode AD through a compiled layer would be silently zero; call the layer uncompiled.")
    if requested != "auto":
        refusal = ENGINES[requested].refusal(recurrence)
        if refusal is not None:
            raise EngineError(f"`engine` {requested!r} cannot run this layer: {refusal}.")
        return Choice(requested, "requested by name")
    return choose_engine(recurrence)


def choose_engine(recurrence: Recurrence) -> Choice:
    """Return the fastest engine by the device's table; without one, the first in order that can run.

    On a GPU the answer is remembered: asking every engine on each call would take as long as a launch.
    """
    x = recurrence.input
    if x.device.type != _TABLED:
        return ask_engines(recurrence)
    if torch.compiler.is_compiling() or type(x.shape[1]) is not int:  # a size may be a symbol
        return ask_engines(recurrence)
    question = question_of(recurrence)
    found = _ANSWERS.get(question)
    if found is None:
        found = ask_engines(recurrence)
        if len(_ANSWERS) >= _MOST:
            _ANSWERS.clear()
        _ANSWERS[question] = found
    return found


def question_of(recurrence: Recurrence) -> tuple[Hashable, ...]:
    """Return all that a choice on a GPU rests on."""
    x, weight, size = recurrence.input, recurrence.weight_hh, recurrence.state[0].shape[1]
    rank = weight.left.shape[1] if isinstance(weight, DiagonalLowRank) else None
    ragged, kept, table = recurrence.batch_sizes is not None, is_kept(recurrence.tensors), os.environ.get(VARIABLE)
    sizes = (x.shape[0] == 0, x.shape[1], size, rank, isinstance(weight, Tensor))
    return (recurrence.cell, x.device, x.dtype, sizes, ragged, recurrence.recompute, kept, table, *ENGINES.values())


def ask_engines(recurrence: Recurrence) -> Choice:
    """Return the choice by what each engine says of the recurrence."""
    tabled = recurrence.input.device.type == _TABLED
    able: list[str] = []
    refusals: list[str] = []  # of engines before the first that can
    for name, engine in ENGINES.items():
        refusal = engine.refusal(recurrence)
        if refusal is None:
            able.append(name)
            if not tabled:
                return Choice(name, "; ".join(refusals) or f"first choice on {recurrence.input.device.type}")
        elif not able:
            refusals.append(f"{name} refused, since {refusal}")
    if not able:
        raise EngineError("No engine can run this layer: " + "; ".join(refusals) + ".")
    return choose_on_gpu(able, refusals, recurrence)


def choose_on_gpu(able: list[str], refusals: list[str], recurrence: Recurrence) -> Choice:
    """Return the choice between engines that can run on a GPU, in their order."""
    if recurrence.batch_sizes is not None and "cudnn" in able and any(name in able for name in _OURS):
        able = [name for name in able if name != "cudnn"]
        refusals = [*refusals, _LENGTHS]
    if len(able) == 1:
        return Choice(able[0], "; ".join(refusals) or f"first choice on {recurrence.input.device.type}")
    found = find_fastest(recurrence, able)
    # a figure for the reference, but not for all of the others, says nothing of these
    if found is None or (found.engine == "reference" and len(found.microseconds) < len(able)):
        return Choice(able[0], "; ".join([*refusals, "first in order, since nothing was measured for it"]))
    return Choice(found.engine, f"{found.reason}; {_LENGTHS}" if _LENGTHS in refusals else found.reason)


def find_fastest(recurrence: Recurrence, able: Sequence[str]) -> Fastest | None:
    """Return the fastest of the engines that can run, None where nothing was measured for such a recurrence.

    A graph that is being exported will serve any batch, so it is not fixed to what is fastest for one.
    """
    x, weight, cell = recurrence.input, recurrence.weight_hh, recurrence.cell.record.measured_as
    if cell is None or torch.compiler.is_exporting():
        return None
    rank = weight.left.shape[1] if isinstance(weight, DiagonalLowRank) else None
    dtype, size = str(x.dtype).removeprefix("torch."), recurrence.state[0].shape[1]
    return fastest(x.device.index or 0, cell, dtype, size, x.shape[1], is_kept(recurrence.tensors), able, rank)
