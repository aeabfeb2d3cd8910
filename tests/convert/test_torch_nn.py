"""From torch and back: the same function, the same flags, nothing lost in silence."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import steadyrnn as sr
from steadyrnn.activations import ACTIVATIONS, LeakyReLU
from steadyrnn.constraints.ball import SpectralBall
from steadyrnn.constraints.registry import CONSTRAINTS
from steadyrnn.constraints.slot import Slot
from steadyrnn.constraints.stable_lstm import StableLSTM
from steadyrnn.convert.torch_nn import to_torch
from steadyrnn.errors import (
    ArgumentError,
    ArgumentTypeError,
    ConstraintError,
    ConstraintWarning,
    ConversionError,
    NotInvertibleError,
    SteadyError,
)
from steadyrnn.layers.cells import GRUCell, LSTMCell, RNNCell
from steadyrnn.layers.from_torch import PAIRS, from_torch
from steadyrnn.layers.gru import GRU
from steadyrnn.layers.linear import Linear
from steadyrnn.layers.lstm import LSTM
from steadyrnn.layers.rnn import RNN
from tests.support.errors import assert_equal_up_to_rounding

T, B, D, H = 5, 3, 4, 6
SEQUENCE = {"num_layers": 2, "bidirectional": True, "batch_first": True, "dropout": 0.5}

MODULES: dict[str, Callable[..., nn.Module]] = {
    "rnn": lambda **kwargs: nn.RNN(D, H, **kwargs),
    "rnn of many options": lambda **kwargs: nn.RNN(D, H, nonlinearity="relu", **SEQUENCE, **kwargs),
    "gru": lambda **kwargs: nn.GRU(D, H, **kwargs),
    "gru of many options": lambda **kwargs: nn.GRU(D, H, **SEQUENCE, **kwargs),
    "lstm": lambda **kwargs: nn.LSTM(D, H, **kwargs),
    "lstm of many options": lambda **kwargs: nn.LSTM(D, H, **SEQUENCE, **kwargs),
    "rnn cell": lambda **kwargs: nn.RNNCell(D, H, **kwargs),
    "relu cell": lambda **kwargs: nn.RNNCell(D, H, nonlinearity="relu", **kwargs),
    "gru cell": lambda **kwargs: nn.GRUCell(D, H, **kwargs),
    "lstm cell": lambda **kwargs: nn.LSTMCell(D, H, **kwargs),
    "linear": lambda **kwargs: nn.Linear(D, H, **kwargs),
}
LAYERS: dict[str, Callable[..., nn.Module]] = {
    "rnn": lambda **kwargs: RNN(D, H, **kwargs),
    "rnn of many options": lambda **kwargs: RNN(D, H, nonlinearity="relu", **SEQUENCE, **kwargs),
    "gru": lambda **kwargs: GRU(D, H, **kwargs),
    "lstm": lambda **kwargs: LSTM(D, H, 2, bidirectional=True, **kwargs),
    "rnn cell": lambda **kwargs: RNNCell(D, H, **kwargs),
    "gru cell": lambda **kwargs: GRUCell(D, H, **kwargs),
    "lstm cell": lambda **kwargs: LSTMCell(D, H, **kwargs),
}


def input_of(module: nn.Module) -> Tensor:
    layer = isinstance(module, nn.RNNBase | RNN | GRU | LSTM)
    return torch.randn((B, T, D) if layer else (B, D), dtype=torch.float64)


def flat(value: Any) -> list[Tensor]:
    return [value] if isinstance(value, Tensor) else [tensor for part in value for tensor in flat(part)]


def assert_same_function(first: nn.Module, second: nn.Module) -> None:
    x = input_of(first)
    for value, expected in zip(flat(first(x)), flat(second(x)), strict=True):
        assert_equal_up_to_rounding(value, expected, T * H)


# From torch, free.


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", MODULES)
def test_a_converted_module_has_the_same_function(name: str, bias: bool) -> None:
    module = MODULES[name](bias=bias, dtype=torch.float64).eval()
    assert_same_function(from_torch(module), module)


@pytest.mark.parametrize("name", MODULES)
def test_a_converted_module_has_the_same_gradients(name: str) -> None:
    module = MODULES[name](dtype=torch.float64).eval()
    ours, x = from_torch(module), input_of(module)
    for layer in (module, ours):
        sum(tensor.square().sum() for tensor in flat(layer(x))).backward()
    for name_, parameter in module.named_parameters():
        assert_equal_up_to_rounding(getattr(ours, name_).grad, parameter.grad, B * T * H)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", MODULES)
def test_the_way_there_and_back_is_exact(name: str, bias: bool) -> None:
    module = MODULES[name](bias=bias)
    back = to_torch(from_torch(module))
    assert type(back) is type(module)
    assert repr(back) == repr(module)
    assert list(back.state_dict()) == list(module.state_dict())
    assert all(torch.equal(back.state_dict()[key], value) for key, value in module.state_dict().items())


@pytest.mark.parametrize("name", MODULES)
def test_the_converted_module_has_weights_of_its_own(name: str) -> None:
    module = MODULES[name]()
    ours = from_torch(module)
    pointers = {parameter.data_ptr() for parameter in module.parameters()}
    assert not pointers & {parameter.data_ptr() for parameter in ours.parameters()}


@pytest.mark.parametrize("convert", [from_torch, lambda module: to_torch(from_torch(module))])
@pytest.mark.parametrize("name", MODULES)
def test_flags_and_dtype_are_kept(name: str, convert: Callable[[nn.Module], nn.Module]) -> None:
    module = MODULES[name](dtype=torch.float64).eval()
    frozen = next(iter(dict(module.named_parameters())))
    getattr(module, frozen).requires_grad_(False)
    converted = convert(module)
    assert not converted.training
    assert {name for name, p in converted.named_parameters() if not p.requires_grad} == {frozen}
    assert {p.dtype for p in converted.parameters()} == {torch.float64}


@pytest.mark.parametrize("name", MODULES)
def test_the_device_is_kept(name: str) -> None:
    assert next(from_torch(MODULES[name](device="meta")).parameters()).is_meta


@pytest.mark.parametrize("transition", ["free", "spectral"])
@pytest.mark.parametrize("name", ["gru", "lstm cell", "linear"])
def test_converting_uses_up_no_random_numbers(name: str, transition: str) -> None:
    module = MODULES[name]()
    state = torch.get_rng_state()
    to_torch(from_torch(module, transition, project=True))
    assert torch.equal(torch.get_rng_state(), state)


def test_the_torch_first_weights_of_a_free_transition_do_not_replace_the_modules() -> None:
    module = nn.RNN(D, H)
    assert torch.equal(from_torch(module, "irnn").weight_hh_l0, module.weight_hh_l0)


# From torch, constrained.

INVERTIBLE = [name for name in CONSTRAINTS if name not in ("free", "irnn", "unitary")]


def in_the_set(module: nn.Module, name: str) -> nn.Module:
    """Return the module with the recurrent weight of its candidate gate replaced by a member of a set."""
    ours = {nn.RNN: RNN, nn.GRU: GRU, nn.LSTM: LSTM, nn.Linear: Linear}[type(module)]
    key = "weight" if ours is Linear else "transition"
    source = ours(H, H, dtype=torch.float64, **{key: name})
    weight = "weight" if ours is Linear else "weight_hh_l0"
    with torch.no_grad():
        getattr(module, weight).copy_(getattr(source, weight))
    return module


@pytest.mark.parametrize("name", INVERTIBLE)
@pytest.mark.parametrize("make", [nn.RNN, nn.GRU, nn.LSTM, nn.Linear])
def test_a_member_of_the_set_is_converted_with_the_same_function(make: type[nn.Module], name: str) -> None:
    module = in_the_set(make(H, H, dtype=torch.float64), name)
    ours = from_torch(module, name)
    assert any(isinstance(part, Slot) for part in ours.modules())
    x = torch.randn(T, B, H, dtype=torch.float64)
    for value, expected in zip(flat(ours(x)), flat(module(x)), strict=True):
        assert_equal_up_to_rounding(value, expected, T * H * H)


@pytest.mark.parametrize("name", ["rnn", "gru of many options", "lstm cell", "linear"])
def test_a_weight_outside_the_set_is_refused_with_its_violation(name: str) -> None:
    with pytest.raises(ConstraintError, match=r"violation \d.*project=True"):
        from_torch(MODULES[name](), SpectralBall(0.01))


@pytest.mark.parametrize("name", ["rnn", "gru of many options", "lstm cell", "linear"])
def test_a_weight_outside_the_set_is_projected_if_requested(name: str) -> None:
    module = MODULES[name](dtype=torch.float64)
    ours = from_torch(module, SpectralBall(0.01), project=True)
    slots = [part for part in ours.modules() if isinstance(part, Slot)]
    assert slots
    for slot in slots:
        largest = torch.linalg.matrix_norm(slot.weight(), 2)
        if isinstance(slot.constraint, SpectralBall):
            assert_equal_up_to_rounding(largest, torch.tensor(0.01, dtype=torch.float64), H)


def test_projecting_is_not_what_the_layer_goes_on_doing() -> None:
    ours = from_torch(nn.RNN(D, H), SpectralBall(0.01), project=True)
    with pytest.raises(ConstraintError):
        ours.weight_hh_l0 = torch.eye(H)


def test_only_the_named_gates_are_constrained() -> None:
    module = nn.GRU(D, H)
    ours = from_torch(module, {"z": SpectralBall(0.01)}, project=True)
    r, z, n = (ours.weight_hh_l0 != module.weight_hh_l0).split(H)
    assert (bool(r.any()), bool(z.any()), bool(n.any())) == (False, True, False)


@pytest.mark.parametrize("project", [False, True])
@pytest.mark.parametrize("transition", ["unitary", sr.Spectral(reflectors=2)])
def test_a_constraint_without_inverse_is_refused(transition: Any, project: bool) -> None:
    with pytest.raises(NotInvertibleError):
        from_torch(nn.RNN(D, H), transition, project=project)


def test_a_frozen_weight_has_frozen_raw_tensors_and_comes_back_frozen() -> None:
    module = nn.RNN(D, H)
    module.weight_hh_l0.requires_grad_(False)
    ours = from_torch(module, "spectral", project=True)
    frozen = {name for name, parameter in ours.named_parameters() if not parameter.requires_grad}
    assert frozen == {name for name, _ in ours.named_parameters() if name.startswith("transition")}
    assert not to_torch(ours).weight_hh_l0.requires_grad


# The joint constraint of an LSTM.


def stable(make: type[nn.Module]) -> nn.Module:
    """Return a module whose weights are in the set of the joint constraint."""
    return to_torch({nn.LSTM: LSTM, nn.LSTMCell: LSTMCell}[make](D, H, transition="stable-lstm"))


@pytest.mark.parametrize("transition", ["stable-lstm", StableLSTM()])
@pytest.mark.parametrize("make", [nn.LSTM, nn.LSTMCell])
def test_a_stable_lstm_is_converted_to_the_last_bit(make: type[nn.Module], transition: str | StableLSTM) -> None:
    module = stable(make)
    back = to_torch(from_torch(module, transition))
    assert all(torch.equal(back.state_dict()[key], value) for key, value in module.state_dict().items())


@pytest.mark.parametrize("make", [nn.LSTM, nn.LSTMCell])
def test_an_lstm_outside_the_joint_set_is_refused_with_its_distance(make: type[nn.Module]) -> None:
    with pytest.raises(ConstraintError, match=r"weight_hh.*violation \d.*project=True"):
        from_torch(make(D, H), "stable-lstm")


@pytest.mark.parametrize("make", [nn.LSTM, nn.LSTMCell])
def test_an_lstm_outside_the_joint_set_is_projected_if_requested(make: type[nn.Module]) -> None:
    module = make(D, H, dtype=torch.float64)
    ours = from_torch(module, "stable-lstm", project=True)
    expected = StableLSTM().project(*module.parameters())
    for value, nearest in zip(ours.parameters(), expected, strict=True):
        assert_equal_up_to_rounding(value, nearest, H)


# To torch.


@pytest.mark.parametrize("bias", [True, "single", False])
@pytest.mark.parametrize("transition", ["free", "spectral"])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_has_a_plain_twin(name: str, transition: str, bias: Any) -> None:
    layer = LAYERS[name](transition=transition, bias=bias, dtype=torch.float64).eval()
    plain = to_torch(layer)
    assert type(plain) in PAIRS
    assert_same_function(plain, layer)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("weight", ["free", "spectral"])
def test_a_linear_has_a_plain_twin(weight: str, bias: bool) -> None:
    layer = Linear(D, H, bias, weight=weight)
    plain = to_torch(layer)
    assert type(plain) is nn.Linear
    assert torch.equal(plain.weight, layer.weight)


@pytest.mark.parametrize("name", ["gru", "lstm cell"])
def test_the_second_vector_of_a_single_bias_is_zero_and_frozen(name: str) -> None:
    plain = to_torch(LAYERS[name](bias="single"))
    second = next(p for key, p in plain.named_parameters() if key.startswith("bias_hh"))
    assert not second.any()
    assert not second.requires_grad


@pytest.mark.parametrize("transition", ["spectral", "ornn", "exp", "cayley", "ball"])
def test_a_constrained_layer_comes_back_from_torch(transition: str) -> None:
    layer = RNN(D, H, transition=transition, dtype=torch.float64)
    back = from_torch(to_torch(layer), transition)
    assert_equal_up_to_rounding(back.weight_hh_l0, layer.weight_hh_l0, H * H)


# Refusals.


class Subclass(nn.GRU):
    """A user's own layer, whose forward may be anything."""


def parametrized() -> nn.Module:
    return nn.utils.parametrizations.orthogonal(nn.RNN(D, H), "weight_hh_l0")


def pruned() -> nn.Module:
    module = nn.Linear(D, H)
    module.register_parameter("weight_orig", nn.Parameter(module.weight.detach().clone()))
    del module.weight
    return module


BAD_MODULES: list[tuple[nn.Module, type[SteadyError], str]] = [
    (nn.LSTM(D, H, proj_size=2), ConversionError, "proj_size=2"),
    (nn.Sequential(nn.Linear(D, H)), ConversionError, "Sequential"),
    (Subclass(D, H), ConversionError, "Subclass"),
    (parametrized(), ConversionError, "ParametrizedRNN"),
    (pruned(), ConversionError, "'weight_orig'"),
    (RNN(D, H), ConversionError, "torch.nn"),
]


@pytest.mark.parametrize(("module", "error", "words"), BAD_MODULES, ids=lambda value: getattr(value, "__name__", None))
def test_a_module_without_counterpart_is_refused(module: nn.Module, error: type[SteadyError], words: str) -> None:
    with pytest.raises(error, match=words):
        from_torch(module)


@pytest.mark.parametrize(
    ("module", "transition", "error", "words"),
    [
        (nn.RNN(D, H), "no such set", ArgumentError, "no such set"),
        (nn.RNN(D, H), 3, ArgumentTypeError, "int"),
        (nn.GRU(D, H), {"h": "spectral"}, ArgumentError, "'h'"),
        (nn.GRU(D, H), "stable-lstm", ArgumentError, "StableLSTM"),
        (nn.Linear(D, H), {"h": "spectral"}, ArgumentTypeError, "dict"),
    ],
)
def test_a_bad_transition_is_refused(module: nn.Module, transition: Any, error: type[SteadyError], words: str) -> None:
    with pytest.raises(error, match=words):
        from_torch(module, transition)


BAD_LAYERS: list[tuple[nn.Module, str]] = [
    *((RNN(D, H, nonlinearity=name), name) for name in ACTIVATIONS if name not in ("tanh", "relu")),
    (RNN(D, H, nonlinearity=LeakyReLU(0.5)), "leaky_relu"),
    (RNNCell(D, H, nonlinearity="abs"), "abs"),
    (GRU(D, H, reset_after=False), "reset_after=True"),
    (GRUCell(D, H, reset_after=False), "reset_after=True"),
    (RNN(D, H, learn_initial_state=True), "`hx`"),
    (LSTM(D, H, learn_initial_state=True), "`hx`"),
    (nn.RNN(D, H), "steadyrnn"),
]


@pytest.mark.parametrize(("layer", "words"), BAD_LAYERS)
def test_a_layer_that_torch_cannot_express_is_refused_with_the_way_out(layer: nn.Module, words: str) -> None:
    with pytest.raises(ConversionError, match=words):
        to_torch(layer)


def test_the_way_out_of_a_learned_state_works() -> None:
    layer = LSTM(D, H, learn_initial_state=True, dtype=torch.float64)
    nn.init.normal_(layer.initial_state_l0)
    nn.init.normal_(layer.initial_cell_l0)
    plain = LSTM(D, H, dtype=torch.float64)
    plain.load_state_dict(layer.state_dict(), strict=False)
    x = torch.randn(T, B, D, dtype=torch.float64)
    hx = tuple(state.expand(1, B, H).contiguous() for state in (layer.initial_state_l0, layer.initial_cell_l0))
    assert_equal_up_to_rounding(to_torch(plain)(x, hx)[0], layer(x)[0], T * H)


@pytest.mark.parametrize("make", [nn.LSTM, nn.LSTMCell])
def test_a_projection_that_removes_the_recurrence_says_so(make: Callable[..., nn.Module]) -> None:
    lstm = make(D, 32)
    with torch.no_grad():
        for parameter in lstm.parameters():
            parameter.mul_(5)  # as training does
    with pytest.warns(
        ConstraintWarning, match=r"`weight_hh(_l0)?` onto the set of StableLSTM.* (9\d|100)% of its Frobenius"
    ) as found:
        ours = from_torch(lstm, transition="stable-lstm", project=True)
    name = "weight_hh_l0" if make is nn.LSTM else "weight_hh"
    before, after = getattr(lstm, name).detach(), getattr(ours, name).detach()
    assert f"{float((before - after).norm() / before.norm()):.0%}" in str(found[0].message)


@pytest.mark.parametrize("name", [name for name in CONSTRAINTS if name not in ("free", "irnn", "unitary")])
def test_every_projection_warns_where_it_changes_more_than_half(name: str) -> None:
    rnn = nn.RNN(D, H)
    with torch.no_grad():
        rnn.weight_hh_l0.mul_(20)
    with pytest.warns(ConstraintWarning, match="Frobenius"):
        from_torch(rnn, transition=name, project=True)


def test_a_projection_that_changes_little_is_silent() -> None:
    rnn = nn.RNN(D, H)
    with torch.no_grad():
        rnn.weight_hh_l0.copy_(1.1 * torch.eye(H))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_torch(rnn, transition="ball", project=True)
        from_torch(rnn, transition="polar", project=True)
