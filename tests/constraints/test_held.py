"""Tools that put another tensor in the place of a weight: refused by name where a constraint computes or keeps it."""

import copy
import io
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, prune

from steadyrnn.constraints.attach import constrain
from steadyrnn.constraints.optimizer import attach_projection
from steadyrnn.errors import WeightError
from steadyrnn.layers.cells import LSTMCell, RNNCell
from steadyrnn.layers.gru import GRU
from steadyrnn.layers.linear import Linear
from steadyrnn.layers.lstm import LSTM
from steadyrnn.layers.rnn import RNN
from tests.constraints.cases import CASES, PROJECTIONS, RECENTRED

SIZE = 6


class Doubled(nn.Module):
    """Twice a tensor."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


TOOLS: dict[str, Callable[[nn.Module, str], object]] = {
    "l1_unstructured": lambda module, name: prune.l1_unstructured(module, name, amount=0.5),
    "random_unstructured": lambda module, name: prune.random_unstructured(module, name, amount=0.5),
    "identity": prune.identity,
    "custom_from_mask": lambda module, name: prune.custom_from_mask(module, name, torch.ones_like(getattr(module, name))),
    "global_unstructured": lambda module, name: prune.global_unstructured(
        [(module, name)], pruning_method=prune.L1Unstructured, amount=0.5
    ),
    "weight_norm": lambda module, name: nn.utils.weight_norm(module, name, dim=None),
    "spectral_norm": lambda module, name: nn.utils.spectral_norm(module, name),
    "parametrize": lambda module, name: parametrize.register_parametrization(module, name, Doubled()),
    "parametrizations.weight_norm": lambda module, name: parametrizations.weight_norm(module, name, dim=None),
    "delattr": delattr,
}

JOINT = [f"{name}_l0{way}" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh") for way in ("", "_reverse")]


def assert_refused(
    model: nn.Module, module: nn.Module, name: str, tool: str, error: type[Exception] | tuple[type[Exception], ...]
) -> None:
    """A tool is refused, names the weight, and leaves the model as it was."""
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    kinds, hooks = [type(m) for m in model.modules()], [len(m._forward_pre_hooks) for m in model.modules()]
    parameters = [*model.parameters()]
    # global pruning takes `view(-1)` of a weight first, which torch refuses for one that is not contiguous
    with pytest.raises(RuntimeError if tool == "global_unstructured" else error, match=f"{name}|view size"):
        TOOLS[tool](module, name)
    assert list(before) == list(model.state_dict())
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())
    assert kinds == [type(m) for m in model.modules()]
    assert hooks == [len(m._forward_pre_hooks) for m in model.modules()]
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("name", JOINT)
def test_a_jointly_constrained_weight_is_held(name: str, tool: str) -> None:
    layer = LSTM(3, SIZE, bidirectional=True, transition="stable-lstm")
    assert_refused(layer, layer, name, tool, WeightError)


# torch itself refuses to parametrize or delete what is no parameter, and names it
OF_TORCH = (WeightError, ValueError, AttributeError)
CONSTRAINED = [name for name in CASES if name not in ("free", "irnn")]


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("name", CONSTRAINED)
def test_a_computed_weight_is_held(name: str, tool: str) -> None:
    for model, weight in (
        (RNN(3, SIZE, transition=CASES[name]()), "weight_hh_l0"),
        (GRU(3, SIZE, transition=CASES[name]()), "weight_hh_l0"),
        (RNNCell(3, SIZE, transition=CASES[name]()), "weight_hh"),
        (Linear(SIZE, SIZE, weight=CASES[name]()), "weight"),
    ):
        error = OF_TORCH if tool in ("parametrize", "parametrizations.weight_norm", "delattr") else WeightError
        assert_refused(model, model, weight, tool, error)


# legacy spectral norm takes matrices only
@pytest.mark.parametrize("tool", [tool for tool in TOOLS if tool != "spectral_norm"])
@pytest.mark.parametrize("name", CONSTRAINED)
def test_every_raw_tensor_is_held(name: str, tool: str) -> None:
    layer = RNN(3, SIZE, transition=CASES[name]())
    slot = layer.transition_l0.h
    for raw, tensor in slot.named_parameters(recurse=False):
        if tensor.numel():
            assert_refused(layer, slot, raw, tool, WeightError)


@pytest.mark.parametrize("copied", ["deepcopy", "pickled"])
def test_a_copied_layer_holds_its_weights_too(copied: str) -> None:
    layer = LSTMCell(3, SIZE, transition="stable-lstm")
    if copied == "deepcopy":
        twin = copy.deepcopy(layer)
    else:
        file = io.BytesIO()
        torch.save(layer, file)
        file.seek(0)
        twin = torch.load(file, weights_only=False)
    assert_refused(twin, twin, "weight_hh", "weight_norm", WeightError)
    twin.load_state_dict(layer.state_dict())


@pytest.mark.parametrize("tool", [tool for tool in TOOLS if tool != "delattr"])
@pytest.mark.parametrize("name", ["weight_ih_l0", "weight_hh_l0"])
def test_free_layers_take_every_tool(name: str, tool: str) -> None:
    layer = GRU(3, SIZE)
    TOOLS[tool](layer, name)
    for _ in range(2):
        layer(torch.randn(4, 2, 3))[0].sum().backward()
    assert any(tensor.grad is not None for key, tensor in layer.named_parameters() if name in key)


def test_the_input_weight_of_a_constrained_layer_can_be_pruned() -> None:
    layer = RNN(3, SIZE, transition="polar")
    prune.l1_unstructured(layer, "weight_ih_l0", amount=0.5)
    layer(torch.randn(4, 2, 3))[0].sum().backward()
    assert layer.weight_ih_l0_orig.grad is not None


@pytest.mark.parametrize("tool", ["l1_unstructured", "weight_norm", "parametrize"])
@pytest.mark.parametrize("name", [*PROJECTIONS, *RECENTRED])
def test_a_replaced_raw_tensor_of_a_parametrized_weight_is_noticed_at_the_next_use(name: str, tool: str) -> None:
    linear = constrain(nn.Linear(SIZE, SIZE), "weight", CASES[name]())
    optimizer = torch.optim.SGD(linear.parameters(), lr=0.1)
    attach_projection(optimizer, linear)
    TOOLS[tool](linear.parametrizations.weight, "original0")
    with pytest.raises(WeightError, match="original0"):
        linear(torch.ones(1, SIZE))
    with pytest.raises(WeightError, match="original0"):
        optimizer.step()


@pytest.mark.parametrize("name", CONSTRAINED)
def test_pruning_a_parametrized_weight_leaves_no_stray_parameter(name: str) -> None:
    linear = constrain(nn.Linear(SIZE, SIZE), "weight", CASES[name]())
    before = list(linear.state_dict())
    with pytest.raises((WeightError, TypeError, RuntimeError, KeyError)):
        prune.l1_unstructured(linear, "weight", amount=0.5)
    assert list(linear.state_dict()) == before
