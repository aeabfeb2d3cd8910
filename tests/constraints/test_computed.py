"""Weights that a layer computes: read as any tensor, never written to in vain."""

import copy
import io
import pickle
from collections.abc import Callable

import numpy
import pytest
import torch
from torch import Tensor, nn

from steadyrnn.constraints.computed import ComputedWeight
from steadyrnn.errors import SteadyError, WeightError
from steadyrnn.layers.gru import GRU
from steadyrnn.layers.linear import Linear
from steadyrnn.layers.lstm import LSTM
from steadyrnn.layers.rnn import RNN
from tests.constraints.cases import CASES

SIZE = 6
LAYERS: dict[str, Callable[[str], Tensor]] = {
    "rnn": lambda name: RNN(3, SIZE, transition=CASES[name]()).weight_hh_l0,
    "gru": lambda name: GRU(3, SIZE, transition=CASES[name]()).weight_hh_l0,
    "lstm": lambda name: LSTM(3, SIZE, transition=CASES[name]()).weight_hh_l0,
    "linear": lambda name: Linear(SIZE, SIZE, weight=CASES[name]()).weight,
}
CONSTRAINED = [name for name in CASES if name not in ("free", "irnn")]


def _set_item(w: Tensor) -> None:
    w[0] = 1


def _set_data(w: Tensor) -> None:
    w.data = torch.zeros_like(w)


def _add(w: Tensor) -> None:
    w += 1


def _set_grad(w: Tensor) -> None:
    w.grad = torch.zeros(w.shape)


WRITES: dict[str, Callable[[Tensor], object]] = {
    "copy_": lambda w: w.copy_(torch.eye(*w.shape)),
    "zero_": lambda w: w.zero_(),
    "fill_": lambda w: w.fill_(1),
    "add_": lambda w: w.add_(1),
    "mul_": lambda w: w.mul_(2),
    "clamp_": lambda w: w.clamp_(0, 1),
    "index_fill_": lambda w: w.index_fill_(0, torch.tensor([0]), 1.0),
    "set_": lambda w: w.set_(torch.zeros(2)),
    "resize_": lambda w: w.resize_(1),
    "iadd": _add,
    "setitem": _set_item,
    "setitem-row": lambda w: w[0].fill_(1),
    "data =": _set_data,
    "data.zero_": lambda w: w.data.zero_(),
    "data[0]": lambda w: _set_item(w.data),
    "detach().zero_": lambda w: w.detach().zero_(),
    "detach_": lambda w: w.detach_(),
    "T.zero_": lambda w: w.mT.zero_(),
    "view.zero_": lambda w: w.view(-1).zero_(),
    "chunk": lambda w: w.chunk(2)[0].zero_(),
    "diagonal": lambda w: w.diagonal().zero_(),
    "float": lambda w: w.float().zero_(),
    "out=": lambda w: torch.mul(torch.ones(w.shape), 2, out=w),
    "foreach": lambda w: torch._foreach_add_([w], 1),
    "relu(inplace)": lambda w: nn.functional.relu(w, inplace=True),
    "dropout(inplace)": lambda w: nn.functional.dropout(w, 0.5, inplace=True),
    "nan_to_num_": lambda w: torch.nan_to_num_(w),
    "init.orthogonal_": nn.init.orthogonal_,
    "init.zeros_": nn.init.zeros_,
    "init.uniform_": nn.init.uniform_,
    "init.normal_": nn.init.normal_,
    "init.xavier_uniform_": nn.init.xavier_uniform_,
    "init.kaiming_normal_": nn.init.kaiming_normal_,
    "init.eye_": nn.init.eye_,
    "init.constant_": lambda w: nn.init.constant_(w, 1.0),
    "init.trunc_normal_": nn.init.trunc_normal_,
    "init.sparse_": lambda w: nn.init.sparse_(w, 0.5),
    "numpy": lambda w: w.detach().numpy().__setitem__(0, 1),
    "asarray": lambda w: numpy.asarray(w.detach()).__setitem__(0, 1),
    "grad =": _set_grad,
    "requires_grad_": lambda w: w.requires_grad_(not w.requires_grad),
    "vector_to_parameters": lambda w: nn.utils.vector_to_parameters(torch.zeros(w.numel()), [w]),
    "SGD": lambda w: torch.optim.SGD([w], lr=0.1),
    "Parameter": nn.Parameter,
}

# numpy and the optimizer raise errors of their own
OTHERS = {"numpy": ValueError, "asarray": ValueError, "SGD": ValueError}


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("layer", LAYERS)
def test_writing_to_a_computed_weight_raises(layer: str, write: str, grad: bool) -> None:
    weight = LAYERS[layer]("spectral")
    if not grad:
        with torch.no_grad():
            weight = LAYERS[layer]("spectral")
    with torch.set_grad_enabled(False), pytest.raises(OTHERS.get(write, WeightError)):
        WRITES[write](weight)


@pytest.mark.parametrize("write", ["copy_", "data.zero_", "init.orthogonal_", "setitem", "iadd", "zero_"])
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("name", CONSTRAINED)
def test_what_is_written_to_a_weight_is_kept_or_refused(name: str, layer: str, write: str) -> None:
    torch.manual_seed(0)
    module = {"rnn": RNN, "gru": GRU, "lstm": LSTM}.get(layer)
    model = Linear(SIZE, SIZE, weight=CASES[name]()) if module is None else module(3, SIZE, transition=CASES[name]())
    attribute = "weight" if module is None else "weight_hh_l0"
    before = getattr(model, attribute).detach().clone()
    weight = getattr(model, attribute)
    try:
        with torch.no_grad():
            WRITES[write](weight)
    except SteadyError:
        assert torch.equal(getattr(model, attribute), before)
        return
    assert isinstance(weight, nn.Parameter)  # a projection's raw tensor, which is the weight
    assert not torch.equal(getattr(model, attribute), before)


READS: dict[str, Callable[[Tensor], object]] = {
    "svdvals": torch.linalg.svdvals,
    "matmul": lambda w: w @ w.mT,
    "clone": lambda w: w.clone(),
    "double": lambda w: w.double(),
    "sum": lambda w: w.sum(),
    "stack": lambda w: torch.stack([w, w]),
    "cat": lambda w: torch.cat([w, w]),
    "eigvals": lambda w: torch.linalg.eigvals(w[:SIZE]),
    "copied": lambda w: torch.zeros(w.shape).copy_(w.detach()),
    "added": lambda w: torch.zeros(w.shape).add_(w.detach()),
    "linear": lambda w: nn.functional.linear(torch.ones(2, w.shape[1]), w),
    "norm": lambda w: w.norm(),
    "where": lambda w: torch.where(w > 0, w, -w),
    "out of it": lambda w: torch.mul(w.detach(), 2, out=torch.empty(w.shape)),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("layer", LAYERS)
def test_reading_gives_what_a_plain_tensor_gives(layer: str, read: str) -> None:
    weight = LAYERS[layer]("spectral")
    assert type(weight) is ComputedWeight
    result, plain = READS[read](weight), READS[read](weight.detach().clone().requires_grad_())
    assert type(result) is Tensor
    torch.testing.assert_close(result.detach(), plain.detach(), rtol=0, atol=0)


def test_a_gradient_flows_through_a_computed_weight() -> None:
    layer = RNN(3, SIZE, transition="spectral")
    weight = layer.weight_hh_l0
    weight.retain_grad()
    weight.square().sum().backward()
    torch.testing.assert_close(weight.grad, 2 * weight.detach())
    assert layer.transition_l0.h.raw2.grad is not None
    weight.grad = None


def test_a_computed_weight_prints_converts_and_travels_as_a_plain_tensor() -> None:
    weight = RNN(3, SIZE, transition="spectral").weight_hh_l0.detach()
    assert repr(weight).startswith("tensor(")
    assert f"{weight[0, 0]:.3f}" == f"{weight[0, 0].item():.3f}"
    assert numpy.array_equal(weight.numpy(), numpy.array(weight.tolist(), dtype=numpy.float32))
    assert type(copy.deepcopy(weight)) is Tensor
    assert type(pickle.loads(pickle.dumps(weight))) is Tensor
    file = io.BytesIO()
    torch.save({"weight": weight}, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=True)["weight"], weight)


@pytest.mark.parametrize("name", ["spectral", "exp", "exp-lie"])
def test_compiled_and_transformed_code_reads_weights(name: str) -> None:
    layer = GRU(3, SIZE, transition=CASES[name]())

    def read(x: Tensor) -> Tensor:
        return layer.weight_hh_l0.square().sum() * x

    def given(weight: Tensor) -> Tensor:
        return (2 * weight.mT).sum()

    one = torch.ones(())
    compiled = torch.compile(read, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(one), read(one))
    passed = torch.compile(given, fullgraph=True, backend="eager")
    weight = layer.weight_hh_l0
    torch.testing.assert_close(passed(weight), given(weight))
    torch.testing.assert_close(torch.func.grad(read)(one), read(one))
    torch.testing.assert_close(torch.func.vmap(read)(torch.ones(2)), read(torch.ones(2)))
    raws = {key: tensor.detach() for key, tensor in layer.named_parameters()}

    def total(raws: dict[str, Tensor]) -> Tensor:
        return torch.func.functional_call(layer, raws, (torch.ones(2, 1, 3),))[0].sum()

    assert set(torch.func.grad(total)(raws)) == set(raws)
    torch.testing.assert_close(torch.func.jacrev(given)(weight.detach()), torch.full_like(weight, 2.0).clone())


@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.jacrev, torch.func.jacfwd, torch.func.hessian])
def test_a_weight_read_before_is_used_in_a_transform(transform: Callable[..., Callable[[Tensor], Tensor]]) -> None:
    weight, x = RNN(2, 3, transition="spectral").double().weight_hh_l0.detach(), torch.randn(3, dtype=torch.float64)

    def energy(x: Tensor) -> Tensor:
        return (weight.T @ x[:, None]).square().sum() + (weight[0] * x).sum()

    plain = weight.clone()

    def expected(x: Tensor) -> Tensor:
        return (plain.T @ x[:, None]).square().sum() + (plain[0] * x).sum()

    torch.testing.assert_close(transform(energy)(x), transform(expected)(x))


def test_inference_mode_reads_and_refuses() -> None:
    layer = RNN(3, SIZE, transition="spectral")
    with torch.inference_mode():
        assert layer.weight_hh_l0.sum().isfinite()
        with pytest.raises(WeightError):
            layer.weight_hh_l0.zero_()


def test_a_computed_weight_compares_with_parameters() -> None:
    weight = RNN(3, SIZE, transition="spectral").weight_hh_l0
    parameter = nn.Parameter(weight.detach().clone())
    torch.testing.assert_close(weight, parameter)
    torch.testing.assert_close(parameter, weight)
    assert isinstance(weight, Tensor)
    assert not isinstance(weight, nn.Parameter)


def test_a_weight_is_assigned_as_a_whole() -> None:
    layer, other = RNN(3, SIZE, transition="spectral"), RNN(3, SIZE, transition="spectral")
    layer.weight_hh_l0 = other.weight_hh_l0
    torch.testing.assert_close(layer.weight_hh_l0, other.weight_hh_l0)


def test_the_forward_of_a_layer_meets_no_computed_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("read through the attribute")

    monkeypatch.setattr("steadyrnn.layers.weights.as_computed", refuse)
    monkeypatch.setattr("steadyrnn.layers.linear.as_computed", refuse)
    RNN(3, SIZE, transition="spectral")(torch.ones(2, 1, 3))
    Linear(SIZE, SIZE)(torch.ones(1, SIZE))
