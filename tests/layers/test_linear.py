"""Linear: torch's layer where the weight is free, a weight in its set where it is not."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import steadyrnn as sr
from steadyrnn.constraints.base import Kind
from steadyrnn.constraints.free import Free
from steadyrnn.constraints.registry import CONSTRAINTS
from steadyrnn.constraints.tolerance import membership_tolerance
from steadyrnn.errors import (
    ArgumentError,
    ArgumentTypeError,
    ConstraintError,
    DeviceError,
    DtypeError,
    NotFiniteError,
    NotInvertibleError,
    ShapeError,
    SteadyError,
)
from steadyrnn.layers.linear import Linear
from tests.models.copies import COPIES
from tests.support.errors import assert_equal_up_to_rounding
from tests.support.layers import Counting

CONSTRAINED = [name for name, make in CONSTRAINTS.items() if not isinstance(make(), Free)]
RECTANGULAR = ["spectral", "ball"]
SHAPES = [(3,), (0, 3), (5, 3), (2, 4, 3)]


def twins(bias: bool = True, **kwargs: Any) -> tuple[nn.Linear, Linear]:
    torch.manual_seed(1)
    theirs = nn.Linear(3, 4, bias, **kwargs)
    torch.manual_seed(1)
    return theirs, Linear(3, 4, bias, **kwargs, weight="free")


# A free weight: torch's own layer.


@pytest.mark.parametrize("bias", [True, False])
def test_a_free_layer_starts_as_torchs_does_with_the_same_seed(bias: bool) -> None:
    theirs, ours = twins(bias)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert all(torch.equal(ours.state_dict()[name], value) for name, value in theirs.state_dict().items())


def test_torchs_state_dict_loads_into_a_free_layer() -> None:
    theirs, ours = nn.Linear(3, 4), Linear(3, 4, weight="free")
    ours.load_state_dict(theirs.state_dict())
    assert torch.equal(ours.weight, theirs.weight)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bias", [True, False])
def test_a_free_layer_has_torchs_values_and_gradients(shape: tuple[int, ...], bias: bool) -> None:
    theirs, ours = twins(bias)
    x = torch.randn(shape)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    values = [layer(x) for layer, x in zip((theirs, ours), inputs, strict=True)]
    assert torch.equal(*values)
    for value in values:
        value.square().sum().backward()
    assert torch.equal(inputs[0].grad, inputs[1].grad)
    assert all(torch.equal(p.grad, q.grad) for p, q in zip(theirs.parameters(), ours.parameters(), strict=True))


def test_positional_arguments_are_torchs() -> None:
    ours = Linear(3, 4, False, "cpu", torch.float64, weight="free")
    assert (ours.bias, ours.weight.dtype, ours.weight.device.type) == (None, torch.float64, "cpu")


def test_a_first_weight_by_name_is_drawn() -> None:
    assert torch.equal(Linear(3, 3, weight="irnn").weight, torch.eye(3))


def test_a_free_weight_may_be_shared() -> None:
    first, second = Linear(3, 4, weight="free"), Linear(3, 4, weight="free")
    second.weight = first.weight
    assert second.weight is first.weight


# A constrained weight: in its set, computed on read, assigned through the right inverse.


@pytest.mark.parametrize("name", CONSTRAINED)
@given(half=st.integers(1, 6), seed=st.integers(0, 2**32 - 1))
def test_a_fresh_square_weight_is_in_its_set(name: str, half: int, seed: int) -> None:
    torch.manual_seed(seed)
    linear = Linear(2 * half, 2 * half, dtype=torch.float64, weight=name)
    assert linear.slot.constraint.violation(linear.weight) <= membership_tolerance(linear.weight)


@pytest.mark.parametrize("name", RECTANGULAR)
@given(rows=st.integers(1, 9), columns=st.integers(1, 9))
def test_a_fresh_rectangular_weight_is_in_its_set(name: str, rows: int, columns: int) -> None:
    linear = Linear(columns, rows, dtype=torch.float64, weight=name)
    assert linear.weight.shape == (rows, columns)
    assert linear.slot.constraint.violation(linear.weight) <= membership_tolerance(linear.weight)


@pytest.mark.parametrize("name", [name for name in CONSTRAINED if CONSTRAINTS[name]().kind is Kind.MAP])
def test_a_map_stays_in_its_set_after_a_step_of_any_size(name: str) -> None:
    linear = Linear(4, 4, dtype=torch.float64, weight=name)
    optimizer = torch.optim.SGD(linear.parameters(), lr=10.0)
    linear(torch.randn(3, 4, dtype=torch.float64)).square().sum().backward()
    optimizer.step()
    assert linear.slot.constraint.violation(linear.weight) <= membership_tolerance(linear.weight)


@pytest.mark.parametrize("name", CONSTRAINED)
def test_a_member_assigned_is_the_weight_afterwards(name: str) -> None:
    linear, other = (Linear(4, 4, dtype=torch.float64, weight=name) for _ in range(2))
    member = other.weight.detach()
    if not linear.slot.constraint.invertible:
        with pytest.raises(NotInvertibleError):
            linear.weight = member
        return
    linear.weight = member
    assert_equal_up_to_rounding(linear.weight, member, 16)


def test_assigning_keeps_the_parameters() -> None:
    linear = Linear(4, 3)
    before = list(linear.parameters())
    linear.weight = torch.eye(3, 4)
    assert all(p is q for p, q in zip(linear.parameters(), before, strict=True))


def test_the_weight_read_carries_a_gradient_to_the_raw_tensors() -> None:
    linear = Linear(4, 3)
    gradients = torch.autograd.grad(linear.weight[0].sum(), list(linear.slot.parameters()))
    assert all(gradient.abs().sum() > 0 for gradient in gradients)


def test_a_constrained_layer_is_the_affine_map_of_its_weight() -> None:
    linear = Linear(4, 3)
    x = torch.randn(5, 4)
    assert torch.equal(linear(x), nn.functional.linear(x, linear.weight, linear.bias))


def test_the_state_dict_has_the_slots_keys() -> None:
    assert list(Linear(4, 3).state_dict()) == ["bias", "slot.raw0", "slot.raw1", "slot.raw2", "slot.constraint.sign"]


@pytest.mark.parametrize("name", CONSTRAINED)
def test_a_state_dict_carries_the_weight(name: str) -> None:
    first, second = (Linear(4, 4, weight=name) for _ in range(2))
    second.load_state_dict(first.state_dict())
    assert torch.equal(second.weight, first.weight)


# Once per forward.


def counted(monkeypatch: pytest.MonkeyPatch) -> Linear:
    """Return a layer whose evaluations are counted from now on."""
    linear = Linear(4, 3, weight=Counting())
    monkeypatch.setattr(Counting, "count", 0)
    return linear


def test_the_constraint_is_evaluated_once_per_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    linear = counted(monkeypatch)
    linear(torch.randn(2, 4))
    linear(torch.randn(2, 4))
    assert Counting.count == 2


def test_the_constraint_is_evaluated_once_inside_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    linear = counted(monkeypatch)
    with sr.cached():
        for _ in range(3):
            linear(torch.randn(2, 4))
    assert Counting.count == 1


def test_a_change_inside_cached_is_seen() -> None:
    linear = Linear(4, 3)
    with sr.cached():
        linear(torch.randn(2, 4))
        linear.weight = torch.eye(3, 4)
        assert_equal_up_to_rounding(linear.weight, torch.eye(3, 4), 12)


def test_a_refused_input_costs_no_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    linear = counted(monkeypatch)
    with pytest.raises(ShapeError):
        linear(torch.randn(2, 5))
    assert Counting.count == 0


# Copying, saving, compiling.


def used(name: str) -> tuple[Linear, Tensor]:
    """Return a layer that has been forward and backward, and an input."""
    linear, x = Linear(4, 4, weight=name), torch.randn(2, 4)
    linear(x).sum().backward()
    return linear, x


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize("name", ["free", *CONSTRAINED])
def test_a_used_layer_is_copied_and_saved_whole(name: str, copied: Callable[[Linear], Linear]) -> None:
    linear, x = used(name)
    assert torch.equal(copied(linear)(x), linear(x))


@pytest.mark.parametrize("name", ["free", "spectral", "ball", "ornn", "exp"])
def test_compiling_gives_one_graph_with_the_same_values_and_gradients(name: str) -> None:
    linear, x = used(name)
    expected = [parameter.grad.clone() for parameter in linear.parameters()]
    linear.zero_grad()
    value = torch.compile(linear, fullgraph=True, backend="aot_eager")(x)
    assert_equal_up_to_rounding(value, linear(x), 16)
    value.sum().backward()
    for parameter, gradient in zip(linear.parameters(), expected, strict=True):
        assert_equal_up_to_rounding(parameter.grad, gradient, 16)


def test_functional_call_uses_the_parameters_it_is_given() -> None:
    first, second = Linear(4, 3), Linear(4, 3)
    x = torch.randn(2, 4)
    assert torch.equal(torch.func.functional_call(second, dict(first.state_dict()), (x,)), first(x))


def test_func_grad_agrees_with_backward() -> None:
    linear, x = Linear(4, 3, dtype=torch.float64), torch.randn(2, 4, dtype=torch.float64)
    parameters = dict(linear.named_parameters())
    gradients = torch.func.grad(lambda p: torch.func.functional_call(linear, p, (x,)).square().sum())(parameters)
    linear(x).square().sum().backward()
    for name, parameter in linear.named_parameters():
        assert_equal_up_to_rounding(gradients[name], parameter.grad, 12)


@pytest.mark.parametrize("check", [torch.autograd.gradcheck, torch.autograd.gradgradcheck])
def test_gradients_of_both_orders_are_exact(check: Callable[..., bool]) -> None:
    linear = Linear(3, 2, dtype=torch.float64)
    names = [name for name, _ in linear.named_parameters()]
    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)

    def function(x: Tensor, *values: Tensor) -> Tensor:
        return torch.func.functional_call(linear, dict(zip(names, values, strict=True)), (x,))

    assert check(function, (x, *(p.detach().requires_grad_() for p in linear.parameters())))


def test_forward_mode_agrees_with_the_jacobian() -> None:
    linear = Linear(3, 2, dtype=torch.float64)
    x, tangent = torch.randn(2, 3, dtype=torch.float64)
    _, along = torch.func.jvp(linear, (x,), (tangent,))
    assert_equal_up_to_rounding(along, linear.weight @ tangent, 6)


# Dtypes and devices.


@pytest.mark.parametrize("name", ["free", "spectral"])
def test_autocast_rounds_the_product_and_not_the_weight(name: str) -> None:
    linear, x = Linear(16, 16, weight=name), torch.randn(5, 16)
    before = linear.weight
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value, weight = linear(x), linear.weight
        expected = nn.functional.linear(x, before, linear.bias)
    assert weight.dtype == torch.float32
    assert torch.equal(weight, before)
    assert value.dtype == torch.bfloat16
    assert torch.equal(value, expected)


def test_a_half_precision_weight_is_the_rounded_one() -> None:
    linear = Linear(4, 3)
    half = copy.deepcopy(linear).bfloat16()
    assert half(torch.randn(2, 4, dtype=torch.bfloat16)).dtype == torch.bfloat16
    assert_equal_up_to_rounding(half.weight, linear.weight.bfloat16(), 4)


def test_a_layer_made_on_meta_can_be_given_memory_and_drawn() -> None:
    linear = Linear(4, 3, device="meta").to_empty(device="cpu")
    linear.reset_parameters()
    assert linear.slot.constraint.violation(linear.weight) <= membership_tolerance(linear.weight)


def test_a_free_layer_on_meta_gives_shapes() -> None:
    assert Linear(4, 3, device="meta", weight="free")(torch.empty(5, 4, device="meta")).shape == (5, 3)


def test_a_nan_stays_in_its_row() -> None:
    linear, x = Linear(4, 3), torch.randn(3, 4)
    x[1, 2] = torch.nan
    assert linear(x).isfinite().all(dim=1).tolist() == [True, False, True]


# Refusals.

BAD_ARGUMENTS: list[tuple[dict[str, Any], type[SteadyError], str]] = [
    ({"in_features": 0}, ArgumentError, "`in_features`"),
    ({"in_features": 2.5}, ArgumentTypeError, "`in_features`"),
    ({"out_features": -1}, ArgumentError, "`out_features`"),
    ({"weight": "no such set"}, ArgumentError, "`weight`"),
    ({"weight": 3}, ArgumentTypeError, "`weight`"),
    ({"weight": {"h": "spectral"}}, ArgumentTypeError, "`weight`"),
    ({"weight": "stable-lstm"}, ArgumentError, "StableLSTM"),
    ({"weight": "ornn"}, ShapeError, "square"),
    ({"weight": "exp"}, ShapeError, "square"),
]


@pytest.mark.parametrize(("changed", "error", "words"), BAD_ARGUMENTS)
def test_a_bad_argument_is_refused(changed: dict[str, Any], error: type[SteadyError], words: str) -> None:
    with pytest.raises(error, match=words):
        Linear(**{"in_features": 4, "out_features": 3, **changed})


BAD_INPUTS: list[tuple[Any, type[SteadyError], str]] = [
    (torch.zeros(2, 5), ShapeError, "4 features"),
    (torch.tensor(1.0), ShapeError, "4 features"),
    ([1.0] * 4, ArgumentTypeError, "tensor"),
    (torch.zeros(2, 4, dtype=torch.float64), DtypeError, "float64"),
    (torch.zeros(2, 4, dtype=torch.int64), DtypeError, "int64"),
    (torch.zeros(2, 4, device="meta"), DeviceError, "meta"),
]


@pytest.mark.parametrize(("x", "error", "words"), BAD_INPUTS)
@pytest.mark.parametrize("name", ["free", "spectral"])
def test_a_bad_input_is_refused(name: str, x: Any, error: type[SteadyError], words: str) -> None:
    with pytest.raises(error, match=words):
        Linear(4, 3, weight=name)(x)


@pytest.mark.parametrize("x", [x for x, error, _ in BAD_INPUTS if error is not DtypeError])
def test_an_input_error_is_the_builtin_that_torch_raises(x: Any) -> None:
    with pytest.raises((RuntimeError, TypeError)) as torchs:
        nn.Linear(4, 3)(x)
    with pytest.raises(torchs.type):
        Linear(4, 3)(x)


@pytest.mark.parametrize(("weights", "inputs"), [(torch.float32, torch.float64), (torch.float64, torch.float32)])
def test_autocast_does_not_mix_float64(weights: torch.dtype, inputs: torch.dtype) -> None:
    linear = Linear(4, 3, dtype=weights, weight="free")
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(DtypeError, match="float64"):
        linear(torch.zeros(2, 4, dtype=inputs))


BAD_WEIGHTS: list[tuple[Any, type[SteadyError], str]] = [
    (2 * torch.eye(3, 4), ConstraintError, "violation 0.9"),
    (torch.eye(4, 3), ShapeError, r"\(3, 4\)"),
    (torch.full((3, 4), torch.nan), NotFiniteError, "NaN"),
    (3.0, ArgumentTypeError, "`weight`"),
]


@pytest.mark.parametrize(("matrix", "error", "words"), BAD_WEIGHTS)
def test_a_bad_weight_is_refused_and_nothing_changes(matrix: Any, error: type[SteadyError], words: str) -> None:
    linear = Linear(4, 3)
    before = linear.weight
    with pytest.raises(error, match=words):
        linear.weight = matrix
    assert torch.equal(linear.weight, before)


def test_a_weight_outside_is_projected_where_the_constraint_says_so() -> None:
    linear = Linear(4, 3, weight=sr.Spectral(project=True))
    linear.weight = 2 * torch.eye(3, 4)
    assert_equal_up_to_rounding(linear.weight, 1.1 * torch.eye(3, 4), 12)
