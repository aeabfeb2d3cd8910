"""Putting a constraint on a weight of any module: the three starts, and every mistake."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from steadyrnn.constraints import Constraint, HouseholderOrthogonal, PolarOrthogonal, Spectral, StableLSTM
from steadyrnn.constraints.attach import constrain
from steadyrnn.errors import (
    ArgumentError,
    ArgumentTypeError,
    ConstraintError,
    DtypeError,
    NotInvertibleError,
    ShapeError,
)
from tests.constraints.cases import CASES, DTYPES, INVERTIBLE, NOT_INVERTIBLE, PENALTIES, member, outside, rounding


def own(module: nn.Module, name: str = "weight") -> Constraint:
    constraint = module.parametrizations[name][0]  # type: ignore[index, union-attr, operator]
    assert isinstance(constraint, Constraint)
    return constraint


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", [name for name in CASES if name not in PENALTIES])
def test_a_sample_starts_inside_the_set(name: str, dtype: torch.dtype) -> None:
    linear = constrain(nn.Linear(6, 6, dtype=dtype), "weight", CASES[name]())
    assert linear.weight.dtype == dtype
    assert own(linear).violation(linear.weight) <= rounding(6, dtype)
    assert own(linear)._start is None


@pytest.mark.parametrize("name", [name for name in INVERTIBLE if name not in ("cayley", *PENALTIES)])
def test_project_starts_from_the_nearest_member(name: str) -> None:
    torch.manual_seed(1)
    linear = nn.Linear(6, 6, dtype=torch.float64)
    nearest = CASES[name]().project(linear.weight.detach().clone())
    if name == "unitary-full":
        assert own_distance(nearest) <= rounding(6)
    constrain(linear, "weight", CASES[name](), init="project")
    torch.testing.assert_close(linear.weight.detach(), nearest, rtol=0, atol=16 * rounding(6))


def own_distance(matrix: torch.Tensor) -> float:
    return float(CASES["unitary-full"]().violation(matrix))


@pytest.mark.parametrize("determinant", [1, -1])
@pytest.mark.parametrize("name", [name for name in INVERTIBLE if name != "cayley"])
def test_keep_starts_from_the_weight_there_is(name: str, determinant: int) -> None:
    linear = nn.Linear(6, 6, dtype=torch.float64)
    inside = member(name, 6, 3, determinant)
    with torch.no_grad():
        linear.weight.copy_(inside)
    constrain(linear, "weight", CASES[name](), init="keep")
    assert torch.linalg.matrix_norm(linear.weight - inside, 2) <= 16 * rounding(6)


@pytest.mark.parametrize("name", [name for name in INVERTIBLE if name not in ("free", "irnn")])
def test_keep_refuses_a_weight_outside(name: str) -> None:
    linear = nn.Linear(6, 6)
    with torch.no_grad():
        linear.weight.copy_(outside(name, 6, 0, dtype=torch.float32))
    with pytest.raises(ConstraintError, match="outside the set"):
        constrain(linear, "weight", CASES[name](), init="keep")
    assert not parametrize.is_parametrized(linear)


@pytest.mark.parametrize("init", ["keep", "project"])
@pytest.mark.parametrize("name", NOT_INVERTIBLE)
def test_a_map_without_inverse_starts_from_a_sample_only(name: str, init: str) -> None:
    linear = nn.Linear(6, 6)
    with pytest.raises(NotInvertibleError, match="init='sample'"):
        constrain(linear, "weight", CASES[name](), init=init)
    assert not parametrize.is_parametrized(linear)


def test_the_constraint_is_copied() -> None:
    template = Spectral(reflectors=2)
    first = constrain(nn.Linear(6, 6), "weight", template)
    second = constrain(nn.Linear(3, 4), "weight", template)
    assert own(first) is not template
    assert (first.weight.shape, second.weight.shape) == ((6, 6), (4, 3))


def test_a_template_that_was_used_can_be_used_for_another_shape() -> None:
    template = HouseholderOrthogonal(project=True)
    template.sample(9, 9)
    linear = nn.Linear(4, 4)
    with torch.no_grad():
        linear.weight.copy_(torch.eye(4))
    constrain(linear, "weight", template, init="keep")
    torch.testing.assert_close(linear.weight.detach(), torch.eye(4))


def test_a_registry_name_does() -> None:
    assert isinstance(own(constrain(nn.Linear(3, 3), "weight", "polar")), PolarOrthogonal)


@pytest.mark.parametrize("frozen", [False, True])
def test_a_frozen_weight_stays_frozen(frozen: bool) -> None:
    linear = nn.Linear(3, 3)
    linear.weight.requires_grad_(not frozen)
    constrain(linear, "weight", "spectral")
    raws = [p for name, p in linear.named_parameters() if name.startswith("parametrizations")]
    assert all(parameter.requires_grad != frozen for parameter in raws)


def test_assigning_goes_through_the_set() -> None:
    linear = constrain(nn.Linear(4, 4), "weight", "ornn")
    swap = torch.eye(4).flip(0)
    linear.weight = swap
    torch.testing.assert_close(linear.weight.detach(), swap)
    with pytest.raises(ConstraintError, match="outside the set"):
        linear.weight = 2 * swap


def test_a_constraint_can_be_removed_again() -> None:
    linear = constrain(nn.Linear(4, 4), "weight", "ornn")
    weight = linear.weight.detach().clone()
    parametrize.remove_parametrizations(linear, "weight")
    assert torch.equal(linear.weight, weight)


@pytest.mark.parametrize("make", [nn.RNN, nn.RNNCell])
def test_the_recurrent_weight_of_a_torch_rnn_can_be_constrained(make: type[nn.Module]) -> None:
    name = "weight_hh_l0" if make is nn.RNN else "weight_hh"
    module = constrain(make(3, 6), name, "ornn")
    output = module(torch.randn(5, 3))
    (output[0] if make is nn.RNN else output).sum().backward()
    weight = getattr(module, name)
    torch.testing.assert_close(weight @ weight.mT, torch.eye(6), rtol=0, atol=rounding(6, torch.float32))


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (nn.GRU(3, 4), "weight_hh_l0"),
        (nn.LSTM(3, 4), "weight_hh_l0"),
        (nn.LSTM(3, 4, bidirectional=True), "weight_hh_l0_reverse"),
        (nn.GRUCell(3, 4), "weight_hh"),
        (nn.LSTMCell(3, 4), "weight_hh"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else value,
)
def test_a_stack_of_gates_is_refused(module: nn.Module, name: str) -> None:
    with pytest.raises(ShapeError, match=r"stacks the weights of several gates.*`sr.GRU` or `sr.LSTM`"):
        constrain(module, name, "spectral")


@pytest.mark.parametrize(
    ("module", "name", "constraint", "options", "error", "message"),
    [
        (nn.Linear(3, 3), "weight", "ornn", {"init": "random"}, ArgumentError, "`init` must be one of sample, project"),
        (nn.Linear(3, 3), "wait", "ornn", {}, ArgumentError, "`name` must be a parameter of Linear.*'wait'.*weight"),
        (nn.ReLU(), "weight", "ornn", {}, ArgumentError, "`name` must be a parameter of ReLU.*there: none"),
        (nn.Linear(3, 3, bias=False), "bias", "ornn", {}, ArgumentError, "`name` must be a parameter"),
        (nn.Linear(3, 3), "bias", "ornn", {}, ShapeError, "`bias` must have two dimensions"),
        (nn.Conv1d(3, 3, 2), "weight", "ornn", {}, ShapeError, r"`weight` must have two dimensions.*\(3, 3, 2\)"),
        (nn.Linear(3, 4), "weight", "ornn", {}, ShapeError, r"square.*\(4, 3\)"),
        (nn.Linear(3, 3), "weight", "unitary", {}, ShapeError, "even size"),
        (nn.Linear(3, 3), "weight", "orthogonal", {}, ArgumentError, "`constraint` must be one of free, irnn, ornn"),
        (nn.Linear(3, 3), "weight", "stable-lstm", {}, ArgumentError, "StableLSTM constrains all weights of an LSTM"),
        (nn.Linear(3, 3), "weight", StableLSTM(), {}, ArgumentError, "StableLSTM constrains all weights of an LSTM"),
        (nn.Linear(3, 3), "weight", Spectral, {}, ArgumentTypeError, "`constraint` must be a constraint or the name"),
        (nn.Linear(3, 3), "weight", Spectral(9), {}, ArgumentError, "`reflectors` must be at most"),
        (torch.eye(3), "weight", "ornn", {}, ArgumentTypeError, "`module` must be a torch module"),
        (nn.Linear(3, 3).to(torch.float8_e5m2), "weight", "ornn", {}, DtypeError, "`weight` must have one of the dtypes"),
        (nn.Linear(2, 2, dtype=torch.complex64), "weight", "ornn", {}, ArgumentTypeError, "real floating dtype"),
    ],
)
def test_a_mistake_is_named(
    module: nn.Module, name: str, constraint: object, options: dict[str, str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        constrain(module, name, constraint, **options)  # type: ignore[arg-type]
    if isinstance(module, nn.Module):
        assert not parametrize.is_parametrized(module)


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_a_weight_that_is_parametrized_already_is_refused(first: str) -> None:
    linear = nn.Linear(3, 3)
    if first == "ours":
        constrain(linear, "weight", "ornn")
    else:
        nn.utils.parametrizations.orthogonal(linear)
    with pytest.raises(ArgumentError, match=r"`weight` is parametrized already.*remove_parametrizations"):
        constrain(linear, "weight", "spectral")
