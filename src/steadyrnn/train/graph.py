"""Optimizer steps as CUDA graphs: recorded once per kind of batch, then launched as one."""

import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version

from steadyrnn.errors import ArgumentError
from steadyrnn.tasks.base import Batch, Task

from .model_call import state_tensors, state_with
from .settings import TrainSettings

__all__ = ["GRAPHS", "Outcome", "StepGraphs", "reason_against"]

GRAPHS = ("auto", "on", "off")
"""Whether steps are captured: where nothing speaks against it, always (or the run ends), never."""

_EAGER = 3
"""Steps of each kind that run eagerly first: caches fill, kernels compile, the optimizer makes its state."""
_SYNC = "called a synchronizing CUDA operation"

Outcome = tuple[Any, dict[str, Tensor]]
"""What a step leaves: the state it ends in, and the task's sums."""
Compute = Callable[[Batch, Any, bool], Outcome]


@dataclass
class _Recorded:
    """A captured step and the memory it reads and writes."""

    graph: torch.cuda.CUDAGraph
    batch: Batch
    state: Any
    sums: dict[str, Tensor]

    def run(self, batch: Batch, state: Any) -> Outcome:
        """Copy what the step reads to where it reads it, and launch it."""
        self.batch.input.copy_(batch.input)
        self.batch.target.copy_(batch.target)
        for own, given in zip(state_tensors(self.state), state_tensors(state), strict=True):
            if own is not given:
                own.copy_(given)
        self.graph.replay()
        return self.state, {name: value.clone() for name, value in self.sums.items()}


class StepGraphs:
    """Runs a step eagerly until its kind is known, then captures it and replays the capture: the same kernels, the same bits.

    A step of a small network is mostly the time that the host takes to launch its kernels one by one. A graph launches all of
    them at once. It reads and writes fixed memory, so each kind of batch (shapes, dtypes, with a state or without, scored or
    not) has a graph of its own. The first three steps of a kind run eagerly. If torch says that one of them waits for the
    device, or if capturing fails, steps of this kind stay eager.

    Args:
        compute: A step, given batch, state and whether to score it. All that it changes must lie on the device and stay in its
            place: weights, state of the optimizer, sums.
        model: What it moves.
        required: Whether to raise where a step cannot be captured.
        note: Called once per kind with whether it was captured and, if not, why.
    """

    def __init__(
        self, compute: Compute, model: nn.Module, required: bool, note: Callable[[bool, str], None] = lambda captured, why: None
    ) -> None:
        self.compute, self.model, self.required, self.note = compute, model, required, note
        self.stream = torch.cuda.Stream()
        self.seen: dict[Any, int] = {}
        self.recorded: dict[Any, _Recorded | None] = {}  # None: this kind stays eager
        self.pool: Any = None

    def run(self, batch: Batch, state: Any, scored: bool) -> Outcome:
        """Take a step."""
        if batch.lengths is not None:
            self._refuse("rows have lengths, which the host reads")
            return self.compute(batch, state, scored)
        kind = _kind(batch, state, scored)
        if kind not in self.recorded:
            if self.seen.get(kind, 0) < _EAGER:
                return self._run_eagerly(kind, batch, state, scored)
            self.recorded[kind] = self._record(batch, state, scored)
        recorded = self.recorded[kind]
        if recorded is None:
            return self.compute(batch, state, scored)
        outcome = recorded.run(batch, state)
        increment_version([*self.model.parameters(), *self.model.buffers()])  # a replay does not say what it has changed
        return outcome

    def _run_eagerly(self, kind: Any, batch: Batch, state: Any, scored: bool) -> Outcome:
        """Take one of the first steps of a kind on the stream that will be captured, and watch whether it waits."""
        count = self.seen[kind] = self.seen.get(kind, 0) + 1
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            if count < _EAGER:
                outcome = self.compute(batch, state, scored)
            else:
                outcome, waits = _watch(lambda: self.compute(batch, state, scored))
                if waits:
                    self._refuse("a step waits for the device; `torch.cuda.set_sync_debug_mode` shows where")
                if waits or (state is None and outcome[0] is not None):  # the first batch of a sequence: not worth a graph
                    self.recorded[kind] = None
        torch.cuda.current_stream().wait_stream(self.stream)
        return outcome

    def _record(self, batch: Batch, state: Any, scored: bool) -> _Recorded | None:
        """Capture a step without running it."""
        held = Batch(batch.input.clone(), batch.target.clone(), fresh=batch.fresh)
        own = state_with(state, [tensor.clone() for tensor in state_tensors(state)])
        graph, random = torch.cuda.CUDAGraph(), torch.cuda.get_rng_state()
        try:
            with torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"):
                after, sums = self.compute(held, own, scored)
                for place, value in zip(state_tensors(own), state_tensors(after), strict=True):
                    place.copy_(value)  # out of the graph's memory
        except (RuntimeError, ArgumentError) as error:
            with suppress(RuntimeError):
                torch.cuda.set_rng_state(random)
            for parameter in self.model.parameters():
                parameter.grad = None  # in memory of the graph
            self._refuse(f"it could not be captured: {str(error).strip().splitlines()[0]}")
            return None
        self.pool = graph.pool()
        self.note(True, "")
        return _Recorded(graph, held, own, sums)

    def _refuse(self, why: str) -> None:
        if self.required:
            raise ArgumentError(f"`graph` is 'on', but {why}. Use `graph='auto'`.")
        self.note(False, why)


def reason_against(model: nn.Module, task: Task, settings: TrainSettings) -> str:
    """Return why the steps of a run are not captured, or nothing.

    A graph repeats what the kernels did, not what Python did. So ``auto`` captures modules and losses of torch and of this
    package alone: another might draw from Python's random numbers, count its calls, or choose by what it reads.

    Example:
        >>> from steadyrnn.tasks.registry import make_task
        >>> reason_against(torch.nn.Linear(2, 1), make_task("addition"), TrainSettings())
        'the device is cpu'
    """
    if settings.graph == "off":
        return "`graph` is 'off'"
    if task.device.type != "cuda":
        return f"the device is {task.device.type}"
    if settings.autocast == "float16":
        return "the scale of the loss in float16 is decided on the host"
    if task.varies:
        return "training batches differ in length, so that each would need a graph of its own"
    if settings.graph == "on":
        return ""
    if settings.compile:
        return "the model is compiled"
    for name, module in model.named_modules():
        own = f"`{name}`" if name else "the model"
        if not _is_known(type(module).forward):
            return f"{own} is a {type(module).__name__}, a class of your own; `graph='on'` captures it all the same"
        if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks:
            return f"{own} has hooks; `graph='on'` captures them all the same"
    for method in (type(task).loss, type(task).scores):
        if not _is_known(method):
            return f"`{method.__qualname__}` is your own; `graph='on'` captures it all the same"
    return ""


def _is_known(function: Any) -> bool:
    return function.__module__.split(".")[0] in ("torch", "steadyrnn")


def _kind(batch: Batch, state: Any, scored: bool) -> Any:
    """Return what decides which kernels a step launches."""
    held = (batch.input, batch.target, *state_tensors(state))
    return tuple((tensor.shape, tensor.dtype, tensor.stride()) for tensor in held), batch.fresh, scored


def _watch(step: Callable[[], Outcome]) -> tuple[Outcome, bool]:
    """Take a step and say whether it waited for the device."""
    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            outcome = step()
        finally:
            torch.cuda.set_sync_debug_mode(mode)
    for warning in found:
        if _SYNC not in str(warning.message):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return outcome, any(_SYNC in str(warning.message) for warning in found)
