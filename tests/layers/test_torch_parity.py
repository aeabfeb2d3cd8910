"""Free layers against torch's: the same first weights, values, final states and gradients, and each other's state dicts."""

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from steadyrnn.layers.cells import GRUCell, LSTMCell, RNNCell
from tests.support.errors import assert_equal_up_to_rounding
from tests.support.layers import PAIRS, tensors_of, zero_states

LAYOUTS = list(product((1, 3), (False, True), (False, True)))
FORMS = ("padded", "packed", "packed unsorted", "unbatched")
STEPS, ROWS, WIDTH, HIDDEN = 5, 4, 3, 6


def pair(
    name: str, layers: int = 1, bidirectional: bool = False, batch_first: bool = False, **more: Any
) -> tuple[nn.Module, nn.Module]:
    """Return torch's layer and ours with the same weights, in float64."""
    theirs, ours, arguments = PAIRS[name]
    options = {"bidirectional": bidirectional, "batch_first": batch_first, "dtype": torch.float64, **arguments, **more}
    expected, layer = theirs(WIDTH, HIDDEN, layers, **options), ours(WIDTH, HIDDEN, layers, **options)
    layer.load_state_dict(expected.state_dict())
    return expected, layer


def data(form: str, batch_first: bool) -> tuple[Any, Tensor]:
    """Return an input in a form, and the tensor whose gradient it takes."""
    x = torch.randn(STEPS, WIDTH) if form == "unbatched" else torch.randn(STEPS, ROWS, WIDTH)
    x = (x.transpose(0, 1) if batch_first and form != "unbatched" else x).double().requires_grad_()
    if not form.startswith("packed"):
        return x, x
    lengths = [2, 5, 1, 4] if form == "packed unsorted" else [5, 4, 2, 1]
    return pack_padded_sequence(x, lengths, batch_first, enforce_sorted=form == "packed"), x


def given_states(layer: nn.Module, form: str) -> Any:
    zero = zero_states(layer, ROWS)
    drawn = tuple(torch.randn_like(s) for s in (zero if isinstance(zero, tuple) else (zero,)))
    drawn = tuple(s[:, 0] for s in drawn) if form == "unbatched" else drawn
    return drawn if isinstance(zero, tuple) else drawn[0]


@pytest.mark.parametrize("with_state", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("name", PAIRS)
def test_values_and_gradients_are_torchs(name: str, layout: tuple[int, bool, bool], form: str, with_state: bool) -> None:
    expected, layer = pair(name, *layout)
    given, x = data(form, layout[2])
    hx = given_states(layer, form) if with_state else None
    theirs, ours = tensors_of(expected(given, hx)), tensors_of(layer(given, hx))
    for a, b in zip(ours, theirs, strict=True):
        assert_equal_up_to_rounding(a, b)
    cotangents = [torch.randn_like(t) for t in theirs]
    grads = torch.autograd.grad(ours, [x, *layer.parameters()], cotangents, retain_graph=True)  # packing is shared
    for a, b in zip(grads, torch.autograd.grad(theirs, [x, *expected.parameters()], cotangents), strict=True):
        assert_equal_up_to_rounding(a, b, operations=STEPS * layout[0])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", PAIRS)
def test_same_seed_gives_torchs_first_weights(name: str, bias: bool) -> None:
    theirs, ours, arguments = PAIRS[name]
    made = []
    for kind in (theirs, ours):
        torch.manual_seed(3)
        made.append(kind(WIDTH, HIDDEN, 2, bidirectional=True, bias=bias, **arguments).state_dict())
    assert list(made[0]) == list(made[1])
    assert all(torch.equal(made[0][key], made[1][key]) for key in made[0])


@pytest.mark.parametrize("name", PAIRS)
def test_reset_parameters_draws_as_torch_does(name: str) -> None:
    expected, layer = pair(name, 2)
    for module in (expected, layer):
        torch.manual_seed(5)
        module.reset_parameters()
    assert all(torch.equal(a, b) for a, b in zip(layer.parameters(), expected.parameters(), strict=True))


@pytest.mark.parametrize("name", PAIRS)
def test_state_dict_loads_into_torchs_layer(name: str) -> None:
    expected, layer = pair(name, 2, True)
    layer.reset_parameters()
    expected.load_state_dict(layer.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(layer.parameters(), expected.parameters(), strict=True))


@pytest.mark.parametrize("name", PAIRS)
def test_positional_arguments_are_torchs(name: str) -> None:
    theirs, ours, arguments = PAIRS[name]
    kind = () if "rnn" not in name else (arguments.get("nonlinearity", "tanh"),)
    given, named = (WIDTH, HIDDEN, 2, *kind, False, True, 0.25, True), {"device": "cpu", "dtype": torch.float64}
    expected, layer = theirs(*given, **named), ours(*given, **named)
    names = ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional")
    assert all(getattr(layer, n) == getattr(expected, n) for n in names)
    assert [p.shape for p in layer.parameters()] == [p.shape for p in expected.parameters()]


@pytest.mark.parametrize("name", PAIRS)
def test_all_weights_are_torchs(name: str) -> None:
    expected, layer = pair(name, 2, True)
    assert [[w.shape for w in ws] for ws in layer.all_weights] == [[w.shape for w in ws] for ws in expected.all_weights]


@pytest.mark.parametrize("name", PAIRS)
def test_flatten_parameters_is_there_and_changes_nothing(name: str) -> None:
    _, layer = pair(name)
    before = [p.clone() for p in layer.parameters()]
    assert layer.flatten_parameters() is None
    assert all(torch.equal(a, b) for a, b in zip(before, layer.parameters(), strict=True))


@pytest.mark.parametrize("name", PAIRS)
def test_dropout_between_layers_is_torchs(name: str) -> None:
    expected, layer = pair(name, 3, dropout=0.5)
    x, found = torch.randn(STEPS, ROWS, WIDTH, dtype=torch.float64), []
    for module in (expected, layer):
        torch.manual_seed(9)
        found.append(module(x)[0])
    assert_equal_up_to_rounding(found[1], found[0])


@pytest.mark.parametrize("name", PAIRS)
def test_dropout_is_off_in_evaluation(name: str) -> None:
    _, layer = pair(name, 2, dropout=0.5)
    x = torch.randn(STEPS, ROWS, WIDTH, dtype=torch.float64)
    layer.eval()
    assert torch.equal(layer(x)[0], layer(x)[0])


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("name", PAIRS)
def test_batch_of_none_gives_what_torch_gives(name: str, batch_first: bool) -> None:
    expected, layer = pair(name, 2, True, batch_first)
    x = torch.randn(STEPS, 0, WIDTH, dtype=torch.float64)
    x = x.transpose(0, 1) if batch_first else x
    for ours, theirs in zip(tensors_of(layer(x)), tensors_of(expected(x)), strict=True):
        assert ours.shape == theirs.shape


@pytest.mark.parametrize("name", PAIRS)
def test_trained_side_by_side_they_stay_together(name: str) -> None:
    expected, layer = pair(name, 2)
    x, losses = torch.randn(STEPS, ROWS, WIDTH, dtype=torch.float64), []
    for module in (expected, layer):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            loss = module(x)[0].square().mean()
            loss.backward()
            optimizer.step()
        losses.append(loss.detach())
    assert_equal_up_to_rounding(losses[1], losses[0], operations=5 * STEPS)


def cell_pairs() -> dict[str, tuple[nn.Module, nn.Module]]:
    sizes, dtype = (WIDTH, HIDDEN), torch.float64
    made = {
        "rnn-tanh": (torch.nn.RNNCell(*sizes, dtype=dtype), RNNCell(*sizes, dtype=dtype)),
        "rnn-relu": (torch.nn.RNNCell(*sizes, True, "relu", None, dtype), RNNCell(*sizes, True, "relu", None, dtype)),
        "gru": (torch.nn.GRUCell(*sizes, dtype=dtype), GRUCell(*sizes, dtype=dtype)),
        "lstm": (torch.nn.LSTMCell(*sizes, dtype=dtype), LSTMCell(*sizes, dtype=dtype)),
    }
    for theirs, ours in made.values():
        ours.load_state_dict(theirs.state_dict())
    return made


@pytest.mark.parametrize("rows", [None, 0, 3])
@pytest.mark.parametrize("with_state", [False, True])
@pytest.mark.parametrize("name", ["rnn-tanh", "rnn-relu", "gru", "lstm"])
def test_single_steps_are_torchs(name: str, with_state: bool, rows: int | None) -> None:
    theirs, ours = cell_pairs()[name]
    lead = () if rows is None else (rows,)
    x = torch.randn(*lead, WIDTH, dtype=torch.float64, requires_grad=True)
    state = torch.randn(2, *lead, HIDDEN, dtype=torch.float64)
    hx = None if not with_state else (state[0], state[1]) if name == "lstm" else state[0]
    expected, found = theirs(x, hx), ours(x, hx)
    expected, found = (r if isinstance(r, tuple) else (r,) for r in (expected, found))
    for a, b in zip(found, expected, strict=True):
        assert_equal_up_to_rounding(a, b)
    grads = [torch.autograd.grad(sum(t.sum() for t in r), [x, *m.parameters()]) for r, m in ((found, ours), (expected, theirs))]
    for a, b in zip(*grads, strict=True):
        assert_equal_up_to_rounding(a, b, operations=4)
