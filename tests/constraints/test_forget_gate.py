"""The rows of a forget gate that are nearest to given ones: laws of the projection."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from steadyrnn.constraints.forget_gate import ForgetGate, ForgetLimits, project_forget_gate
from tests.constraints.cases import DTYPES
from tests.linalg.matrices import distance, gaussian, rounding


def project(w: Tensor, u: Tensor, b: Tensor, bound: float, input_bound: float) -> tuple[Tensor, Tensor, Tensor]:
    gate = project_forget_gate(ForgetGate(w, u, (b,)), ForgetLimits(bound, math.inf, input_bound))
    return gate.w, gate.u, gate.biases[0]


def left_side(w: Tensor, u: Tensor, b: Tensor, input_bound: float) -> Tensor:
    return w.double().abs().sum(dim=1) + input_bound * u.double().abs().sum(dim=1) + b.double()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bound", [-3.0, 0.0, 0.58])
@given(seed=st.integers(0, 2**31), input_bound=st.floats(0, 3))
def test_projected_forget_rows_are_inside_as_stored_and_twice_changes_nothing(
    dtype: torch.dtype, bound: float, seed: int, input_bound: float
) -> None:
    case = [gaussian(*shape, seed=seed + i, dtype=dtype) for i, shape in enumerate([(4, 4), (4, 3), (4,)])]
    once = project(case[0], case[1], case[2], bound, input_bound)
    assert float(left_side(*once, input_bound).max()) <= bound
    for first, second in zip(once, project(*once, bound, input_bound), strict=True):
        assert torch.equal(first, second)


@given(seed=st.integers(0, 2**31), input_bound=st.floats(0, 3))
def test_nothing_in_the_set_is_on_the_far_side_of_a_projected_forget_row(seed: int, input_bound: float) -> None:
    bound = 0.58
    w, u, b = gaussian(1, 4, seed=seed), gaussian(1, 3, seed=seed + 1), 1 + gaussian(1, seed=seed + 2).abs()
    pw, pu, pb = project(w, u, b, bound, input_bound)
    normal = torch.cat([w - pw, u - pu, (b - pb).unsqueeze(1)], dim=1)  # must be normal to the set at the projection
    here = float((normal * torch.cat([pw, pu, pb.unsqueeze(1)], dim=1)).sum())
    for other_seed in range(20):
        zw, zu = gaussian(1, 4, seed=other_seed), gaussian(1, 3, seed=other_seed + 100)
        zb = bound - left_side(zw, zu, torch.zeros(1), input_bound)  # on the boundary
        there = float((normal * torch.cat([zw, zu, zb.unsqueeze(1)], dim=1)).sum())
        assert there <= here + rounding(8, 8)


def test_the_forget_rows_shrink_by_one_level() -> None:
    w, u, b = torch.tensor([[1.0, -0.1]]), torch.tensor([[1.0]]), torch.tensor([1.0])
    new_w, new_u, new_b = project(w, u, b, 1.0, 2.0)  # 1.1 + 2 + 1 - 1 = 3.1 too much
    level = 3.0 / 6  # without the small entry: (1 - m) + 2 (1 - 2 m) + (1 - m) = 1
    expected = torch.tensor([[1 - level, 0.0]]), torch.tensor([[1 - 2 * level]]), torch.tensor([1 - level])
    for got, e in zip((new_w, new_u, new_b), expected, strict=True):
        assert distance(got, e) <= rounding(2, dtype=torch.float32)


def test_forget_rows_inside_come_back_as_they_are() -> None:
    w, u, b = torch.full((2, 2), 0.1), torch.full((2, 1), 0.1), torch.tensor([0.0, 5.0])
    new = project(w, u, b, 0.5, 1.0)
    for old, got in zip((w, u, b), new, strict=True):
        assert torch.equal(got[0], old[0])
        assert not torch.equal(got[1], old[1])
