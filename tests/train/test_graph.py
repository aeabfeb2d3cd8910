"""Captured steps: the same bits as eager ones, refused where a graph would repeat what Python should have decided."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from steadyrnn.activations import Activation, AdaptiveTanh, Tanh
from steadyrnn.cells.rnn import RNNStep
from steadyrnn.constraints import ExpOrthogonal
from steadyrnn.errors import ArgumentError, TrainingError
from steadyrnn.jobs.recipes import configure
from steadyrnn.jobs.train import train_network
from steadyrnn.layers.gru import GRU
from steadyrnn.layers.lstm import LSTM
from steadyrnn.layers.rnn import RNN
from steadyrnn.models.group import group
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.tasks.addition import Addition
from steadyrnn.tasks.base import Batch, Task
from steadyrnn.tasks.settings import AdditionSettings
from steadyrnn.train.clipping import gradient_norm
from steadyrnn.train.graph import reason_against
from steadyrnn.train.grouped import find_group_refusal
from steadyrnn.train.progress import Silent
from steadyrnn.train.settings import AverageSettings, ClipSettings, OptimizerSettings, ProbeSettings, TrainSettings
from steadyrnn.train.trainer import train
from tests.train.runs import CASES, RunningSum, addition, sequence_model, tiny


class Own(nn.Module):
    """A module that decides something in Python."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.calls = SequenceModel(RNN(2, 8), 1), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        out: Tensor = self.layer(x)[0]
        return out * (1.0 if self.calls % 2 else 2.0)


class Waiting(Own):
    """A module that waits for the device."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x)[0]
        return out if float(out.detach().sum()) > 0 else -out


class Notes(Silent):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)


@dataclass(frozen=True)
class Doubled(Activation):
    """An activation of one's own."""

    name = "doubled in test_graph"
    slopes, steepness, smoothness = (2.0, 2.0), (2.0, 2.0), 0.0

    def value(self, x: Tensor, theta: Tensor | None = None) -> Tensor:
        return 2 * x

    def derivative(self, x: Tensor) -> Tensor:
        return torch.full_like(x, 2.0)


class OwnStep(RNNStep):
    """A cell of one's own."""

    def step(self, *args: Any, **kwargs: Any) -> Any:
        return super().step(*args, **kwargs)


class StepLayer(nn.Identity):
    """A layer with a cell of one's own, and no other code."""

    cell = OwnStep(Tanh())


class Arranged(nn.Sequential):
    """A class of one's own that arranges what others compute."""

    def __init__(self) -> None:
        super().__init__(sequence_model())


class Extended(SequenceModel):
    """A class of one's own whose method another calls."""

    def embed(self, tokens: Tensor) -> Tensor:
        return tokens


class Streaming(Addition):
    """Makes batches of its own, and computes nothing in a step."""

    def train_batch(self, step: int, batch_size: int) -> Batch:
        return super().train_batch(step + 1, batch_size)


def hooked_parameter() -> nn.Module:
    model = sequence_model()
    next(model.parameters()).register_hook(lambda grad: grad)
    return model


def patched() -> nn.Module:
    model = sequence_model()
    model.forward = lambda x: x  # type: ignore[method-assign, assignment]
    return model


def patched_task() -> Task:
    task = addition()
    task.loss = lambda output, batch: output.sum()  # type: ignore[method-assign]
    return task


def hooked() -> nn.Module:
    model = sequence_model()
    model.register_forward_hook(lambda *_: None)
    return model


@pytest.mark.parametrize(
    ("build", "make", "more", "why"),
    [
        (sequence_model, addition, {"graph": "off"}, "`graph` is 'off'"),
        (sequence_model, addition, {}, "the device is cpu"),
        (sequence_model, addition, {"graph": "on"}, "the device is cpu"),
    ],
)
def test_what_speaks_against_a_graph_here(
    build: Callable[[], nn.Module], make: Callable[[], Task], more: dict[str, Any], why: str
) -> None:
    assert reason_against(build(), make(), tiny(**more)) == why


@pytest.mark.parametrize(
    ("build", "make", "more", "why"),
    [
        (sequence_model, addition, {}, ""),
        (sequence_model, addition, {"autocast": "bfloat16"}, ""),
        (sequence_model, addition, {"autocast": "float16"}, "scale of the loss"),
        (sequence_model, addition, {"autocast": "float16", "graph": "on"}, "scale of the loss"),
        (sequence_model, addition, {"compile": True}, "compiled"),
        (Own, addition, {}, "the model is a Own, a class of your own"),
        (lambda: nn.Sequential(Own()), addition, {}, "`0` is a Own, a class of your own"),
        (Own, addition, {"graph": "on"}, ""),
        (hooked, addition, {}, "has hooks"),
        (hooked_parameter, addition, {}, "has hooks"),
        (patched, addition, {}, "the model is a SequenceModel, a class of your own"),
        (lambda: Extended(RNN(2, 8), 1), addition, {}, "the model is a Extended, a class of your own"),
        (Arranged, addition, {}, ""),
        (lambda: SequenceModel(RNN(2, 8, nonlinearity=Doubled()), 1), addition, {}, "has a Doubled, a class of your own"),
        (lambda: nn.Sequential(StepLayer()), addition, {}, "`0` has a OwnStep, a class of your own"),
        (lambda: nn.DataParallel(sequence_model()), addition, {}, "is a DataParallel, which works with other devices"),
        (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(2, 1)), addition, {}, ""),
        (sequence_model, patched_task, {}, "`Addition.loss` is your own"),
        (sequence_model, lambda: Streaming(AdditionSettings()), {}, ""),
        (sequence_model, RunningSum, {}, "`RunningSum.loss` is your own"),
    ],
)
def test_what_speaks_against_a_graph_on_a_gpu(
    build: Callable[[], nn.Module], make: Callable[[], Task], more: dict[str, Any], why: str
) -> None:
    task = make()
    task.device = torch.device("cuda")
    found = reason_against(build(), task, tiny(**more))
    assert (why in found) if why else not found


def test_a_graph_that_is_asked_for_and_cannot_be_is_refused() -> None:
    with pytest.raises(ArgumentError, match="`graph` is 'on', but the device is cpu"):
        train(sequence_model(), addition(), tiny(graph="on"))


def test_it_is_refused_before_there_is_a_folder(tmp_path: Path) -> None:
    configuration = configure("addition", "lstm", {"train.graph": "on", "train.steps": 2, "train.device": "cpu"})
    with pytest.raises(ArgumentError, match="`graph` is 'on', but the device is cpu"):
        train_network(configuration, out=tmp_path, progress="silent")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("graph", "refused"), [("auto", False), ("off", False), ("on", True)])
def test_a_group_is_never_captured(graph: str, refused: bool) -> None:
    found = find_group_refusal(group([SequenceModel(RNN(2, 4), 1)]), addition(), TrainSettings(graph=graph, device="cpu"))
    assert (found is not None and "`graph` is 'on'" in found) if refused else found is None


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(ArgumentError, match="`graph` must be one of auto, on, off, but is 'yes'"):
        train(sequence_model(), addition(), tiny(graph="yes"))


def outcome(build: Callable[[], nn.Module], make: Callable[[], Task], settings: TrainSettings) -> tuple[Any, list[str]]:
    """Train on a GPU; return weights and scores, and what was noted."""
    torch.manual_seed(0)
    model, notes = build(), Notes()
    result = train(model, make(), settings, progress=notes)
    return ({name: value.cpu() for name, value in model.state_dict().items()}, result.test, result.last), notes.texts


def assert_same(build: Callable[[], nn.Module], make: Callable[[], Task], settings: TrainSettings) -> list[str]:
    settings = replace(settings, device="cuda", deterministic=True, steps=30)
    (weights, *scores), _ = outcome(build, make, replace(settings, graph="off"))
    (captured, *others), notes = outcome(build, make, settings)
    assert scores == others
    for name, value in weights.items():
        assert torch.equal(value, captured[name]), name
    return notes


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES)
def test_a_captured_run_has_the_bits_of_the_eager_one(case: str) -> None:
    build, make, settings = CASES[case]
    notes = assert_same(build, make, settings if case in ("float16",) else replace(settings, graph="auto"))
    if case in ("spectral", "moving average", "plateau", "probed"):
        assert notes == ["steps are captured as CUDA graphs"]


MODELS: dict[str, Callable[[], nn.Module]] = {
    "torch": lambda: nn.Sequential(Last(nn.GRU(2, 8, num_layers=2)), nn.Linear(8, 1)),
    "gru": lambda: SequenceModel(GRU(2, 16, num_layers=2, dropout=0.2, bidirectional=True), 1),
    "lstm": lambda: SequenceModel(LSTM(2, 16, transition="cayley"), 1),
    "saturation": lambda: SequenceModel(RNN(2, 16, nonlinearity=AdaptiveTanh(), transition="cayley"), 1, dropout_state=0.4),
    "factors": lambda: SequenceModel(RNN(2, 256, nonlinearity="leaky_relu", transition="spectral"), 1),
    "wide": lambda: SequenceModel(LSTM(2, 512), 1),
    "unitary": lambda: SequenceModel(RNN(2, 16, transition="unitary"), 1),
}


class Last(nn.Module):
    """The last output of a layer."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0][-1]  # type: ignore[no-any-return]


@pytest.mark.gpu
@pytest.mark.parametrize("autocast", [None, "bfloat16"])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_captured_has_the_bits_of_the_eager_one(name: str, autocast: str | None) -> None:
    more = {"graph": "on"} if name == "torch" else {}
    notes = assert_same(MODELS[name], addition, tiny(autocast=autocast, **more))
    assert notes == ["steps are captured as CUDA graphs"]


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["adam", "adamw", "sgd", "rmsprop"])
@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_an_optimizer_captured_has_the_bits_of_the_eager_one(name: str, momentum: float) -> None:
    optimizer = OptimizerSettings(name, lr=0.01, weight_decay=0.01, momentum=momentum if name in ("sgd", "rmsprop") else 0.0)
    settings = tiny(optimizer=optimizer, accumulate=2, average=AverageSettings("ema", decay=0.5), clip=ClipSettings(norm=0.1))
    assert assert_same(sequence_model, addition, settings) == ["steps are captured as CUDA graphs"]


@pytest.mark.gpu
def test_a_state_that_is_carried_along_is_captured() -> None:
    build, make, settings = CASES["carried"]
    assert assert_same(build, make, replace(settings, graph="on")) == ["steps are captured as CUDA graphs"]


@pytest.mark.gpu
def test_a_step_that_waits_runs_eagerly_and_says_so() -> None:
    def build() -> nn.Module:
        return SequenceModel(RNN(2, 8, transition="exp"), 1, dropout_state=0.3)

    notes = assert_same(build, addition, tiny())
    assert notes == ["steps run without CUDA graphs: a step waits for the device; `torch.cuda.set_sync_debug_mode` shows where"]


@pytest.mark.gpu
def test_a_step_that_waits_is_refused_where_a_graph_is_wanted() -> None:
    with pytest.raises(ArgumentError, match="`graph` is 'on', but a step waits for the device"):
        train(Waiting(), addition(), tiny(device="cuda", graph="on"))


@pytest.mark.gpu
def test_a_step_that_cannot_be_captured_goes_on_eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    def synchronizing(*args: Any, **kwargs: Any) -> Tensor:
        torch.cuda.synchronize()  # torch's mode of debugging does not see this
        return gradient_norm(*args, **kwargs)

    monkeypatch.setattr("steadyrnn.train.step.gradient_norm", synchronizing)
    notes = assert_same(sequence_model, addition, tiny())
    assert len(notes) == 1
    assert notes[0].startswith("steps run without CUDA graphs: it could not be captured")


class Poisoned(Addition):
    """Has NaN in a training batch that is behind the capture."""

    def train_batch(self, step: int, batch_size: int) -> Batch:
        batch = super().train_batch(step, batch_size)
        return Batch(batch.input * math.nan, batch.target) if step == 20 else batch


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["adam", "sgd", "rmsprop"])
def test_nan_in_a_captured_step_ends_the_run_with_the_weights_before_it(name: str) -> None:
    optimizer = OptimizerSettings(name, lr=0.01, momentum=0.5 if name in ("sgd", "rmsprop") else 0.0, weight_decay=0.01)
    settings = tiny(device="cuda", optimizer=optimizer, steps=30, log_every=30, validate_every=30, save_every=30)
    models, notes = [], Notes()
    for _ in range(2):
        torch.manual_seed(0)
        models.append(sequence_model())
    with pytest.raises(TrainingError, match="Step 21 is not finite: its loss is nan"):
        train(models[0], Poisoned(AdditionSettings(length=10, validation=24, test=24)), settings, progress=notes)
    assert notes.texts == ["steps are captured as CUDA graphs"]
    train(models[1], addition(), replace(settings, steps=20, validate_every=20, graph="off"))
    for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.gpu
def test_nan_leaves_a_re_centred_weight_as_it_was_before_the_step() -> None:
    settings = tiny(device="cuda", optimizer=OptimizerSettings("rmsprop"), steps=30, log_every=30, validate_every=30)
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(sequence_model(ExpOrthogonal("lie")))
    with pytest.raises(TrainingError, match="Step 21 is not finite: its loss is nan"):
        train(models[0], Poisoned(AdditionSettings(length=10, validation=24, test=24)), replace(settings, save_every=30))
    train(models[1], addition(), replace(settings, steps=20, validate_every=20, graph="off"))
    for name, value in models[0].state_dict().items():
        assert torch.equal(value, models[1].state_dict()[name]), name


@pytest.mark.gpu
def test_a_callback_finds_the_gradients_of_the_last_step() -> None:
    found: dict[str, list[float]] = {}
    for graph in ("off", "auto"):

        def look(step: int, model: nn.Module, graph: str = graph) -> Mapping[str, Any]:
            grads = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
            found.setdefault(graph, []).append(float(gradient_norm(grads)) if grads else 0.0)
            return {}

        torch.manual_seed(0)
        settings = tiny(device="cuda", deterministic=True, steps=40, probe=ProbeSettings(every=1), graph=graph)
        train(sequence_model(), addition(), settings, callbacks={"look": look})
    assert found["auto"] == found["off"]
