"""What each option of a layer does."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune

import steadyrnn as sr
from steadyrnn.activations import ACTIVATIONS, LeakyReLU
from steadyrnn.errors import EngineError
from steadyrnn.layers.gru import GRU
from steadyrnn.layers.lstm import LSTM
from steadyrnn.layers.rnn import RNN
from tests.support.activations import Softsign, Swell
from tests.support.errors import assert_equal_up_to_rounding, distance, unit_roundoff
from tests.support.layers import KINDS, assert_explained, constrained, states_of, tensors_of, zero_states

STEPS, ROWS, WIDTH, HIDDEN = 5, 3, 3, 6


def make(kind: str, **more: Any) -> nn.Module:
    return KINDS[kind](WIDTH, HIDDEN, **{"dtype": torch.float64, **more})


def data(dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(STEPS, ROWS, WIDTH, dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("bias", [True, False, "single"])
@pytest.mark.parametrize("kind", KINDS)
def test_bias_has_the_vectors_requested(kind: str, bias: Any) -> None:
    layer = make(kind, num_layers=2, bias=bias)
    names = {name.split("_l")[0] for name, _ in layer.named_parameters() if name.startswith("bias")}
    assert names == {True: {"bias_ih", "bias_hh"}, False: set(), "single": {"bias_ih"}}[bias]
    assert len(layer.all_weights[0]) == 2 + len(names)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "gru"])
def test_single_bias_is_the_sum_of_two(kind: str) -> None:
    two, one, x = make(kind), make(kind, bias="single"), data()
    state = two.state_dict()
    state["bias_ih_l0"] = state["bias_ih_l0"] + state.pop("bias_hh_l0")
    one.load_state_dict(state)
    assert_equal_up_to_rounding(one(x)[0], two(x)[0])


@pytest.mark.parametrize("kind", KINDS)
def test_no_bias_is_a_bias_of_zero(kind: str) -> None:
    without, zero, x = make(kind, bias=False), make(kind), data()
    state = {**zero.state_dict(), **without.state_dict()}
    zero.load_state_dict({key: value * (not key.startswith("bias")) for key, value in state.items()})
    assert_equal_up_to_rounding(without(x)[0], zero(x)[0])


@pytest.mark.parametrize("kind", KINDS)
def test_learned_initial_state_is_used_and_learns(kind: str) -> None:
    layer, x = make(kind, num_layers=2, bidirectional=True, learn_initial_state=True), data()
    names = [name for name, _ in layer.named_parameters() if name.startswith("initial_")]
    with torch.no_grad():
        for name in names:
            getattr(layer, name).normal_()
    ends = ("_l0", "_l0_reverse", "_l1", "_l1_reverse")
    kinds = ("initial_state", "initial_cell")[: len(names) // 4]
    hx = tuple(torch.stack([getattr(layer, k + e) for e in ends]).unsqueeze(1).expand(-1, ROWS, -1) for k in kinds)
    expected = layer(x, hx if len(hx) == 2 else hx[0])[0]
    output, _ = layer(x)
    assert torch.equal(output, expected)
    output.sum().backward()
    assert all(getattr(layer, name).grad.abs().sum() > 0 for name in names)


@pytest.mark.parametrize("kind", KINDS)
def test_learned_initial_state_is_unused_when_one_is_given(kind: str) -> None:
    layer = make(kind, learn_initial_state=True)
    layer(data(), zero_states(layer, ROWS))[0].sum().backward()
    assert all(p.grad is None for name, p in layer.named_parameters() if name.startswith("initial_"))


@pytest.mark.parametrize("kind", KINDS)
def test_learned_initial_state_starts_at_zero(kind: str) -> None:
    layer = make(kind, learn_initial_state=True)
    x = data()
    assert torch.equal(layer(x)[0], layer(x, zero_states(layer, ROWS))[0])


@pytest.mark.parametrize("lengths", [None, [5, 0, 2]], ids=["full", "ragged"])
@pytest.mark.parametrize("kind", KINDS)
def test_recompute_changes_nothing_but_memory(kind: str, lengths: list[int] | None) -> None:
    plain, x = make(kind, num_layers=2, bidirectional=True), data().requires_grad_()
    frugal = make(kind, num_layers=2, bidirectional=True, recompute=True)
    frugal.load_state_dict(plain.state_dict())
    found = []
    for layer in (frugal, plain):
        result = tensors_of(layer(x, lengths=lengths))
        total = sum(t.square().sum() for t in result)
        found.append((*result, *torch.autograd.grad(total, [x, *layer.parameters()])))
    for a, b in zip(*found, strict=True):
        assert_equal_up_to_rounding(a, b, operations=STEPS)


@pytest.mark.parametrize("engine", ["auto", "cpu", "reference"])
@pytest.mark.parametrize("kind", KINDS)
def test_engines_by_name_agree(kind: str, engine: str) -> None:
    layer, plain, x = make(kind, engine=engine), make(kind, engine="reference"), data()
    plain.load_state_dict(layer.state_dict())
    assert_equal_up_to_rounding(layer(x)[0], plain(x)[0])


@pytest.mark.parametrize("kind", KINDS)
def test_explain_says_what_would_run_and_what_ran(kind: str) -> None:
    assert_explained(make(kind), data(), "cpu: first choice on cpu")


def test_explain_says_that_a_name_was_requested() -> None:
    assert_explained(RNN(WIDTH, HIDDEN, engine="reference"), data(torch.float32), "reference: requested by name")


def test_explain_says_why_the_reference_ran() -> None:
    layer = make("gru")
    torch.func.jvp(lambda t: layer(t)[0], (data(),), (data(),))
    assert "forward-mode AD, a torch.func transform" in layer.explain()


def test_engine_that_is_not_here_is_refused_when_it_should_run() -> None:
    layer = RNN(WIDTH, HIDDEN, engine="cudnn")
    with pytest.raises(EngineError, match="cudnn"):
        layer(data(torch.float32))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_runs_in_every_engine(name: str) -> None:
    layer, x = RNN(WIDTH, HIDDEN, nonlinearity=name, dtype=torch.float64), data().requires_grad_()
    plain = RNN(WIDTH, HIDDEN, nonlinearity=name, dtype=torch.float64, engine="reference")
    plain.load_state_dict(layer.state_dict())
    grads = [torch.autograd.grad(module(x)[0].square().sum(), [x, *module.parameters()]) for module in (layer, plain)]
    for a, b in zip(*grads, strict=True):
        assert_equal_up_to_rounding(a, b, operations=STEPS)


@pytest.mark.parametrize("activation", [Softsign(), Swell(0.25), LeakyReLU(0.3)], ids=lambda a: a.name)
@pytest.mark.parametrize("recompute", [False, True])
def test_users_own_activation_runs_in_every_engine(activation: Any, recompute: bool) -> None:
    layer = RNN(WIDTH, HIDDEN, nonlinearity=activation, dtype=torch.float64, recompute=recompute)
    plain = RNN(WIDTH, HIDDEN, nonlinearity=activation, dtype=torch.float64, engine="reference")
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()
    plain.load_state_dict(layer.state_dict())
    x = data().requires_grad_()
    grads = [torch.autograd.grad(module(x)[0].square().sum(), [x, *module.parameters()]) for module in (layer, plain)]
    for a, b in zip(*grads, strict=True):
        assert_equal_up_to_rounding(a, b, operations=STEPS)


def test_modrelu_has_one_number_a_pair() -> None:
    layer = RNN(WIDTH, HIDDEN, 2, "modrelu", bidirectional=True, transition="unitary")
    assert layer.activation_l0.shape == layer.activation_l1_reverse.shape == (HIDDEN // 2,)
    layer(data(torch.float32))[0].sum().backward()
    assert layer.activation_l1.grad is not None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_half_precision_layer_is_as_exact_as_its_reference(kind: str, dtype: torch.dtype) -> None:
    layer, plain = make(kind, transition="spectral").to(dtype), make(kind, transition="spectral", engine="reference").to(dtype)
    plain.load_state_dict(layer.state_dict())
    x = data(dtype)
    with torch.no_grad():
        truth = plain.double()(x.double())[0]
        plain.to(dtype)
        same, fast = plain(x)[0], layer(x)[0]
    assert fast.dtype == dtype
    # the weight is computed in float32 and rounded: that rounding is no engine's error, so it is allowed once
    assert distance(fast, truth) <= 2 * max(distance(same, truth), 16 * unit_roundoff(dtype))


@pytest.mark.parametrize("name", constrained())
def test_half_precision_layer_learns_with_every_constraint(name: str) -> None:
    layer = RNN(WIDTH, HIDDEN, transition=name).bfloat16()
    layer(data(torch.bfloat16))[0].sum().backward()
    assert all(p.grad is None or p.grad.dtype == torch.bfloat16 for p in layer.parameters())
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for n, p in layer.named_parameters() if n.startswith("transition"))


@pytest.mark.parametrize("kind", KINDS)
def test_autocast_computes_in_bfloat16_and_learns_in_float32(kind: str) -> None:
    layer, x = make(kind, dtype=torch.float32, transition="spectral"), data(torch.float32)
    full = layer(x)[0].detach()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, state = layer(x)
    assert output.dtype == torch.bfloat16
    assert all(s.dtype == torch.bfloat16 for s in states_of(state))
    output.float().sum().backward()
    assert all(p.grad is None or p.grad.dtype == torch.float32 for p in layer.parameters())
    half = KINDS[kind](WIDTH, HIDDEN, transition="free").to(torch.bfloat16)
    weights = {name: value for name, value in layer.state_dict().items() if not name.startswith("transition")}
    half.load_state_dict({**weights, "weight_hh_l0": layer.weight_hh_l0.detach()})
    assert distance(output, full) <= 2 * max(distance(half(x.bfloat16())[0], full), 16 * unit_roundoff(torch.bfloat16))


@pytest.mark.parametrize("forward_too", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_backward_under_autocast_is_the_one_outside(kind: str, forward_too: bool) -> None:
    layer, x = make(kind, dtype=torch.float32), data(torch.float32)
    found = []
    for under in (True, False):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=forward_too):
            total = layer(x)[0].float().square().sum()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=under):
            found.append(torch.autograd.grad(total, list(layer.parameters())))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("name", constrained())
def test_backward_under_autocast_reaches_every_constraint(name: str) -> None:
    layer, x = RNN(WIDTH, HIDDEN, transition=name), data(torch.float32)
    found, wanted = [], [p for p in layer.parameters() if p.numel()]
    for under in (True, False):
        total = layer(x)[0].square().sum()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=under):
            found.append(torch.autograd.grad(total, wanted, allow_unused=True))
    for a, b in zip(*found, strict=True):  # torch itself casts the adjoints of plain products there
        assert b is None or distance(a, b) <= 32 * unit_roundoff(torch.bfloat16)


def test_second_derivative_under_autocast_is_the_one_outside() -> None:
    layer, x = make("gru", dtype=torch.float32), data(torch.float32).requires_grad_()
    found = []
    for under in (True, False):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=under):
            with torch.autocast("cpu", enabled=False):
                total = layer(x)[0].square().sum()
            found.append(torch.autograd.grad(total, x, create_graph=True)[0].detach())
    assert torch.equal(*found)


def test_autocast_accepts_a_state_of_either_dtype() -> None:
    layer, x = GRU(WIDTH, HIDDEN), data(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _, state = layer(x)
        first = layer(x, state)[0]
        second = layer(x, state.float())[0]
    assert torch.equal(first, second)


def test_autocast_leaves_a_float64_layer_alone() -> None:
    layer, x = make("lstm"), data()
    expected = layer(x)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(layer(x)[0], expected)


@pytest.mark.parametrize("kind", KINDS)
def test_frozen_parameters_get_no_gradient(kind: str) -> None:
    layer = make(kind, transition="spectral")
    layer.weight_ih_l0.requires_grad_(False)
    for parameter in layer.transition_l0.parameters():
        parameter.requires_grad_(False)
    layer(data())[0].sum().backward()
    assert layer.weight_ih_l0.grad is None
    assert all(p.grad is None for p in layer.transition_l0.parameters())
    assert layer.bias_ih_l0.grad is not None


@pytest.mark.parametrize("kind", KINDS)
def test_frozen_layer_still_gives_the_inputs_gradient(kind: str) -> None:
    layer, x = make(kind).requires_grad_(False), data().requires_grad_()
    layer(x)[0].sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("kind", KINDS)
def test_inference_mode_gives_the_same_values_and_leaves_the_layer_usable(kind: str) -> None:
    layer, x = make(kind, num_layers=2, dtype=torch.float32), data(torch.float32)
    expected = layer(x)[0].detach()
    with torch.inference_mode():
        found = layer(x)[0]
    assert_equal_up_to_rounding(found.clone(), expected)
    layer(x)[0].sum().backward()
    with torch.no_grad():
        assert_equal_up_to_rounding(layer(x)[0], expected)


class Doubled(nn.Module):
    def forward(self, tensor: Tensor) -> Tensor:
        return 2 * tensor


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_that_torch_parametrizes_is_used(kind: str) -> None:
    layer, x = make(kind), data()
    twice = make(kind)
    twice.load_state_dict({name: 2 * tensor for name, tensor in layer.state_dict().items()})
    for name in [name for name, _ in layer.named_parameters()]:
        parametrize.register_parametrization(layer, name, Doubled())
    assert torch.equal(layer(x)[0], twice(x)[0])


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_that_torch_prunes_is_used(kind: str) -> None:
    layer, x = make(kind), data()
    expected = layer(x)[0]
    for name in [name for name, _ in layer.named_parameters()]:
        prune.identity(layer, name)
    assert torch.equal(layer(x)[0], expected)


def test_dropout_of_one_silences_the_layer_above() -> None:
    layer = RNN(WIDTH, HIDDEN, 2, dropout=1.0, bias=False)
    assert (layer(data(torch.float32))[0] == 0).all()


def test_dropout_leaves_the_last_layers_output_alone() -> None:
    layer = RNN(WIDTH, HIDDEN, 2, dropout=0.9)
    assert (layer(data(torch.float32))[0] != 0).all()


@pytest.mark.parametrize("layer", [RNN, GRU, LSTM])
def test_dropout_with_one_layer_warns_as_torch_does(layer: Any) -> None:
    with pytest.warns(UserWarning, match="dropout"):
        layer(WIDTH, HIDDEN, dropout=0.5)


@pytest.mark.parametrize("kind", KINDS)
def test_representation_names_what_was_requested(kind: str) -> None:
    text = repr(make(kind, num_layers=2, bidirectional=True, transition="spectral"))
    assert f"{WIDTH}, {HIDDEN}, num_layers=2, bidirectional=True" in text
    assert "Spectral" in text


def test_layer_runs_inside_a_container() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = LSTM(WIDTH, HIDDEN, batch_first=True, transition="spectral")
            self.head = nn.Linear(HIDDEN, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.rnn(x)[0][:, -1])

    model = Model()
    model(torch.randn(ROWS, STEPS, WIDTH)).sum().backward()
    assert all(p.grad is not None for p in model.parameters() if p.numel())


@pytest.mark.parametrize("kind", KINDS)
def test_same_seed_gives_the_same_layer_and_the_same_run(kind: str) -> None:
    found = []
    for _ in range(2):
        torch.manual_seed(4)
        layer = make(kind, num_layers=2, dropout=0.5, transition="spectral")
        found.append(layer(data())[0])
    assert torch.equal(*found)


@pytest.mark.parametrize("kind", ["RNNCell", "GRUCell", "LSTMCell"])
def test_a_cell_starts_from_its_learned_state_unless_given_one(kind: str) -> None:
    cell = getattr(sr, kind)(3, 4, learn_initial_state=True)
    learned = [parameter for name, parameter in cell.named_parameters() if name.startswith("initial_")]
    with torch.no_grad():
        for parameter in learned:
            parameter.normal_()
    x = torch.randn(2, 3)
    given = tuple(parameter.expand(2, 4) for parameter in learned)
    ours, theirs = cell(x), cell(x, given if kind == "LSTMCell" else given[0])
    for a, b in zip(*(out if isinstance(out, tuple) else (out,) for out in (ours, theirs)), strict=True):
        assert torch.equal(a, b)
    (ours[0] if isinstance(ours, tuple) else ours).sum().backward()
    assert all(parameter.grad is not None for parameter in learned)


@pytest.mark.parametrize("bias", [0, 1, None, False, True], ids=str)
@pytest.mark.parametrize("kind", ["RNNCell", "GRUCell", "LSTMCell"])
def test_a_cell_takes_what_torch_takes_for_yes_and_no(kind: str, bias: Any) -> None:
    ours, torchs = (getattr(package, kind)(WIDTH, HIDDEN, bias=bias) for package in (sr, torch.nn))
    assert [name for name, _ in ours.named_parameters()] == [name for name, _ in torchs.named_parameters()]
    ours.load_state_dict(torchs.state_dict())
    x = torch.randn(2, WIDTH)
    found, expected = (torch.stack(list(states_of(cell(x)))) for cell in (ours, torchs))
    assert_equal_up_to_rounding(found, expected, operations=4)
