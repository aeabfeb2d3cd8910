"""MLP and ResNet: the formulas they state, the weights they constrain, dropout in training only."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import steadyrnn as sr
from steadyrnn.activations import ACTIVATIONS, LeakyReLU
from steadyrnn.constraints.free import Free
from steadyrnn.constraints.registry import CONSTRAINTS
from steadyrnn.constraints.slot import Slot
from steadyrnn.constraints.tolerance import membership_tolerance
from steadyrnn.errors import ArgumentError, ArgumentTypeError, DtypeError, ShapeError, SteadyError
from steadyrnn.models.mlp import MLP
from steadyrnn.models.resnet import ResNet
from steadyrnn.models.settings import ModelSettings
from steadyrnn.models.systems import build_model
from tests.models.copies import COPIES
from tests.support.errors import assert_equal_up_to_rounding
from tests.support.layers import Counting

MODELS = [MLP, ResNet]
SQUARE_WEIGHTS = {MLP: 3, ResNet: 6}  # of depth=3 and blocks=3
CONSTRAINED = [name for name, make in CONSTRAINTS.items() if not isinstance(make(), Free)]

Model = type[MLP] | type[ResNet]


def made(model: Model, **kwargs: Any) -> MLP | ResNet:
    return model(5, 4, 2, 3, **kwargs)


# The formulas.


def test_an_mlp_is_an_input_layer_depth_square_layers_and_a_readout() -> None:
    model, x = made(MLP, weight="spectral"), torch.randn(7, 5)
    h = model.input.linear(x).relu()
    for layer in model.hidden:
        h = (h @ layer.linear.weight.mT + layer.linear.bias).relu()
    assert_equal_up_to_rounding(model(x), model.readout(h), 28)


def test_a_resnet_adds_two_layers_to_the_identity() -> None:
    model, x = made(ResNet, weight="spectral"), torch.randn(7, 5)
    h = model.input.linear(x).relu()
    for block in model.hidden:
        change = (h @ block.first.linear.weight.mT + block.first.linear.bias).relu() @ block.second.weight.mT
        h = h + change + block.second.bias
    assert_equal_up_to_rounding(model(x), model.readout(h), 28)


def test_a_resnet_has_the_weights_of_an_mlp_of_twice_the_depth() -> None:
    models = ResNet(5, 4, 2, blocks=3), MLP(5, 4, 2, depth=6)
    first, second = (sorted(tuple(p.shape) for p in model.parameters()) for model in models)
    assert first == second


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("shape", [(5,), (0, 5), (7, 5), (2, 3, 5)])
def test_the_last_dimension_is_mapped(model: Model, shape: tuple[int, ...]) -> None:
    assert made(model, weight="spectral")(torch.randn(shape)).shape == (*shape[:-1], 2)


def test_a_gradient_crosses_fifty_orthogonal_layers_unchanged_in_length() -> None:
    model = MLP(4, 16, 1, depth=50, activation="abs", weight="ornn").double()
    states: list[Tensor] = []
    for layer in (model.input, model.hidden[-1]):
        layer.register_forward_hook(lambda module, args, output: states.append(output))
    output = model(torch.randn(4, dtype=torch.float64))
    first, last = (torch.linalg.vector_norm(g) for g in torch.autograd.grad(output.sum(), states))
    assert_equal_up_to_rounding(first, last, 50 * 16)


@pytest.mark.parametrize("blocks", [15, 25, 50])
@pytest.mark.parametrize("seed", range(3))
def test_a_deep_spectral_resnet_neither_loses_nor_inflates_a_gradient(blocks: int, seed: int) -> None:
    """A block is I + V D U with norms at most r, slopes at most 1: it stretches by a factor between 1 - r^2 and 1 + r^2."""
    radius = 0.2
    torch.manual_seed(seed)
    settings = ModelSettings("spectral-resnet", width=32, blocks=blocks, radius=radius)
    model = build_model(settings, SimpleNamespace(inputs=4, outputs=3, vocabulary=None, reads="row")).double()
    with torch.no_grad():  # the worst that training can do: every singular value on the border
        for slot in (module for module in model.hidden.modules() if isinstance(module, Slot)):
            slot.raw2.mul_(1e6)
    states: list[Tensor] = []
    for layer in (model.input, model.hidden[-1]):
        layer.register_forward_hook(lambda module, args, output: states.append(output))
    output = model(torch.randn(4, dtype=torch.float64))
    first, last = (float(torch.linalg.vector_norm(g)) for g in torch.autograd.grad(output.sum(), states, retain_graph=True))
    assert (1 - radius**2) ** blocks * (1 - 1e-9) <= first / last <= (1 + radius**2) ** blocks * (1 + 1e-9)
    offset = sum(_offset(block, radius) for block in model.hidden)
    before, after = (float(torch.linalg.vector_norm(state.detach())) for state in states)
    assert after <= (1 + radius**2) ** blocks * (before + offset) * (1 + 1e-9)
    gradients = torch.autograd.grad(output.sum(), list(model.parameters()))
    assert all(bool(g.isfinite().all()) for g in gradients)


def _offset(block: nn.Module, radius: float) -> float:
    """Return what the biases of a block can add to its value."""
    return float(radius * block.first.linear.bias.detach().norm() + block.second.bias.detach().norm())


@pytest.mark.parametrize("center", [0.0, 1.0])
def test_blocks_around_one_explode_and_blocks_around_zero_do_not(center: float) -> None:
    torch.manual_seed(0)
    interface = SimpleNamespace(inputs=4, outputs=3, vocabulary=None, reads="row")
    model = build_model(ModelSettings("spectral-resnet", width=32, blocks=50, center=center), interface)
    size = float(torch.linalg.vector_norm(model(torch.randn(4)).detach()))
    assert size < 10 if center == 0 else size > 1e6


# The constraint: on the square weights, each its own, once per forward.


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", CONSTRAINED)
def test_every_square_weight_is_in_the_set(model: Model, name: str) -> None:
    slots = [module for module in made(model, weight=name).double().hidden.modules() if isinstance(module, Slot)]
    assert len(slots) == SQUARE_WEIGHTS[model]
    for slot in slots:
        assert slot.constraint.violation(slot.weight()) <= membership_tolerance(slot.weight(), torch.float32)


@pytest.mark.parametrize("model", MODELS)
def test_one_constraint_leaves_the_input_layer_and_the_readout_free(model: Model) -> None:
    net = made(model, weight="spectral")
    assert isinstance(net.input.linear.weight, nn.Parameter)
    assert isinstance(net.readout.weight, nn.Parameter)


@pytest.mark.parametrize("model", MODELS)
def test_a_mapping_names_places(model: Model) -> None:
    net = made(model, weight={"input": "spectral", "readout": sr.Spectral(center=0.5, radius=0.0)})
    assert_equal_up_to_rounding(torch.linalg.svdvals(net.readout.weight), torch.full((2,), 0.5), 8)
    first = net.input.linear
    assert first.slot.constraint.violation(first.weight) <= membership_tolerance(first.weight)
    assert not any(isinstance(module, Slot) for module in net.hidden.modules())


@pytest.mark.parametrize("model", MODELS)
def test_a_constraint_is_a_template(model: Model) -> None:
    slots = [module for module in made(model, weight=sr.Spectral()).modules() if isinstance(module, Slot)]
    assert len({id(slot.constraint) for slot in slots}) == len(slots)
    assert not torch.equal(slots[0].weight(), slots[1].weight())


@pytest.mark.parametrize("model", MODELS)
def test_each_weight_is_evaluated_once_per_forward(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    net = made(model, weight=dict.fromkeys(("input", "hidden", "readout"), Counting()))
    monkeypatch.setattr(Counting, "count", 0)
    net(torch.randn(7, 5))
    assert Counting.count == SQUARE_WEIGHTS[model] + 2


# Activations.


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_is_taken_by_name(model: Model, name: str) -> None:
    net, x = made(model, activation=name, dtype=torch.float64), torch.randn(7, 5, dtype=torch.float64)
    before = net.input.linear(x)
    assert torch.equal(net.input(x), ACTIVATIONS[name]().value(before, net.input.activation))


@pytest.mark.parametrize("model", MODELS)
def test_an_activation_object_is_taken(model: Model) -> None:
    net, x = made(model, activation=LeakyReLU(0.3)), torch.randn(7, 5)
    assert torch.equal(net.input(x), nn.functional.leaky_relu(net.input.linear(x), 0.3))


@pytest.mark.parametrize("model", MODELS)
def test_modrelu_learns_its_shift_in_every_layer(model: Model) -> None:
    net = made(model, activation="modrelu")
    net(torch.randn(7, 5)).sum().backward()
    shifts = [p for name, p in net.named_parameters() if name.endswith("activation")]
    assert [tuple(shift.shape) for shift in shifts] == [(2,)] * 4
    assert all(shift.grad.abs().sum() > 0 for shift in shifts)


# Dropout.


@pytest.mark.parametrize("model", MODELS)
def test_dropout_is_at_work_in_training(model: Model) -> None:
    net, x = made(model, dropout=0.5), torch.randn(7, 5)
    assert not torch.equal(net(x), net(x))


@pytest.mark.parametrize("model", MODELS)
def test_dropout_is_off_in_evaluation(model: Model) -> None:
    torch.manual_seed(2)
    plain = made(model)
    torch.manual_seed(2)
    net, x = made(model, dropout=0.5).eval(), torch.randn(7, 5)
    assert torch.equal(net(x), plain(x))


def test_dropout_stands_behind_every_activation_of_an_mlp() -> None:
    net = made(MLP, dropout=1.0)
    assert torch.equal(net.input(torch.randn(7, 5)), torch.zeros(7, 4))
    assert all(torch.equal(layer(torch.randn(7, 4)), torch.zeros(7, 4)) for layer in net.hidden)


def test_dropout_leaves_the_identity_path_of_a_resnet_alone() -> None:
    net, h = made(ResNet, dropout=1.0), torch.randn(7, 4)
    assert all(torch.equal(block(h), h + block.second.bias) for block in net.hidden)


# Copying, saving, compiling, dtypes.


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize("model", MODELS)
def test_a_used_model_is_copied_and_saved_whole(model: Model, copied: Callable[[nn.Module], nn.Module]) -> None:
    net, x = made(model, weight="spectral", activation="modrelu"), torch.randn(7, 5)
    net(x).sum().backward()
    assert torch.equal(copied(net)(x), net(x))


@pytest.mark.parametrize("model", MODELS)
def test_compiling_gives_one_graph_with_the_same_values(model: Model) -> None:
    net, x = model(5, 4, 2, 1, weight="spectral"), torch.randn(7, 5)
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    assert_equal_up_to_rounding(compiled(x), net(x), 28)


@pytest.mark.parametrize("model", MODELS)
def test_autocast_gives_its_dtype(model: Model) -> None:
    net, x = made(model, weight="spectral"), torch.randn(7, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = net(x)
    assert value.dtype == torch.bfloat16
    exact = net(x).bfloat16()
    assert_equal_up_to_rounding(value, exact, SQUARE_WEIGHTS[model])


@pytest.mark.parametrize("model", MODELS)
def test_functional_call_uses_the_parameters_it_is_given(model: Model) -> None:
    first, second, x = made(model, weight="spectral"), made(model, weight="spectral"), torch.randn(7, 5)
    assert torch.equal(torch.func.functional_call(second, dict(first.state_dict()), (x,)), first(x))


@pytest.mark.parametrize("check", [torch.autograd.gradcheck, torch.autograd.gradgradcheck])
@pytest.mark.parametrize("model", MODELS)
def test_gradients_of_both_orders_are_exact(model: Model, check: Callable[..., bool]) -> None:
    net = model(2, 2, 1, 1, activation="tanh", weight="spectral", dtype=torch.float64)
    names = [name for name, _ in net.named_parameters()]
    x = torch.randn(2, 2, dtype=torch.float64, requires_grad=True)

    def function(x: Tensor, *values: Tensor) -> Tensor:
        return torch.func.functional_call(net, dict(zip(names, values, strict=True)), (x,))

    assert check(function, (x, *(p.detach().requires_grad_() for p in net.parameters())))


@pytest.mark.parametrize("model", MODELS)
def test_a_model_is_made_in_the_dtype_and_place_requested(model: Model) -> None:
    net = made(model, weight="spectral", activation="modrelu", dtype=torch.float64, device="meta")
    assert {(p.dtype, p.device.type) for p in net.parameters()} == {(torch.float64, "meta")}


# Refusals.

BAD_ARGUMENTS: list[tuple[dict[str, Any], type[SteadyError], str]] = [
    ({"in_features": 0}, ArgumentError, "`in_features`"),
    ({"width": 0}, ArgumentError, "`width`"),
    ({"width": 2.0}, ArgumentTypeError, "`width`"),
    ({"out_features": 0}, ArgumentError, "`out_features`"),
    ({"activation": "no such function"}, ArgumentError, "no such function"),
    ({"activation": 3}, ArgumentTypeError, "int"),
    ({"activation": "modrelu", "width": 3}, ArgumentError, "even"),
    ({"weight": "no such set"}, ArgumentError, "`weight`"),
    ({"weight": {"middle": "spectral"}}, ArgumentError, "'middle'"),
    ({"weight": {"input": "exp"}}, ShapeError, "square"),
    ({"weight": "stable-lstm"}, ArgumentError, "StableLSTM"),
    ({"dropout": 1.5}, ArgumentError, "`dropout`"),
    ({"dropout": "a"}, ArgumentTypeError, "`dropout`"),
]


@pytest.mark.parametrize(("changed", "error", "words"), BAD_ARGUMENTS)
@pytest.mark.parametrize("model", MODELS)
def test_a_bad_argument_is_refused(model: Model, changed: dict[str, Any], error: type[SteadyError], words: str) -> None:
    count = "depth" if model is MLP else "blocks"
    with pytest.raises(error, match=words):
        model(**{"in_features": 5, "width": 4, "out_features": 2, count: 3, **changed})


@pytest.mark.parametrize(("model", "name"), [(MLP, "depth"), (ResNet, "blocks")])
@pytest.mark.parametrize(("count", "error"), [(0, ArgumentError), (1.0, ArgumentTypeError)])
def test_a_bad_depth_is_refused_by_name(model: Model, name: str, count: Any, error: type[SteadyError]) -> None:
    with pytest.raises(error, match=f"`{name}`"):
        model(5, 4, 2, count)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("x", "error"), [(torch.zeros(7, 4), ShapeError), (torch.zeros(7, 5, dtype=torch.float64), DtypeError)]
)
def test_a_bad_input_is_refused(model: Model, x: Tensor, error: type[SteadyError]) -> None:
    with pytest.raises(error, match="`input`"):
        made(model)(x)
