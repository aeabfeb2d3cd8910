"""What a constrained weight survives: state dicts, copies, files, functional calls, compiling, autocast."""

import copy
import io

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from steadyrnn.constraints.attach import constrain
from steadyrnn.constraints.optimizer import attach_projection
from steadyrnn.constraints.registry import CONSTRAINTS
from steadyrnn.constraints.slot import Slot
from steadyrnn.errors import ConstraintError
from tests.constraints import cases
from tests.constraints.cases import gaussian_like, member, rounding


class Reader(nn.Module):
    """A module that reads a slot's weight in its forward."""

    def __init__(self, slot: Slot) -> None:
        super().__init__()
        self.slot = slot

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.slot.weight().mT


def trained(name: str, dtype: torch.dtype = torch.float32, steps: int = 3) -> Slot:
    """Return a slot after some steps, its base points and signs no longer fresh."""
    torch.manual_seed(1)
    slot = Slot(cases.CASES[name](), 6, 6, dtype=dtype)
    if name in cases.INVERTIBLE:
        slot.assign(member(name, 6, seed=2, determinant=-1, dtype=dtype))
    optimizer = torch.optim.SGD(slot.parameters(), lr=0.05)
    attach_projection(optimizer, slot)
    target = torch.randn(6, 6, dtype=dtype)
    for _ in range(steps):
        optimizer.zero_grad()
        (slot.weight() * target).sum().backward()
        optimizer.step()
    return slot


@pytest.mark.parametrize("name", cases.CASES)
def test_a_state_dict_brings_the_weight_back(name: str) -> None:
    slot, other = trained(name), Slot(cases.CASES[name](), 6, 6)
    other.load_state_dict(slot.state_dict())
    assert torch.equal(other.weight(), slot.weight())


@pytest.mark.parametrize("name", cases.CASES)
def test_a_copy_after_a_forward_is_equal_and_apart(name: str) -> None:
    slot = trained(name)
    before = slot.weight()
    twin = copy.deepcopy(slot)
    assert torch.equal(twin.weight(), before)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.mul_(0.5).add_(0.1)
    twin.after_optimizer_step()
    assert torch.equal(slot.weight(), before)


@pytest.mark.parametrize("name", cases.CASES)
def test_a_slot_is_saved_whole(name: str) -> None:
    slot = trained(name)
    expected = slot.weight()
    file = io.BytesIO()
    torch.save(slot, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False).weight(), expected)


@pytest.mark.parametrize("name", cases.CASES)
def test_a_parametrized_weight_trains_and_is_saved_by_state_dict(name: str) -> None:
    linear = constrain(nn.Linear(6, 6), "weight", cases.CASES[name]())
    linear(torch.randn(3, 6)).square().sum().backward()
    assert all(parameter.grad is not None for parameter in linear.parameters() if parameter.requires_grad)
    assert all(parameter.requires_grad == (parameter.numel() > 0) for parameter in linear.parameters())
    other = constrain(nn.Linear(6, 6), "weight", cases.CASES[name]())
    other.load_state_dict(linear.state_dict())
    assert torch.equal(other.weight, linear.weight)


@pytest.mark.parametrize("name", cases.CASES)
def test_a_parametrized_module_can_be_copied_after_a_forward(name: str) -> None:
    linear = constrain(nn.Linear(6, 6), "weight", cases.CASES[name]())
    linear(torch.randn(3, 6))
    assert torch.equal(copy.deepcopy(linear).weight, linear.weight)


@pytest.mark.parametrize("name", cases.INVERTIBLE)
def test_a_constraint_goes_through_torchs_own_parametrize(name: str) -> None:
    linear = nn.Linear(6, 6, dtype=torch.float64)
    matrix = member(name, 6, seed=3, determinant=-1)
    with torch.no_grad():
        linear.weight.copy_(matrix)
    parametrize.register_parametrization(linear, "weight", cases.CASES[name]())
    again = member(name, 6, seed=4)
    hard = 1e3 if name == "cayley" else 16.0
    assert torch.linalg.matrix_norm(linear.weight - matrix, 2) <= hard * rounding(6)
    linear.weight = again
    assert torch.linalg.matrix_norm(linear.weight - again, 2) <= hard * rounding(6)


@pytest.mark.parametrize("name", cases.NOT_INVERTIBLE)
def test_a_map_without_inverse_can_be_parametrized_from_a_sample(name: str) -> None:
    linear = constrain(nn.Linear(6, 6, dtype=torch.float64), "weight", cases.CASES[name]())
    assert linear.parametrizations["weight"][0].violation(linear.weight) <= rounding(6)


@pytest.mark.parametrize("name", cases.CASES)
def test_a_functional_call_uses_the_raw_tensors_given(name: str) -> None:
    reader = Reader(trained(name))
    raw = dict(reader.named_parameters())
    new = dict(zip(raw, gaussian_like(tuple(raw.values()), 3, dtype=torch.float32), strict=True))
    weight = torch.func.functional_call(reader, new, (torch.eye(6),)).mT
    torch.testing.assert_close(weight, reader.slot.constraint(*new.values()))


@pytest.mark.parametrize("name", cases.CASES)
def test_a_constraint_compiles_as_one_graph(name: str) -> None:
    torch._dynamo.reset()
    constraint = cases.CASES[name]()
    raw = [tensor.requires_grad_() for tensor in gaussian_like(constraint.raw(6, 6), seed=1)]
    compiled = torch.compile(constraint, fullgraph=True, backend="aot_eager")
    functional = torch.randn(6, 6, dtype=torch.float64)
    eager = torch.autograd.grad((constraint(*raw) * functional).sum(), raw, materialize_grads=True)
    matrix = compiled(*raw)
    torch.testing.assert_close(matrix, constraint(*raw))
    gradient = torch.autograd.grad((matrix * functional).sum(), raw, materialize_grads=True)
    torch.testing.assert_close(gradient, eager)


@pytest.mark.parametrize("name", cases.CASES)
def test_autocast_does_not_touch_the_weight(name: str) -> None:
    slot, linear = trained(name), constrain(nn.Linear(6, 6), "weight", cases.CASES[name]())
    expected = slot.weight(), linear.weight
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(slot.weight(), expected[0])
        assert torch.equal(linear.weight, expected[1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", [name for name in cases.CASES if name not in cases.PENALTIES])
def test_a_slot_in_half_precision_is_a_member_up_to_its_rounding(name: str, dtype: torch.dtype) -> None:
    slot = trained(name, dtype=torch.float32).to(dtype)
    slot.after_optimizer_step()
    weight = slot.weight()
    assert weight.dtype == dtype
    assert slot.constraint.violation(weight) <= rounding(6, dtype)


@pytest.mark.parametrize("name", [name for name in cases.CASES if name not in cases.PENALTIES])
def test_a_fresh_slot_starts_inside_the_set_in_float64(name: str) -> None:
    slot = Slot(cases.CASES[name](), 6, 6, dtype=torch.float64)
    assert slot.weight().dtype == torch.float64
    assert slot.constraint.violation(slot.weight()) <= rounding(6)
    slot.reset()
    assert slot.constraint.violation(slot.weight()) <= rounding(6)


@pytest.mark.parametrize("name", [name for name in cases.CASES if name not in (*cases.PENALTIES, *cases.PROJECTIONS)])
def test_a_slot_that_is_widened_is_inside_the_set_at_once(name: str) -> None:
    slot = trained(name).double()
    assert slot.constraint.violation(slot.weight()) <= rounding(6)


@pytest.mark.parametrize("name", [*cases.RECENTRED, *cases.PROJECTIONS])
def test_a_state_dict_from_outside_the_set_is_refused(name: str) -> None:
    slot = trained(name)
    state = {key: 3 * tensor if tensor.is_floating_point() else tensor for key, tensor in slot.state_dict().items()}
    with pytest.raises(ConstraintError, match="A loaded weight is outside the set"):
        Slot(cases.CASES[name](), 6, 6).load_state_dict(state)


@pytest.mark.parametrize("name", [*cases.RECENTRED, *cases.PROJECTIONS])
def test_a_float32_state_dict_is_inside_the_set_in_float64(name: str) -> None:
    slot, wide = trained(name), Slot(cases.CASES[name](), 6, 6, dtype=torch.float64)
    wide.load_state_dict(slot.state_dict())
    assert wide.constraint.violation(wide.weight()) <= rounding(6)
    torch.testing.assert_close(wide.weight().float(), slot.weight(), rtol=0, atol=rounding(6, torch.float32))


@pytest.mark.parametrize("name", cases.CASES)
def test_two_slots_made_of_one_template_are_apart(name: str) -> None:
    template = cases.CASES[name]()
    first, second = Slot(template, 6, 6), Slot(template, 4, 4)
    assert (first.weight().shape, second.weight().shape) == ((6, 6), (4, 4))
    assert template.rows == 0


KEYS: dict[str, list[str]] = {
    "free": ["raw0"],
    "irnn": ["raw0"],
    "ornn": ["raw0", "constraint.sign"],
    "spectral": ["raw0", "raw1", "raw2", "constraint.sign"],
    "exp": ["raw0", "constraint.factor.base"],
    "exp-lie": ["raw0", "constraint.factor.base"],
    "exp-printed": ["raw0", "constraint.factor.base"],
    "cayley": ["raw0", "constraint.factor.base"],
    "factorized": ["raw0", "raw1", "raw2", "constraint.left.base", "constraint.right.base"],
    "unitary": ["raw0", "raw1", "constraint.permutation"],
    "unitary-full": ["raw0"],
    "ball": ["raw0"],
    "polar": ["raw0"],
}
"""The keys of a state dict, in which weights have been saved: a change would make them useless."""


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_a_state_dict_has_the_keys_that_it_always_had(name: str) -> None:
    assert list(Slot(CONSTRAINTS[name](), 6, 6).state_dict()) == KEYS[name]
