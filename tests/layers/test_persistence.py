"""Copying, saving, loading and sharing layers, after a forward too."""

import copy
import io
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

import steadyrnn
from steadyrnn.constraints.registry import CONSTRAINTS, JOINT
from steadyrnn.layers.lstm import LSTM
from steadyrnn.layers.rnn import RNN
from tests.support.activations import Softsign
from tests.support.layers import KINDS, tensors_of

WIDTH, HIDDEN = 3, 6
TRANSITIONS = list(CONSTRAINTS)


def make(kind: str = "rnn-tanh", transition: Any = "spectral", **more: Any) -> nn.Module:
    return KINDS[kind](WIDTH, HIDDEN, transition=transition, **more)


def used(layer: nn.Module) -> nn.Module:
    """Return the layer after a forward and a backward."""
    layer(data())[0].sum().backward()
    return layer


def data() -> Tensor:
    return torch.randn(4, 2, WIDTH, generator=torch.Generator().manual_seed(1))


def saved_and_loaded(module: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def assert_alike(a: nn.Module, b: nn.Module) -> None:
    assert all(torch.equal(s, t) for s, t in zip(tensors_of(a(data())), tensors_of(b(data())), strict=True))


ways = pytest.mark.parametrize(
    "way",
    [copy.deepcopy, saved_and_loaded, lambda m: pickle.loads(pickle.dumps(m))],
    ids=["deepcopy", "torch.save", "pickle"],
)


@ways
@pytest.mark.parametrize("kind", KINDS)
def test_copy_after_a_forward_gives_the_same(kind: str, way: Any) -> None:
    layer = used(make(kind, num_layers=2, bidirectional=True, learn_initial_state=True))
    assert_alike(way(layer), layer)


@ways
@pytest.mark.parametrize("name", TRANSITIONS)
def test_copy_of_every_constraint_after_a_forward_gives_the_same(name: str, way: Any) -> None:
    layer = used(make(transition=name))
    assert_alike(way(layer), layer)


@ways
def test_copy_of_a_stable_lstm_after_a_forward_gives_the_same(way: Any) -> None:
    layer = used(LSTM(WIDTH, HIDDEN, transition=next(iter(JOINT))))
    assert_alike(way(layer), layer)


@ways
def test_copy_of_a_users_own_activation_gives_the_same(way: Any) -> None:
    layer = used(RNN(WIDTH, HIDDEN, nonlinearity=Softsign()))
    assert_alike(way(layer), layer)


@pytest.mark.parametrize("name", TRANSITIONS)
def test_copy_learns_by_itself(name: str) -> None:
    layer = used(make(transition=name))
    twin = copy.deepcopy(layer)
    before = [p.clone() for p in layer.parameters()]
    twin(data())[0].sum().backward()
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(1)
    assert all(torch.equal(a, b) for a, b in zip(before, layer.parameters(), strict=True))


@pytest.mark.parametrize("name", TRANSITIONS)
def test_state_dict_loads_strictly_into_a_fresh_layer(name: str) -> None:
    layer, fresh = make(transition=name), make(transition=name)
    result = fresh.load_state_dict(layer.state_dict(), strict=True)
    assert not result.missing_keys
    assert not result.unexpected_keys
    assert_alike(fresh, layer)


@pytest.mark.parametrize("kind", KINDS)
def test_state_dict_of_a_stack_loads_strictly(kind: str) -> None:
    options = {"num_layers": 2, "bidirectional": True, "learn_initial_state": True}
    layer, fresh = make(kind, **options), make(kind, **options)
    fresh.load_state_dict(layer.state_dict(), strict=True)
    assert_alike(fresh, layer)


def test_state_dict_has_the_documented_keys() -> None:
    keys = set(make("lstm", {"g": "spectral"}, bidirectional=True, learn_initial_state=True).state_dict())
    for end in ("_l0", "_l0_reverse"):
        assert {f"weight_ih{end}", f"bias_ih{end}", f"bias_hh{end}", f"initial_state{end}", f"initial_cell{end}"} <= keys
        assert {f"transition{end}.{gate}.raw0" for gate in "ifgo"} <= keys
        assert f"transition{end}.g.raw2" in keys
        assert f"weight_hh{end}" not in keys


def test_key_that_is_missing_is_named() -> None:
    layer = make()
    state = layer.state_dict()
    state.pop("transition_l0.h.raw0")
    with pytest.raises(RuntimeError, match=r"transition_l0\.h\.raw0"):
        layer.load_state_dict(state)


def test_free_state_dict_is_refused_by_a_constrained_layer_with_its_keys() -> None:
    with pytest.raises(RuntimeError, match="weight_hh_l0"):
        make().load_state_dict(make(transition="free").state_dict())


@pytest.mark.parametrize("kind", KINDS)
def test_functional_call_uses_the_weights_it_is_given(kind: str) -> None:
    layer, other = make(kind), make(kind)
    found = functional_call(layer, {**dict(other.named_parameters()), **dict(other.named_buffers())}, (data(),))
    assert all(torch.equal(a, b) for a, b in zip(tensors_of(found), tensors_of(other(data())), strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_layer_used_twice_gathers_both_gradients(kind: str) -> None:
    layer, x = make(kind).double(), data().double()
    wanted = [p for p in layer.parameters() if p.numel()]
    once = torch.autograd.grad(layer(x)[0].sum(), wanted)
    twice = torch.autograd.grad(layer(x)[0].sum() + layer(x)[0].sum(), wanted)
    for a, b in zip(twice, once, strict=True):
        torch.testing.assert_close(a, 2 * b, rtol=64 * torch.finfo(a.dtype).eps, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_that_autograd_made_is_kept_on_the_layer(kind: str) -> None:
    layer = used(make(kind))
    for module in layer.modules():
        held = [value for value in vars(module).values() if isinstance(value, Tensor)]
        assert all(value.is_leaf for value in held)


def test_weights_change_with_an_optimizer_step() -> None:
    layer = make()
    before = layer(data())[0].detach()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    layer(data())[0].sum().backward()
    optimizer.step()
    assert not torch.equal(layer(data())[0], before)


def test_double_and_back_keeps_the_buffers_dtype_with_the_weights() -> None:
    layer = make().double()
    assert layer(data().double())[0].dtype == torch.float64
    assert layer.float()(data())[0].dtype == torch.float32


@pytest.mark.parametrize("name", TRANSITIONS)
def test_layer_on_meta_gets_weights_later(name: str) -> None:
    source, layer = make(transition=name), make(transition=name, device="meta")
    assert all(p.is_meta for p in layer.parameters())
    layer.to_empty(device="cpu").load_state_dict(source.state_dict())
    assert_alike(layer, source)


@pytest.mark.parametrize("name", TRANSITIONS)
def test_layer_on_meta_draws_weights_later(name: str) -> None:
    layer = make(transition=name, device="meta").to_empty(device="cpu")
    layer.reset_parameters()
    assert layer(data())[0].isfinite().all()


@pytest.mark.parametrize("transition", ["free", "spectral"])
@pytest.mark.parametrize("kind", KINDS)
def test_layer_on_meta_gives_shapes(kind: str, transition: str) -> None:
    layer = make(kind, transition, num_layers=2, bidirectional=True, device="meta")
    output, _ = layer(torch.empty(4, 2, WIDTH, device="meta"))
    assert output.is_meta
    assert output.shape == (4, 2, 2 * HIDDEN)


def test_saved_layer_runs_in_another_process(tmp_path: Path) -> None:
    layer = used(RNN(WIDTH, HIDDEN, nonlinearity=Softsign(), transition="spectral"))
    torch.save(layer, tmp_path / "layer.pt")
    torch.save(layer(data())[0].detach(), tmp_path / "expected.pt")
    code = (
        "import sys, torch\n"
        "layer = torch.load(sys.argv[1] + '/layer.pt', weights_only=False)\n"
        "x = torch.randn(4, 2, 3, generator=torch.Generator().manual_seed(1))\n"
        "assert torch.equal(layer(x)[0], torch.load(sys.argv[1] + '/expected.pt'))\n"
    )
    roots = Path(steadyrnn.__file__).parents[1], Path(__file__).parents[2]  # of the package and of this test
    paths = {"PYTHONPATH": ":".join(map(str, roots)), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, env=paths, cwd=tmp_path)
