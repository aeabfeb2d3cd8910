"""Optimizer steps as CUDA graphs: recorded once per kind of batch, then launched as one."""

import inspect
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
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

__all__ = ["GRAPHS", "Outcome", "StepGraphs", "reason_against", "reason_against_settings"]

GRAPHS = ("auto", "on", "off")
"""Whether steps are captured: where nothing speaks against it, always (or the run ends), never."""

_EAGER = 3
"""Steps of each kind that run eagerly first: caches fill, kernels compile, the optimizer makes its state."""
_MOST = 16
"""Kinds of steps that are captured: each graph holds memory of its own."""
_SYNC = "called a synchronizing CUDA operation"
_OF_THE_MODE = "Synchronization debug mode is a prototype feature"
"""What torch says of the mode itself: it is none of the user's."""
_BEFORE_STEPS = {"extra_repr", "interface", "baselines", "epoch_steps", "train_batch", "batches", "summary", "to"}
"""What a class of one's own may define, as no captured step calls it, or always with the same answer."""

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
    places: list[tuple[int, bool]]
    gradients: list[tuple[nn.Parameter, Tensor | None]]

    def run(self, batch: Batch, state: Any) -> Outcome:
        """Copy what the step reads to where it reads it, and launch it."""
        self.batch.input.copy_(batch.input)
        self.batch.target.copy_(batch.target)
        for own, given in zip(state_tensors(self.state), state_tensors(state), strict=True):
            if own is not given:
                own.copy_(given)
        self.graph.replay()
        for parameter, gradient in self.gradients:
            parameter.grad = gradient  # another graph, or an eager step, has left its own
        return self.state, {name: value.clone() for name, value in self.sums.items()}


class StepGraphs:
    """Runs a step eagerly until its kind is known, then captures it and replays the capture: the same kernels, the same bits.

    A step of a small network is mostly the time that the host takes to launch its kernels one by one. A graph launches all of
    them at once. It reads and writes fixed memory, so each kind of batch (shapes, dtypes, with a state or without, scored or
    not) has a graph of its own. The first three steps of a kind run eagerly. If torch says that one of them waits for the
    device, or if capturing fails, steps of this kind stay eager. If a weight has come to lie elsewhere, they are captured anew.

    Args:
        compute: A step, given batch, state and whether to score it. All that it changes must lie on the device and stay in its
            place: weights, state of the optimizer, sums.
        model: What it moves.
        device: The GPU that all of it lies on, which need not be torch's current one.
        required: Whether to raise where a step cannot be captured.
        note: Called once per kind with whether it was captured and, if not, why.
    """

    def __init__(
        self,
        compute: Compute,
        model: nn.Module,
        device: torch.device,
        required: bool,
        note: Callable[[bool, str], None] = lambda captured, why: None,
    ) -> None:
        self.compute, self.model, self.device, self.required, self.note = compute, model, device, required, note
        self.stream = torch.cuda.Stream(device)
        self.seen: dict[Any, int] = {}
        self.recorded: dict[Any, _Recorded | None] = {}  # None: this kind stays eager
        self.pool: Any = None

    def run(self, batch: Batch, state: Any, scored: bool) -> Outcome:
        """Take a step."""
        why = _reason_against_batch(batch)
        if why:
            self._refuse(why)
            return self.compute(batch, state, scored)
        with torch.cuda.device(self.device):  # torch captures on its current one
            return self._run(_kind(batch, state, scored), batch, state, scored)

    def _run(self, kind: Any, batch: Batch, state: Any, scored: bool) -> Outcome:
        held = [*self.model.parameters(), *self.model.buffers()]
        recorded = self.recorded.get(kind)
        if recorded is not None and recorded.places != _places(held):
            recorded = None
            del self.recorded[kind]
        if kind not in self.recorded:
            if self.seen.get(kind, 0) < _EAGER:
                return self._run_eagerly(kind, batch, state, scored)
            recorded = self.recorded[kind] = self._record(batch, state, scored)
        if recorded is None:
            return self.compute(batch, state, scored)
        outcome = recorded.run(batch, state)
        increment_version(held)  # a replay does not say what it has changed
        return outcome

    def _run_eagerly(self, kind: Any, batch: Batch, state: Any, scored: bool) -> Outcome:
        """Take one of the first steps of a kind on the stream that will be captured, and watch whether it waits."""
        count = self.seen[kind] = self.seen.get(kind, 0) + 1
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            if count < _EAGER:
                outcome = self.compute(batch, state, scored)
            else:
                before = _places(self.model.buffers())
                outcome, waits = _watch(lambda: self.compute(batch, state, scored))
                why = "a step waits for the device; `torch.cuda.set_sync_debug_mode` shows where" if waits else ""
                if not why and _places(self.model.buffers()) != before:
                    why = "a step puts a new tensor in place of a buffer"
                if why:
                    self._refuse(why)
                if why or (state is None and outcome[0] is not None):  # the first batch of a sequence: not worth a graph
                    self.recorded[kind] = None
        torch.cuda.current_stream().wait_stream(self.stream)
        return outcome

    def _record(self, batch: Batch, state: Any, scored: bool) -> _Recorded | None:
        """Capture a step without running it."""
        if sum(recorded is not None for recorded in self.recorded.values()) >= _MOST:
            self._refuse(f"{_MOST} kinds of batches are captured, and no more")
            return None
        held = Batch(batch.input.clone(), batch.target.clone(), fresh=batch.fresh)
        if (held.input.stride(), held.target.stride()) != (batch.input.stride(), batch.target.stride()):
            # how a tensor lies may decide the last bits of a product
            self._refuse("the numbers of a batch do not lie side by side in memory")
            return None
        own = state_with(state, [tensor.clone() for tensor in state_tensors(state)])
        graph, random, current = torch.cuda.CUDAGraph(), torch.cuda.get_rng_state(self.device), torch.cuda.current_stream()
        try:
            with torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"):
                after, sums = self.compute(held, own, scored)
                for place, value in zip(state_tensors(own), state_tensors(after), strict=True):
                    place.copy_(value)  # out of the graph's memory
        except Exception as error:  # of a library, or of a user's own code: the eager step that follows raises it if it is real
            self._mend(random)
            torch.cuda.set_stream(current)  # torch leaves its own where a capture cannot be ended
            lines = str(error).strip().splitlines() or [type(error).__name__]
            self._refuse(f"it could not be captured: {lines[0]}")
            return None
        self.pool = graph.pool()
        self.note(True, "")
        places = _places([*self.model.parameters(), *self.model.buffers()])
        return _Recorded(graph, held, own, sums, places, [(p, p.grad) for p in self.model.parameters()])

    def _mend(self, random: Tensor) -> None:
        """Put right what a capture that failed has left.

        Torch's random numbers stay in the mode of capturing, and refuse to be drawn, until another capture ends well.
        """
        graph = torch.cuda.CUDAGraph()
        with suppress(RuntimeError), torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
            torch.zeros((), device=self.device)
        with suppress(RuntimeError):
            torch.cuda.set_rng_state(random, self.device)
        for parameter in self.model.parameters():
            parameter.grad = None  # in memory of the graph

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
    why = reason_against_settings(settings, task.device)
    if not why and task.varies:
        why = "training batches differ in length, so that each would need a graph of its own"
    if why or settings.graph == "on":
        return why
    if settings.compile:
        return "the model is compiled"
    for name, module in model.named_modules():
        why = _reason_against_module(module)
        if why:
            return f"{f'`{name}`' if name else 'the model'} {why}"
    for name, parameter in model.named_parameters():
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            return f"`{name}` has hooks; `graph='on'` captures them all the same"
    own = next(_own_code(task), None)
    return f"`{own}` is your own; `graph='on'` captures it all the same" if own else ""


def reason_against_settings(settings: TrainSettings, device: torch.device) -> str:
    """Return why no steps with these settings are captured on a device, or nothing.

    Example:
        >>> reason_against_settings(TrainSettings(autocast="float16"), torch.device("cuda"))
        'the scale of the loss in float16 is decided on the host'
    """
    if settings.graph == "off":
        return "`graph` is 'off'"
    if device.type != "cuda":
        return f"the device is {device.type}"
    return "the scale of the loss in float16 is decided on the host" if settings.autocast == "float16" else ""


def _reason_against_module(module: nn.Module) -> str:
    """Return what a module does that only Python knows, or nothing."""
    if isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
        return f"is a {type(module).__name__}, which works with other devices"
    if next(_own_code(module), None):
        return f"is a {type(module).__name__}, a class of your own; `graph='on'` captures it all the same"
    if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks:
        return "has hooks; `graph='on'` captures them all the same"
    for name in ("cell", "activation", "nonlinearity"):
        part = getattr(module, name, None)
        if next(_own_code(part), None):
            return f"has a {type(part).__name__}, a class of your own; `graph='on'` captures it all the same"
    return ""


def _own_code(thing: object) -> Iterator[str]:
    """Yield the names of the functions that a thing has from neither torch, nor this package, nor Python itself."""
    for name, value in getattr(thing, "__dict__", {}).items():
        if name in ("forward", "loss", "scores") and callable(value):  # put over that of its class
            yield f"{type(thing).__name__}.{name}"
    for base in type(thing).__mro__:
        if not _is_known(base):
            for name, value in vars(base).items():
                is_code = inspect.isroutine(value) or isinstance(value, property)
                is_special = name.startswith("__") and name != "__call__"
                if is_code and not is_special and name not in _BEFORE_STEPS:
                    yield f"{base.__name__}.{name}"


def _is_known(base: type) -> bool:
    root = base.__module__.split(".")[0]
    return root in ("torch", "steadyrnn") or root in sys.stdlib_module_names


def _reason_against_batch(batch: Batch) -> str:
    """Return why a step on this batch is not captured, or nothing."""
    if batch.lengths is not None:
        return "rows have lengths, which the host reads"
    if type(batch) is not Batch:
        return f"batches are of the class {type(batch).__name__}, which may hold more than is copied"
    return ""


def _places(tensors: Iterable[Tensor]) -> list[tuple[int, bool]]:
    """Return where tensors lie, and whether they are trained: what a graph has taken for granted."""
    return [(tensor.data_ptr(), tensor.requires_grad) for tensor in tensors]


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
        if _SYNC not in str(warning.message) and _OF_THE_MODE not in str(warning.message):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return outcome, any(_SYNC in str(warning.message) for warning in found)
