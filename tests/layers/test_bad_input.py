"""Every mistake DESIGN 5 and USERS 2 list, with the error each gets; nothing is changed by any of them."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from steadyrnn.constraints.ball import SpectralBall
from steadyrnn.constraints.spectral import Spectral
from steadyrnn.errors import (
    ArgumentError,
    ArgumentTypeError,
    ConstraintError,
    DeviceError,
    DtypeError,
    LayoutWarning,
    NotFiniteError,
    NotInvertibleError,
    ShapeError,
    SteadyError,
)
from steadyrnn.layers.cells import GRUCell, LSTMCell, RNNCell
from steadyrnn.layers.gru import GRU
from steadyrnn.layers.linear import Linear
from steadyrnn.layers.lstm import LSTM
from steadyrnn.layers.rnn import RNN
from tests.support.layers import assert_state_kept

LAYERS = {"RNN": RNN, "GRU": GRU, "LSTM": LSTM}
SINGLE = {"RNNCell": RNNCell, "GRUCell": GRUCell, "LSTMCell": LSTMCell}


class Mistake(NamedTuple):
    """What was done wrong, the error it gets, what its message says, and the builtin torch raises."""

    what: str
    arguments: dict[str, Any]
    error: type[Exception]
    says: str
    builtin: type[Exception]


MAKING = [
    Mistake("no hidden units", {"hidden_size": 0}, ArgumentError, "`hidden_size` must be greater than zero", ValueError),
    Mistake("hidden units below zero", {"hidden_size": -1}, ArgumentError, "`hidden_size` must be greater", ValueError),
    Mistake("half a hidden unit", {"hidden_size": 2.5}, ArgumentTypeError, "`hidden_size` must be an integer", TypeError),
    Mistake("True hidden units", {"hidden_size": True}, ArgumentTypeError, "`hidden_size` must be an integer", TypeError),
    Mistake("no inputs", {"input_size": 0}, ArgumentError, "`input_size` must be greater than zero", ValueError),
    Mistake("a bias of another kind", {"bias": "double"}, ArgumentError, "`bias` must be True", ValueError),
    Mistake("a set that is not there", {"transition": "orthogonal"}, ArgumentError, "`transition` must be one of", ValueError),
    Mistake("a set of another type", {"transition": 3}, ArgumentTypeError, "`transition` must be a constraint", TypeError),
    Mistake("no set", {"transition": None}, ArgumentTypeError, "`transition` must be a constraint", TypeError),
    Mistake(
        "a gate that is not there", {"transition": {"q": "exp"}}, ArgumentError, "`transition` names the gate 'q'", ValueError
    ),
]

MAKING_LAYERS = [
    *MAKING,
    Mistake("a bias of 0", {"bias": 0}, ArgumentTypeError, "`bias` must be True", TypeError),
    Mistake("a bias of None", {"bias": None}, ArgumentTypeError, "`bias` must be True", TypeError),
    Mistake("no layers", {"num_layers": 0}, ArgumentError, "`num_layers` must be greater than zero", ValueError),
    Mistake("half a layer", {"num_layers": 1.5}, ArgumentTypeError, "`num_layers` must be an integer", TypeError),
    Mistake("dropout above 1", {"dropout": 1.5}, ArgumentError, "`dropout` must be a number from 0.0 to 1.0", ValueError),
    Mistake("dropout below 0", {"dropout": -0.1}, ArgumentError, "`dropout` must be a number", ValueError),
    Mistake("dropout of NaN", {"dropout": torch.nan}, ArgumentError, "`dropout` must be a number", ValueError),
    Mistake("dropout by name", {"dropout": "half"}, ArgumentTypeError, "`dropout` must be a number", TypeError),
    Mistake("True dropout", {"dropout": True}, ArgumentTypeError, "`dropout` must be a number", TypeError),
    Mistake("a projection", {"proj_size": 2}, ArgumentError, "`proj_size` is not supported", ValueError),
    Mistake("an engine that is not there", {"engine": "mps"}, ArgumentError, "`engine` must be one of auto", ValueError),
]

ACTIVATION = [
    Mistake("an activation that is not there", {"nonlinearity": "gelu"}, ArgumentError, "`nonlinearity` must be", ValueError),
    Mistake("a function", {"nonlinearity": torch.tanh}, ArgumentTypeError, "`nonlinearity` must be a name", TypeError),
    Mistake(
        "odd modReLU", {"nonlinearity": "modrelu", "hidden_size": 5}, ArgumentError, "`hidden_size` must be even", ValueError
    ),
    Mistake("odd unitary", {"transition": "unitary", "hidden_size": 5}, SteadyError, "even", ValueError),
    Mistake(
        "many reflectors", {"transition": Spectral(reflectors=9)}, ArgumentError, "`reflectors` must be at most", ValueError
    ),
]


def expect(mistake: Mistake, do: Callable[[], Any]) -> None:
    with pytest.raises(mistake.error) as caught:
        do()
    assert mistake.says in str(caught.value)
    assert isinstance(caught.value, mistake.builtin)
    assert isinstance(caught.value, SteadyError)


def name_of(value: Any) -> str:
    return value.what if isinstance(value, Mistake) else str(value)


@pytest.mark.parametrize("mistake", MAKING_LAYERS, ids=name_of)
@pytest.mark.parametrize("name", LAYERS)
def test_layer_that_cannot_be_is_refused(name: str, mistake: Mistake) -> None:
    expect(mistake, lambda: LAYERS[name](**{"input_size": 3, "hidden_size": 4, **mistake.arguments}))


@pytest.mark.parametrize("mistake", MAKING, ids=name_of)
@pytest.mark.parametrize("name", SINGLE)
def test_cell_that_cannot_be_is_refused(name: str, mistake: Mistake) -> None:
    expect(mistake, lambda: SINGLE[name](**{"input_size": 3, "hidden_size": 4, **mistake.arguments}))


@pytest.mark.parametrize("mistake", ACTIVATION, ids=name_of)
@pytest.mark.parametrize("kind", [RNN, RNNCell])
def test_rnn_that_cannot_be_is_refused(kind: Any, mistake: Mistake) -> None:
    expect(mistake, lambda: kind(**{"input_size": 3, "hidden_size": 4, **mistake.arguments}))


@pytest.mark.parametrize(("kind", "transition"), [(RNN, "stable-lstm"), (GRU, "stable-lstm"), (GRU, {"n": "stable-lstm"})])
def test_joint_constraint_outside_an_lstm_is_refused(kind: Any, transition: Any) -> None:
    with pytest.raises(ArgumentError, match="`transition`"):
        kind(3, 4, transition=transition)


X = torch.zeros(5, 2, 3)
H = torch.zeros(1, 2, 4)
RUNNING = [
    Mistake("too many features", {"input": X[..., :2]}, ShapeError, "`input` must have 3 features", RuntimeError),
    Mistake("one dimension", {"input": X[0, 0]}, ShapeError, "`input` must have 2 dimensions (unbatched) or 3", ValueError),
    Mistake("four dimensions", {"input": X.unsqueeze(0)}, ShapeError, "`input` must have 2 dimensions", ValueError),
    Mistake("a list", {"input": [[0.0] * 3]}, ArgumentTypeError, "`input` must be a tensor", TypeError),
    Mistake("nothing", {"input": None}, ArgumentTypeError, "`input` must be a tensor", TypeError),
    Mistake("float64 input", {"input": X.double()}, DtypeError, "`input` has dtype torch.float64", ValueError),
    Mistake("integer input", {"input": X.long()}, DtypeError, "`input` has dtype torch.int64", ValueError),
    Mistake("complex input", {"input": X.to(torch.complex64)}, DtypeError, "`input` has dtype torch.complex64", ValueError),
    Mistake("input elsewhere", {"input": X.to("meta")}, DeviceError, "`input` is on meta", RuntimeError),
    Mistake("few lengths", {"lengths": [5]}, ShapeError, "`lengths` must have shape (2,)", RuntimeError),
    Mistake("one length", {"lengths": 5}, ShapeError, "`lengths` must have shape (2,)", RuntimeError),
    Mistake("lengths in a matrix", {"lengths": [[5, 2]]}, ShapeError, "`lengths` must have shape (2,)", RuntimeError),
    Mistake("real lengths", {"lengths": [5.0, 2.0]}, ArgumentTypeError, "`lengths` must hold integers", TypeError),
    Mistake("true lengths", {"lengths": torch.tensor([True, False])}, ArgumentTypeError, "`lengths` must hold", TypeError),
    Mistake("lengths in words", {"lengths": ["a", "b"]}, ArgumentTypeError, "`lengths` must be integers", TypeError),
    Mistake("a length too long", {"lengths": [6, 2]}, ArgumentError, "`lengths` must lie between 0 and", ValueError),
    Mistake("a length below zero", {"lengths": [5, -1]}, ArgumentError, "`lengths` must lie between 0 and", ValueError),
    Mistake("unbatched lengths", {"input": X[:, 0], "lengths": [5]}, ArgumentError, "`lengths` needs a batch", ValueError),
    Mistake(
        "packed with lengths",
        {"input": pack_padded_sequence(X, [5, 2]), "lengths": [5, 2]},
        ArgumentError,
        "`lengths` cannot be given beside a PackedSequence",
        ValueError,
    ),
    Mistake(
        "packed features",
        {"input": pack_padded_sequence(X[..., :2], [5, 2])},
        ShapeError,
        "`input` must have 3 features",
        ValueError,
    ),
    Mistake("packed float64", {"input": pack_padded_sequence(X.double(), [5, 2])}, DtypeError, "`input` has dtype", ValueError),
]

STATES = [
    Mistake("a state for other rows", {"hx": torch.zeros(1, 3, 4)}, ShapeError, "`hx` must have shape (1, 2, 4)", RuntimeError),
    Mistake("a state of other units", {"hx": torch.zeros(1, 2, 5)}, ShapeError, "`hx` must have shape", RuntimeError),
    Mistake("a state for other layers", {"hx": torch.zeros(2, 2, 4)}, ShapeError, "`hx` must have shape", RuntimeError),
    Mistake("an unbatched state", {"hx": torch.zeros(1, 4)}, ShapeError, "`hx` must have shape", RuntimeError),
    Mistake("a batched state", {"input": X[:, 0], "hx": H}, ShapeError, "`hx` must have shape (1, 4)", RuntimeError),
    Mistake("a float64 state", {"hx": H.double()}, DtypeError, "`hx` has dtype torch.float64", ValueError),
    Mistake("a state elsewhere", {"hx": H.to("meta")}, DeviceError, "`hx` is on meta", RuntimeError),
    Mistake(
        "a state for a packed batch",
        {"input": pack_padded_sequence(X, [5, 2]), "hx": torch.zeros(1, 5, 4)},
        ShapeError,
        "`hx` must have shape (1, 2, 4)",
        RuntimeError,
    ),
]


@pytest.mark.parametrize("mistake", RUNNING, ids=name_of)
@pytest.mark.parametrize("name", LAYERS)
def test_bad_call_is_refused_and_changes_nothing(name: str, mistake: Mistake) -> None:
    layer = LAYERS[name](3, 4, transition="spectral")
    with assert_state_kept(layer):
        expect(mistake, lambda: layer(**{"input": X, **mistake.arguments}))
    layer(X)


@pytest.mark.parametrize("mistake", STATES, ids=name_of)
@pytest.mark.parametrize("name", LAYERS)
def test_bad_state_is_refused_and_changes_nothing(name: str, mistake: Mistake) -> None:
    layer = LAYERS[name](3, 4)
    given = {"input": X, **mistake.arguments}
    if name == "LSTM":
        given["hx"] = (given["hx"], given["hx"])
    with assert_state_kept(layer):
        expect(mistake, lambda: layer(**given))


@pytest.mark.parametrize("mistake", STATES, ids=name_of)
def test_bad_cell_state_is_refused_by_its_own_name(mistake: Mistake) -> None:
    layer, given = LSTM(3, 4), {"input": X, **mistake.arguments}
    good = torch.zeros(1, 4) if given["input"] is not X and isinstance(given["input"], torch.Tensor) else H
    given["hx"] = (good, given["hx"])
    expect(mistake._replace(says=mistake.says.replace("`hx`", "`cx`")), lambda: layer(**given))


@pytest.mark.parametrize("hx", [H, [H], (H, H, H), 3], ids=["tensor", "one", "three", "number"])
@pytest.mark.parametrize("kind", [LSTM, LSTMCell])
def test_lstm_without_a_pair_of_states_is_refused(kind: Any, hx: Any) -> None:
    module = kind(3, 4)
    with pytest.raises(ArgumentTypeError, match="`hx` must be a pair"):
        module(X if kind is LSTM else X[0], hx)


@pytest.mark.parametrize("hx", [(H, H), 3, [0.0]], ids=["pair", "number", "list"])
@pytest.mark.parametrize("kind", [RNN, GRU])
def test_state_that_is_no_tensor_is_refused(kind: Any, hx: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="`hx` must be a tensor"):
        kind(3, 4)(X, hx)


CELL_CALLS = [
    Mistake("few features", {"input": X[0, :, :2]}, ShapeError, "`input` must have 3 features", RuntimeError),
    Mistake("three dimensions", {"input": X}, ShapeError, "`input` must have 1 dimension (unbatched) or 2", ValueError),
    Mistake("a list", {"input": [0.0] * 3}, ArgumentTypeError, "`input` must be a tensor", TypeError),
    Mistake("float64 input", {"input": X[0].double()}, DtypeError, "`input` has dtype torch.float64", ValueError),
    Mistake("input elsewhere", {"input": X[0].to("meta")}, DeviceError, "`input` is on meta", RuntimeError),
    Mistake("a state for other rows", {"hx": torch.zeros(3, 4)}, ShapeError, "`hx` must have shape (2, 4)", RuntimeError),
    Mistake("a state of other units", {"hx": torch.zeros(2, 5)}, ShapeError, "`hx` must have shape (2, 4)", RuntimeError),
    Mistake("a float64 state", {"hx": H[0].double()}, DtypeError, "`hx` has dtype torch.float64", ValueError),
]


@pytest.mark.parametrize("mistake", CELL_CALLS, ids=name_of)
@pytest.mark.parametrize("name", SINGLE)
def test_bad_step_is_refused_and_changes_nothing(name: str, mistake: Mistake) -> None:
    cell, given = SINGLE[name](3, 4), {"input": X[0], **mistake.arguments}
    if name == "LSTMCell" and "hx" in given:
        given["hx"] = (given["hx"], given["hx"])
    with assert_state_kept(cell):
        expect(mistake, lambda: cell(**given))


def assigned(layer: nn.Module, weight: Any) -> Callable[[], None]:
    return lambda: setattr(layer, "weight_hh_l0", weight)


ASSIGNING = [
    (Mistake("a matrix outside", {}, ConstraintError, "violation 2", ValueError), SpectralBall(1.0), 3 * torch.eye(4)),
    (Mistake("NaN", {}, NotFiniteError, "NaN or infinity", ValueError), "spectral", torch.full((4, 4), torch.nan)),
    (Mistake("infinity", {}, NotFiniteError, "NaN or infinity", ValueError), "ball", torch.full((4, 4), torch.inf)),
    (Mistake("another shape", {}, ShapeError, "`weight_hh` must have shape (4, 4)", ValueError), "exp", torch.eye(3)),
    (Mistake("a list", {}, ArgumentTypeError, "`weight_hh` must be a tensor", TypeError), "exp", [[1.0]]),
    (Mistake("no inverse", {}, NotInvertibleError, "no right inverse", ValueError), Spectral(reflectors=1), torch.eye(4)),
]


@pytest.mark.parametrize(("mistake", "transition", "weight"), ASSIGNING, ids=name_of)
def test_bad_weight_is_refused_and_changes_nothing(mistake: Mistake, transition: Any, weight: Any) -> None:
    layer = RNN(3, 4, transition=transition)
    with assert_state_kept(layer):
        expect(mistake, assigned(layer, weight))


def test_loaded_weight_outside_the_set_is_refused_with_its_distance() -> None:
    layer = RNN(3, 4, transition=SpectralBall(0.5))
    state = {**layer.state_dict(), "transition_l0.h.raw0": torch.eye(4)}
    with assert_state_kept(layer), pytest.raises(ConstraintError, match=r"violation 0\.5"):
        layer.load_state_dict(state)


def test_error_never_prints_the_tensors_contents() -> None:
    secret = torch.full((4, 4), 123.456)
    with pytest.raises(ConstraintError) as caught:
        RNN(3, 4, transition="ornn").weight_hh_l0 = secret
    assert "123.456" not in str(caught.value)


@pytest.mark.parametrize("name", LAYERS)
def test_failed_run_leaves_the_layer_usable(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = LAYERS[name](3, 4, transition="spectral")
    expected = layer(X)[0]
    with monkeypatch.context() as patch, assert_state_kept(layer):

        def out_of_memory(*_: Any, **__: Any) -> None:
            raise MemoryError

        patch.setattr("steadyrnn.engines.cpu.engine.CPUKernel.family", out_of_memory)
        patch.setattr("steadyrnn.engines.cpu.engine.run_onednn", out_of_memory)
        with pytest.raises(MemoryError):
            layer(X)
    assert torch.equal(layer(X)[0], expected)


FLAGS = {
    "layers": ("batch_first", "bidirectional", "learn_initial_state", "recompute"),
    "cells": ("learn_initial_state",),
}
WITH_FLAG = [
    *((make, flag) for make in LAYERS.values() for flag in FLAGS["layers"]),
    *((make, flag) for make in SINGLE.values() for flag in FLAGS["cells"]),
    (Linear, "bias"),  # of layers and cells it has rules of its own, which are torch's
    *((make, "reset_after") for make in (GRU, GRUCell)),
]


@pytest.mark.parametrize("value", ["x", "", None, 2, 0.0, [], torch.tensor(True)], ids=repr)
@pytest.mark.parametrize(("make", "flag"), WITH_FLAG, ids=lambda x: getattr(x, "__name__", x))
def test_flag_of_another_kind_is_refused(make: Callable[..., nn.Module], flag: str, value: object) -> None:
    with pytest.raises((ArgumentTypeError, ArgumentError), match=f"`{flag}` must be True"):
        make(3, 4, **{flag: value})


@pytest.mark.parametrize("value", [0, 1])
@pytest.mark.parametrize(("make", "flag"), WITH_FLAG, ids=lambda x: getattr(x, "__name__", x))
def test_flag_may_be_a_number_as_in_torch(make: Callable[..., nn.Module], flag: str, value: int) -> None:
    module, plain = make(3, 4, **{flag: value}), make(3, 4, **{flag: bool(value)})
    assert repr(module) == repr(plain)
    assert list(module.state_dict()) == list(plain.state_dict())


@pytest.mark.parametrize("value", [numpy.bool_(True), numpy.bool_(False)], ids=str)
@pytest.mark.parametrize(
    ("make", "flag"),
    [*WITH_FLAG, *((make, "bias") for make in (*LAYERS.values(), *SINGLE.values()))],
    ids=lambda x: getattr(x, "__name__", x),
)
def test_flag_may_be_a_truth_value_of_numpy(make: Callable[..., nn.Module], flag: str, value: numpy.bool_) -> None:
    module, plain = make(3, 4, **{flag: value}), make(3, 4, **{flag: bool(value)})
    assert repr(module) == repr(plain)
    assert list(module.state_dict()) == list(plain.state_dict())
    assert type(getattr(module, flag, None)) is type(getattr(plain, flag, None))


@pytest.mark.parametrize("place", [0, None, "cpu"])
@pytest.mark.parametrize("name", LAYERS)
def test_what_follows_bidirectional_is_given_by_name(name: str, place: object) -> None:
    before = (3, 4, 1, *(["tanh"] if name == "RNN" else []), True, False, 0.0, False)
    LAYERS[name](*before)
    with pytest.raises(ArgumentTypeError, match="`proj_size`"):
        LAYERS[name](*before, place)


ALL = {**LAYERS, **SINGLE, "Linear": Linear}


@pytest.mark.parametrize("name", ALL)
def test_sparse_input_is_refused(name: str) -> None:
    x = torch.ones(2, 3) if name in SINGLE or name == "Linear" else torch.ones(2, 2, 3)
    for sparse in (x.to_sparse(), *([x.to_sparse_csr()] if x.dim() == 2 else [])):
        with pytest.raises(ArgumentTypeError, match=r"`input` must be a dense tensor.*to_dense"):
            ALL[name](3, 4)(sparse)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.uint8, torch.complex64], ids=str)
@pytest.mark.parametrize("name", ALL)
def test_input_that_is_not_floating_is_told_to_convert_itself(name: str, dtype: torch.dtype) -> None:
    shape = (2, 3) if name in SINGLE or name == "Linear" else (2, 2, 3)
    with pytest.raises(DtypeError, match=r"input\.to\(torch\.float32\)") as raised:
        ALL[name](3, 4)(torch.ones(shape, dtype=dtype))
    assert f".to({dtype})" not in str(raised.value)


@pytest.mark.parametrize("name", [*LAYERS, *SINGLE])
def test_sparse_state_is_refused(name: str) -> None:
    state = torch.zeros(2, 4) if name in SINGLE else torch.zeros(1, 2, 4)
    x, sparse = torch.ones(2, 3) if name in SINGLE else torch.ones(2, 2, 3), state.to_sparse()
    with pytest.raises(ArgumentTypeError, match="`hx` must be a dense tensor"):
        ALL[name](3, 4)(x, (sparse, state) if name.startswith("LSTM") else sparse)


@pytest.mark.parametrize("transition", ["free", "ornn", "ball"])
@pytest.mark.parametrize("name", ALL)
def test_sparse_or_integer_weight_is_refused(name: str, transition: str) -> None:
    module = ALL[name](4, 4, **{"weight" if name == "Linear" else "transition": transition})
    weight = "weight" if name == "Linear" else "weight_hh" if name in SINGLE else "weight_hh_l0"
    good = getattr(module, weight).detach()
    for bad, error in ((good.to_sparse(), ArgumentTypeError), (good.long(), DtypeError), (good.cfloat(), DtypeError)):
        value = nn.Parameter(bad, requires_grad=False) if transition == "free" else bad
        with assert_state_kept(module), pytest.raises(error, match=r"must be a dense tensor|must have a real floating dtype"):
            setattr(module, weight, value)


@pytest.mark.parametrize("name", LAYERS)
def test_long_series_in_the_place_of_the_batch_is_warned_of_once(name: str) -> None:
    layer, x = LAYERS[name](3, 4), torch.zeros(1, 50_000, 3)
    with pytest.warns(LayoutWarning, match=r"one step of 50000 rows.*batch_first=True"):
        layer(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer(x)


def test_calls_that_mean_one_step_are_not_warned_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RNN(3, 4)(torch.zeros(1, 1024, 3))
        RNN(3, 4)(torch.zeros(1, 50_000, 3), torch.zeros(1, 50_000, 4))
        RNN(3, 4)(torch.zeros(2, 50_000, 3))
        RNN(3, 4)(torch.zeros(1, 50_000, 3), lengths=torch.ones(50_000, dtype=torch.int64))
        RNN(3, 4, batch_first=True)(torch.zeros(1, 50_000, 3))
        RNN(3, 4, batch_first=True)(torch.zeros(50_000, 1, 3))
        RNN(3, 4)(torch.zeros(50_000, 3))
