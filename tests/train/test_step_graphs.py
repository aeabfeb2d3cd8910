"""How captured steps are kept and replayed, with a stand-in for CUDA graphs: a tape of torch's operations on the CPU."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from steadyrnn.errors import ArgumentError
from steadyrnn.layers.rnn import RNN
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.tasks.base import Batch
from steadyrnn.train.graph import Outcome, StepGraphs
from steadyrnn.train.ranks import join, leave
from steadyrnn.train.settings import ClipSettings, OptimizerSettings
from steadyrnn.train.step import Stepper
from tests.train.rank_group import free_port, rank_variables
from tests.train.runs import addition, tiny

DEVICE = torch.device("cuda", 1)


class Tape(TorchDispatchMode):
    """Keeps operations, to run them again on the same memory, and undoes what they have changed: a capture runs nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[tuple[Any, Any, Any, Any]] = []
        self.before: dict[int, tuple[Tensor, Tensor]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.is_mutable:
            for tensor in _tensors(args):
                self.before.setdefault(tensor.data_ptr(), (tensor, tensor.clone()))
        out = func(*args, **(kwargs or {}))
        self.entries.append((func, args, kwargs or {}, out))
        return out

    @torch.no_grad()
    def undo(self) -> None:
        for tensor, value in self.before.values():
            tensor.copy_(value)

    @torch.no_grad()
    def replay(self) -> None:
        for func, args, kwargs, out in self.entries:
            again = func(*args, **kwargs)
            for kept, new in zip(_tensors(out), _tensors(again), strict=True):
                if kept.data_ptr() != new.data_ptr():
                    kept.copy_(new)

    def pool(self) -> str:
        return "pool"


def _tensors(value: Any) -> list[Tensor]:
    held = value if isinstance(value, list | tuple) else [value]
    return [tensor for tensor in held if isinstance(tensor, Tensor)]


class Machine:
    """What stands in for ``torch.cuda``: the current device and stream, and the state of its random numbers."""

    def __init__(self) -> None:
        self.device, self.stream, self.broken = 0, "first", False
        self.devices: list[int] = []  # those that were captured on
        self.random: list[Tensor] = []  # states that were put back

    @contextmanager
    def on(self, device: torch.device) -> Iterator[None]:
        before, self.device = self.device, device.index
        yield
        self.device = before

    @contextmanager
    def graph(self, tape: Tape, stream: Any, **_: Any) -> Iterator[None]:
        before, self.stream = self.stream, stream
        self.devices.append(self.device)
        failed = True
        try:
            with tape:
                yield
            tape.undo()
            failed = False
        finally:
            self.broken = failed  # torch's generator stays in the mode of capturing
            if not failed:  # where the capture cannot be ended, torch leaves its stream the current one
                self.stream = before


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    own = Machine()

    def set_stream(stream: Any) -> None:
        own.stream = stream

    stream = SimpleNamespace(wait_stream=lambda _: None)
    replaced: dict[str, Any] = {
        "Stream": lambda device: stream,
        "stream": lambda _: nullcontext(),
        "current_stream": lambda: SimpleNamespace(wait_stream=lambda _: None) if own.stream == "first" else own.stream,
        "set_stream": lambda _: set_stream("first"),
        "device": own.on,
        "CUDAGraph": Tape,
        "graph": own.graph,
        "get_rng_state": lambda _: torch.get_rng_state(),
        "set_rng_state": lambda state, _: own.random.append(state),
        "get_sync_debug_mode": lambda: 0,
        "set_sync_debug_mode": lambda _: warnings.warn("Synchronization debug mode is a prototype feature", stacklevel=1),
    }
    for name, value in replaced.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch, "zeros", lambda *args, **kwargs: torch.ones(()))
    return own


@dataclass
class Steps:
    """A layer with plain steps, beside what was said of them."""

    layer: nn.Module
    fails: bool = False
    computed: int = 0

    def __post_init__(self) -> None:
        self.notes: list[tuple[bool, str]] = []

    def compute(self, batch: Batch, state: Any, scored: bool) -> Outcome:
        self.computed += 1
        if self.fails and self.computed == 4:
            raise TypeError("no\nway")
        for parameter in self.layer.parameters():
            parameter.grad = None
        loss = (self.layer(batch.input) - batch.target).square().mean()
        loss.backward()
        with torch.no_grad():
            for parameter in self.layer.parameters():
                assert parameter.grad is not None
                parameter.sub_(parameter.grad, alpha=0.1)
        after = None if state is None else state + batch.input.sum()
        return after, {"loss": loss.detach()} if scored else {}

    def graphs(self, required: bool = False) -> StepGraphs:
        return StepGraphs(self.compute, self.layer, DEVICE, required, lambda *note: self.notes.append(note))


def batch(number: int, rows: int = 4) -> Batch:
    generator = torch.Generator().manual_seed(number)
    return Batch(torch.randn(rows, 3, generator=generator), torch.randn(rows, 2, generator=generator), fresh=False)


def pair() -> tuple[Steps, Steps]:
    """Return the same twice: to run eagerly, and to capture."""
    made = []
    for _ in range(2):
        torch.manual_seed(0)
        made.append(Steps(nn.Linear(3, 2)))
    return made[0], made[1]


def test_what_is_replayed_has_the_bits_of_eager_steps_and_their_gradients(machine: Machine) -> None:
    eager, captured = pair()
    graphs = captured.graphs()
    states: list[Any] = [torch.zeros(()), torch.zeros(())]
    for number in range(30):
        given = batch(number, rows=(4, 4, 5)[number % 3])
        scored = number % 3 == 0
        states[0], wanted = eager.compute(given, states[0], scored)
        states[1], found = graphs.run(given, states[1], scored)
        assert torch.equal(states[0], states[1])
        assert list(wanted) == list(found)
        assert all(torch.equal(wanted[name], found[name]) for name in wanted)
        for a, b in zip(eager.layer.parameters(), captured.layer.parameters(), strict=True):
            assert a.grad is not None
            assert b.grad is not None
            assert torch.equal(a, b)
            assert torch.equal(a.grad, b.grad)
    assert captured.computed == 3 * 3 + 3
    assert captured.notes == [(True, "")] * 3


def test_steps_are_captured_on_the_device_of_the_model(machine: Machine) -> None:
    steps = pair()[0]
    graphs = steps.graphs()
    for number in range(5):
        graphs.run(batch(number), None, False)
    assert machine.devices == [1]
    assert machine.device == 0


def test_a_capture_that_fails_leaves_stream_and_random_numbers_as_they_were(machine: Machine) -> None:
    eager, captured = pair()
    captured.fails = True
    graphs = captured.graphs()
    for number in range(6):
        eager.compute(batch(number), None, False)
        graphs.run(batch(number), None, False)
    assert captured.notes == [(False, "it could not be captured: no")]
    assert machine.stream == "first"
    assert not machine.broken
    assert len(machine.random) == 1
    for a, b in zip(eager.layer.parameters(), captured.layer.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_capture_that_fails_and_is_required_is_refused(machine: Machine) -> None:
    steps = pair()[0]
    steps.fails = True
    graphs = steps.graphs(required=True)
    for number in range(3):
        graphs.run(batch(number), None, False)
    with pytest.raises(ArgumentError, match="`graph` is 'on', but it could not be captured: no"):
        graphs.run(batch(3), None, False)
    assert machine.stream == "first"


def test_weights_that_have_come_to_lie_elsewhere_are_captured_anew(machine: Machine) -> None:
    eager, captured = pair()
    graphs = captured.graphs()
    for number in range(12):
        if number == 7:
            for steps in (eager, captured):
                for parameter in steps.layer.parameters():
                    parameter.data = parameter.data * 0.5
        eager.compute(batch(number), None, False)
        graphs.run(batch(number), None, False)
        for a, b in zip(eager.layer.parameters(), captured.layer.parameters(), strict=True):
            assert torch.equal(a, b)
    assert captured.computed == 3 + 2


class Counts(nn.Linear):
    """Puts a new tensor in place of its buffer."""

    def __init__(self) -> None:
        super().__init__(3, 2)
        self.register_buffer("count", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        self.count = self.count + 1
        return super().forward(x) / self.count


def test_a_step_that_replaces_a_buffer_stays_eager(machine: Machine) -> None:
    steps = Steps(Counts())
    graphs = steps.graphs()
    for number in range(6):
        graphs.run(batch(number), None, False)
    assert float(steps.layer.count) == 7.0  # type: ignore[arg-type]
    assert steps.notes == [(False, "a step puts a new tensor in place of a buffer")]


class Marked(Batch):
    """A batch that may hold more."""


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda b: Marked(b.input, b.target, fresh=False), "batches are of the class Marked"),
        (lambda b: Batch(b.input, b.target, torch.ones(4), fresh=False), "rows have lengths"),
        (lambda b: Batch(b.input.repeat(1, 2)[:, :3], b.target, fresh=False), "do not lie side by side"),
        (lambda b: Batch(b.input[:1].expand(4, 3), b.target, fresh=False), "do not lie side by side"),
    ],
)
def test_batches_that_cannot_be_copied_stay_eager(machine: Machine, make: Any, why: str) -> None:
    steps = pair()[0]
    graphs = steps.graphs()
    for number in range(6):
        graphs.run(make(batch(number)), None, False)
    assert steps.computed == 6
    assert all(why in note[1] and not note[0] for note in steps.notes)
    assert steps.notes


def test_kinds_beyond_the_most_stay_eager(machine: Machine) -> None:
    steps = pair()[0]
    graphs = steps.graphs()
    for rows in range(1, 19):
        for number in range(5):
            graphs.run(batch(number, rows), None, False)
    assert steps.notes == [(True, "")] * 16 + [(False, "16 kinds of batches are captured, and no more")] * 2
    assert steps.computed == 16 * 4 + 2 * 5


def test_what_torch_says_of_its_debug_mode_is_not_passed_on(machine: Machine) -> None:
    graphs = pair()[0].graphs()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(5):
            graphs.run(batch(number), None, False)


@pytest.fixture
def steppers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Stepper]]:
    """The same step twice, in a group of one process, on a batch in two parts: made before torch is replaced."""
    for name, value in rank_variables(0, 1, free_port()).items():
        monkeypatch.setenv(name, value)
    ranks, made = join(), []
    for _ in range(2):
        torch.manual_seed(0)
        model = SequenceModel(RNN(2, 6, transition="cayley"), 1)
        settings = tiny(optimizer=OptimizerSettings("sgd", lr=0.1), accumulate=2, clip=ClipSettings(recurrent=0.01))
        stepper = Stepper(model, addition(), settings, model, ranks=ranks)
        stepper.unchecked = 0
        made.append(stepper)
        for number in range(2):  # buffers of the exchange are made by the first step
            stepper.step(number + 1, addition().train_batch(number, 8), 1.0)
    yield made
    leave()


def test_a_captured_step_in_parts_of_a_group_has_the_bits_of_the_eager_one(steppers: list[Stepper], machine: Machine) -> None:
    eager, captured = steppers
    graphs = StepGraphs(captured._compute, captured.model, DEVICE, required=True)
    task = addition()
    for number in range(8):
        given = task.train_batch(number, 8)
        _, wanted = eager._compute(given, None, True)
        _, found = graphs.run(given, None, True)
        assert all(torch.equal(wanted[name], found[name]) for name in wanted)
        for a, b in zip(eager.model.parameters(), captured.model.parameters(), strict=True):
            assert torch.equal(a, b)
    assert [recorded is not None for recorded in graphs.recorded.values()] == [True]
    assert float(eager.average.loss) == float(captured.average.loss)
