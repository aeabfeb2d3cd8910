"""A description of a model: an equal one is built from it, over every registry, and a hostile one is refused."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from steadyrnn.activations import NAMED_ACTIVATIONS, AdaptiveTanh, LeakyReLU
from steadyrnn.certificates.certify import certify
from steadyrnn.constraints.base import Constraint
from steadyrnn.constraints.free import Free
from steadyrnn.constraints.registry import CONSTRAINTS, JOINT
from steadyrnn.constraints.spectral import Spectral
from steadyrnn.constraints.stable_lstm import StableLSTM
from steadyrnn.errors import ArgumentError, ArgumentTypeError, SteadyError
from steadyrnn.layers.gru import GRU
from steadyrnn.layers.linear import Linear
from steadyrnn.layers.lstm import LSTM
from steadyrnn.layers.rnn import RNN
from steadyrnn.models.describable import MODULES, describables
from steadyrnn.models.description import describe_model, rebuild_model
from steadyrnn.models.hints import fits
from steadyrnn.models.mlp import MLP
from steadyrnn.models.resnet import ResNet
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.models.truncated import Truncated
from tests.support.activations import Softsign
from tests.support.layers import Counting

D, H, N, T, B = 3, 6, 4, 5, 2
LAYERS: dict[str, Callable[..., nn.Module]] = {
    "rnn": RNN, "gru": GRU, "lstm": LSTM, "torch-rnn": nn.RNN, "torch-gru": nn.GRU, "torch-lstm": nn.LSTM,
}  # fmt: skip
OURS = ("rnn", "gru", "lstm")
GATES = {"rnn": "h", "gru": "rzn", "lstm": "ifgo"}


def copy_of(model: nn.Module) -> nn.Module:
    """Return the model that is built from the text of a description, with the same weights."""
    described = json.loads(json.dumps(describe_model(model)))
    twin = rebuild_model(described, model.state_dict())
    twin.load_state_dict(model.state_dict())
    assert describe_model(twin) == described
    return twin


def tensors_of(result: Any) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    return [tensor for part in result if part is not None for tensor in tensors_of(part)]


def assert_equal(model: nn.Module, twin: nn.Module, x: Tensor) -> None:
    assert str(twin) == str(model)
    ours, theirs = tensors_of(model.eval()(x)), tensors_of(twin.eval()(x))
    assert len(ours) == len(theirs)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def constraint_of(name: str) -> Constraint:
    return CONSTRAINTS[name]()


@pytest.mark.parametrize("name", CONSTRAINTS)
@given(project=st.booleans(), seed=st.integers(0, 2**32 - 1))
def test_a_registered_constraint_comes_back(name: str, project: bool, seed: int) -> None:
    made = constraint_of(name)
    made.projects = project
    torch.manual_seed(seed)
    layer = RNN(D, H, transition=made)
    twin: Any = copy_of(layer)
    found = twin.transition_sets()["h"]
    assert (type(found), repr(found), found.projects) == (type(made), repr(made), project)
    assert found.arguments() == made.arguments()
    assert_equal(layer, twin, torch.randn(T, B, D))


@pytest.mark.parametrize("name", CONSTRAINTS)
@pytest.mark.parametrize("layer", OURS)
def test_a_layer_comes_back_with_the_set_of_each_gate(layer: str, name: str) -> None:
    gate = GATES[layer][-1]
    model = SequenceModel(LAYERS[layer](D, H, 2, transition={gate: constraint_of(name)}), N)
    twin: Any = copy_of(model)
    assert_equal(model, twin, torch.randn(T, B, D))
    sets = twin.rnn.transition_sets()
    assert list(sets) == list(GATES[layer])
    assert repr(sets[gate]) == repr(constraint_of(name))
    assert certify(twin, 1.0, effort="fast").to_dict() == certify(model, 1.0, effort="fast").to_dict()


@pytest.mark.parametrize("name", JOINT)
def test_a_joint_constraint_comes_back(name: str) -> None:
    model = SequenceModel(LSTM(D, H, 2, transition=StableLSTM(forget_bound=0.7, input_bound=2.0), bidirectional=True), N)
    twin: Any = copy_of(model)
    assert twin.rnn.transition_sets() == StableLSTM(0.7, 2.0)
    assert_equal(model, twin, torch.randn(T, B, D))
    assert str(copy_of(LSTM(D, H, transition=name)))


@pytest.mark.parametrize("name", NAMED_ACTIVATIONS)
def test_a_named_activation_comes_back(name: str) -> None:
    model = SequenceModel(RNN(D, H, nonlinearity=name), N)
    assert_equal(model, copy_of(model), torch.randn(T, B, D))


@pytest.mark.parametrize("activation", [LeakyReLU(0.25), AdaptiveTanh("diagonal", 0.5)], ids=str)
def test_an_activation_comes_back_with_its_numbers(activation: Any) -> None:
    twin: Any = copy_of(RNN(D, H, nonlinearity=activation))
    assert twin.activation == activation


@pytest.mark.parametrize("layer", LAYERS)
@given(data=st.data())
def test_a_recurrent_model_of_any_options_comes_back(layer: str, data: st.DataObject) -> None:
    flag = st.booleans()
    options: dict[str, Any] = {name: data.draw(flag) for name in ("batch_first", "bidirectional", "bias")}
    options |= {"num_layers": data.draw(st.integers(1, 3)), "dtype": data.draw(st.sampled_from([torch.float32, torch.float64]))}
    if options["num_layers"] > 1:
        options["dropout"] = data.draw(st.sampled_from([0.0, 0.25]))
    if layer in OURS:
        options |= {"bias": data.draw(st.sampled_from([True, False, "single"])), "learn_initial_state": data.draw(flag)}
        options |= {"recompute": data.draw(flag), "engine": data.draw(st.sampled_from(["auto", "reference"]))}
    options |= {"reset_after": data.draw(flag)} if layer == "gru" else {}
    tokens, tied = data.draw(flag), False
    width = H * (2 if options["bidirectional"] else 1)
    size = width if tokens and data.draw(flag) else D
    tied = size == width
    model = SequenceModel(
        LAYERS[layer](size, H, **options), N, vocab_size=N if tokens else None, tied=tied,
        readout=data.draw(st.sampled_from(["last", "each"])),
        skip=data.draw(flag), bias=data.draw(flag), dropout_state=0.5, dropout_logits=0.125,
    )  # fmt: skip
    twin: Any = copy_of(model)
    x = torch.randint(N, (T, B)) if tokens else torch.randn(T, B, D, dtype=options["dtype"])
    for one in (model, twin):
        if layer in OURS:
            one.rnn.engine = "reference"
    assert_equal(model, twin, x)
    assert twin.rnn.batch_first == options["batch_first"]


@pytest.mark.parametrize("kind", [MLP, ResNet])
@pytest.mark.parametrize("name", CONSTRAINTS)
def test_a_network_without_time_comes_back(kind: Any, name: str) -> None:
    weight = {"hidden": constraint_of(name), "readout": Free("orthogonal")}
    model = kind(D, H, N, 2, activation=LeakyReLU(0.2), weight=weight, dropout=0.25, dtype=torch.float64)
    assert_equal(model, copy_of(model), torch.randn(B, D, dtype=torch.float64))


def test_a_truncated_model_comes_back() -> None:
    model = Truncated(SequenceModel(RNN(D, H, transition="ball"), N), 10_000, "each")
    twin: Any = copy_of(model)
    assert (twin.context, twin.reads) == (10_000, "each")
    assert_equal(model, twin, torch.randn(T, B, D))


def test_numbers_that_json_lacks_come_back() -> None:
    (ball,) = (one for one in describables() if one.name == "SpectralBall")
    twin: Any = copy_of(Linear(D, H, weight=ball.cls(bound=float("inf"))))
    assert twin.weight_set().bound == float("inf")


def test_no_random_number_is_used_up() -> None:
    model = SequenceModel(RNN(D, H, transition="spectral"), N)
    before = torch.random.get_rng_state()
    rebuild_model(describe_model(model), model.state_dict())
    assert torch.equal(torch.random.get_rng_state(), before)


def test_every_class_of_modules_is_met() -> None:
    assert {one.cls for one in MODULES} == {
        *(RNN, GRU, LSTM, Linear, nn.RNN, nn.GRU, nn.LSTM, SequenceModel, Truncated, MLP, ResNet),
    }


def with_hook() -> nn.Module:
    model = SequenceModel(RNN(D, H), N)
    model.rnn.register_forward_hook(lambda module, args, output: None)
    return model


def with_part(**parts: nn.Module) -> nn.Module:
    model = SequenceModel(RNN(D, H), N)
    for name, part in parts.items():
        setattr(model, name, part)
    return model


class Own(nn.Module):
    """A module of the user's."""


class OwnRNN(RNN):
    """A subclass, which may compute something else."""


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "a module of one's own": (Own, "`model` is of class tests.models.test_description.Own, which a description cannot name"),
    "a subclass": (lambda: SequenceModel(OwnRNN(D, H), N), r"`model.rnn` is of class tests.models.test_description.OwnRNN"),
    "a constraint": (lambda: RNN(D, H, transition=Counting()), r"`model.transition.h` is of class .*Counting"),
    "an activation": (lambda: RNN(D, H, nonlinearity=Softsign()), r"`model.nonlinearity` is of class .*Softsign"),
    "a hook": (with_hook, r"`model.rnn` has a hook or a `forward` of its own"),
    "another part": (lambda: with_part(readout=nn.Linear(H, N)), r"`model.readout` is torch.nn.*Linear in place of steadyrnn"),
    "a part more": (lambda: with_part(extra=nn.Dropout()), r"`model.extra` is torch.nn.*Dropout in place of nothing"),
    "another size": (lambda: with_part(readout=Linear(H, N, False, weight="spectral")), r"`model.readout.* is "),
    "another dtype": (lambda: with_part(readout=Linear(H, N, weight="free").double()), "a description has one"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_name_stands_for_is_refused_by_its_part(case: str) -> None:
    make, message = REFUSED[case]
    with pytest.raises(ArgumentError, match=message):
        describe_model(make())


def test_something_else_than_a_module_is_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="`model` must be a module, but is of type int"):
        describe_model(3)  # type: ignore[arg-type]


MODEL = SequenceModel(RNN(D, H, transition=Spectral(2)), N)


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return a description with another value at a dotted place below its arguments."""
    description = json.loads(json.dumps(describe_model(MODEL)))
    place = description
    *parts, last = path.split(".")
    for part in parts:
        place = place[part]
    place[last] = value
    return description


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


RNN_AT = "arguments.rnn.arguments"
GATE_AT = f"{RNN_AT}.transition.each.h"
HOSTILE: dict[str, tuple[str, Any]] = {
    "no format": ("format", None),
    "another format": ("format", 2),
    "a truth value": ("format", True),
    "an unknown class": ("arguments.rnn.module", "os.system"),
    "a class of another kind": ("arguments.rnn.module", "Spectral"),
    "a list as a class": ("module", ["os"]),
    "arguments of another kind": ("arguments", [1]),
    "an argument too many": (f"{RNN_AT}.device", "meta"),
    "text as a size": (f"{RNN_AT}.hidden_size", "6"),
    "a truth value as a size": (f"{RNN_AT}.hidden_size", True),
    "a fraction as a size": (f"{RNN_AT}.hidden_size", 6.5),
    "a negative size": (f"{RNN_AT}.hidden_size", -1),
    "no size": (f"{RNN_AT}.hidden_size", 0),
    "a huge size": (f"{RNN_AT}.hidden_size", 10**9),
    "a number beyond words": (f"{RNN_AT}.hidden_size", 10**40),
    "many layers": (f"{RNN_AT}.num_layers", 10**7),
    "another size that fits a dimension": ("arguments.out_features", H),
    "a huge vocabulary": ("arguments.vocab_size", 10**12),
    "reflectors without end": (f"{GATE_AT}.arguments.reflectors", [10**8, 2]),
    "a list too long": (f"{GATE_AT}.arguments.reflectors", [2, 2, 2]),
    "another set": (f"{GATE_AT}.arguments.sigma", "other"),
    "a list as text": (f"{GATE_AT}.arguments.sigma", ["clip"]),
    "text as a flag": (f"{GATE_AT}.arguments.project", "yes"),
    "an activation as a set": (GATE_AT, {"activation": "relu", "arguments": {}}),
    "a module as a gate": (GATE_AT, {"module": "torch.nn.GRU", "arguments": {}}),
    "a gate that is none": (f"{RNN_AT}.transition", {"each": {"q": "spectral"}}),
    "a value of no form": (f"{RNN_AT}.bias", {"eval": "1"}),
    "another dtype": (f"{RNN_AT}.dtype", {"dtype": "int64"}),
    "a dtype that is no type": (f"{RNN_AT}.dtype", {"dtype": "Tensor"}),
    "nested lists": (f"{RNN_AT}.bias", nested(100_000)),
    "a number that is none": (f"{GATE_AT}.arguments.radius", {"number": "nan"}),
}


SIZES = ("a huge size", "many layers", "a huge vocabulary", "another size that fits a dimension")
"""What the weights alone tell to be wrong."""


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_description_is_refused_in_a_sentence(case: str) -> None:
    with pytest.raises(SteadyError) as raised:
        rebuild_model(changed(*HOSTILE[case]), MODEL.state_dict())
    assert len(str(raised.value)) < 600


@pytest.mark.parametrize("case", [case for case in HOSTILE if case not in SIZES])
def test_a_hostile_description_is_refused_without_weights_too(case: str) -> None:
    with pytest.raises(SteadyError):
        rebuild_model(changed(*HOSTILE[case]))


@pytest.mark.parametrize("value", [None, 3, [], "module", {}, {"format": 1}, {"format": 1, "dtype": "float32"}], ids=str)
def test_something_else_than_a_description_is_refused(value: Any) -> None:
    with pytest.raises(SteadyError):
        rebuild_model(value)


def test_weights_of_another_model_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"the weights lack `readout\.bias`"):
        rebuild_model(describe_model(MODEL), {k: v for k, v in MODEL.state_dict().items() if k != "readout.bias"})


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        *((3, int, True), (True, int, False), (3, float, True), (True, bool, True), (1, bool, False), (2**70, int, False)),
        *((None, int | None, True), ("single", bool | Literal["single"], True), (1, bool | Literal["single"], False)),
        *(((1, 2), tuple[int, int], True), ((1,), tuple[int, int], False), (3, Mapping[str, int], False)),
        *(({"a": 1}, Mapping[str, int], True), ({"a": "b"}, Mapping[str, int], False)),
    ],
)
def test_a_value_fits_its_type(value: Any, hint: Any, expected: bool) -> None:
    assert fits(value, hint) is expected
