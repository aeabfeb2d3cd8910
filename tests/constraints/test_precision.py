"""Half precision and torch's default dtype, on every way to a constrained weight."""

import pytest
import torch
from torch import Tensor, nn

import steadyrnn as sr
from steadyrnn.constraints.base import widen, working_dtype
from tests.constraints.cases import CASES, INVERTIBLE, PENALTIES, rounding
from tests.support.modules import DTYPES, default_dtype

HALVES = [torch.float16, torch.bfloat16]
PROMISES = [name for name in CASES if name not in PENALTIES]
SIZE = 6

every_half = pytest.mark.parametrize("dtype", HALVES, ids=str)
every_constraint = pytest.mark.parametrize("name", PROMISES)


def violation(linear: nn.Module) -> float:
    return float(linear.parametrizations["weight"][0].violation(linear.weight))


def assert_learns(linear: nn.Module, dtype: torch.dtype) -> None:
    """Check that a constrained layer runs, learns, and stays in its set up to the rounding of its dtype."""
    optimizer = torch.optim.SGD(linear.parameters(), lr=0.01)
    sr.attach_projection(optimizer, linear)
    assert linear.weight.dtype == dtype
    assert violation(linear) <= rounding(SIZE, dtype)
    output = linear(torch.ones(2, SIZE, dtype=dtype))
    assert output.dtype == dtype
    output.float().square().sum().backward()
    assert all(parameter.grad.dtype == dtype for parameter in linear.parameters() if parameter.requires_grad)
    optimizer.step()
    assert violation(linear) <= rounding(SIZE, dtype)


@every_half
@every_constraint
def test_a_weight_in_half_precision_can_be_constrained(name: str, dtype: torch.dtype) -> None:
    assert_learns(sr.constrain(nn.Linear(SIZE, SIZE, dtype=dtype), "weight", CASES[name]()), dtype)


@every_half
@every_constraint
def test_a_constrained_weight_can_be_cast_to_half_precision(name: str, dtype: torch.dtype) -> None:
    assert_learns(sr.constrain(nn.Linear(SIZE, SIZE), "weight", CASES[name]()).to(dtype), dtype)


@pytest.mark.parametrize("init", ["project", "keep"])
@every_half
@pytest.mark.parametrize("name", [name for name in PROMISES if name in INVERTIBLE])
def test_a_weight_in_half_precision_is_projected_or_kept(name: str, dtype: torch.dtype, init: str) -> None:
    linear = nn.Linear(SIZE, SIZE, dtype=dtype)
    if init == "keep":
        with torch.no_grad():
            linear.weight.copy_(CASES[name]().sample(SIZE, SIZE))
    before = linear.weight.detach().clone()
    assert_learns(sr.constrain(linear, "weight", CASES[name](), init=init), dtype)
    if init == "keep":
        twin = sr.constrain(nn.Linear(SIZE, SIZE, dtype=dtype), "weight", CASES[name]())
        twin.weight = before
        assert float((twin.weight - before).detach().double().abs().max()) <= rounding(SIZE, dtype)


@every_half
def test_a_penalty_is_computed_in_single_precision(dtype: torch.dtype) -> None:
    linear = sr.constrain(nn.Linear(SIZE, SIZE, dtype=dtype), "weight", sr.Spectral(sigma="penalty"))
    assert sr.penalty(linear).dtype == dtype
    assert bool(sr.penalty(linear).isfinite())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@every_constraint
def test_a_sample_is_a_member_under_every_default_dtype(name: str, dtype: torch.dtype) -> None:
    with default_dtype(dtype):
        constraint = CASES[name]()
        sample = constraint.sample(SIZE, SIZE)
        linear = sr.constrain(nn.Linear(SIZE, SIZE), "weight", constraint)
        assert_learns(linear, dtype)
    assert sample.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert float(constraint.violation(sample)) <= rounding(SIZE, sample.dtype)


@every_constraint
def test_a_weight_under_autocast_is_the_one_outside(name: str) -> None:
    linear = sr.constrain(nn.Linear(SIZE, SIZE), "weight", CASES[name]())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = linear.weight
    assert inside.dtype == torch.float32
    assert torch.equal(inside, linear.weight)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_half_precision_is_widened_and_the_rest_is_left_alone(dtype: torch.dtype) -> None:
    given = torch.ones(2, dtype=dtype)
    (wide,) = widen(given)
    assert wide.dtype == (torch.float32 if dtype in HALVES else dtype)
    assert (wide is given) == (dtype not in HALVES)
    with default_dtype(dtype):
        assert working_dtype() == wide.dtype


def test_a_users_own_constraint_may_compute_in_another_dtype() -> None:
    class Wide(sr.Constraint):
        def raw(self, rows: int, columns: int) -> tuple[Tensor, ...]:
            self.fix_shape(rows, columns)
            return (torch.ones(rows, columns),)

        def forward(self, *raw: Tensor) -> Tensor:
            return raw[0].double()

        def invert(self, matrix: Tensor) -> tuple[Tensor, ...]:
            return (matrix,)

        def violation(self, matrix: Tensor) -> Tensor:
            return matrix.new_zeros(())

    assert Wide()(torch.ones(2, 2)).dtype == torch.float64
