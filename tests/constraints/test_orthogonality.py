"""How orthogonal the weights are in floating point: at the start, from awkward raw tensors, and after training."""

import pytest
import torch

from steadyrnn.constraints import Constraint, HouseholderOrthogonal, Spectral
from steadyrnn.constraints.orthogonality import distance_to_orthogonal, nearest_rotation, orthonormal
from tests.constraints.cases import CASES, DTYPES, gaussian_like, lapack_ratio, orthogonal, rounding, size_for

RATIO = 30.0
REFLECTORS = {"householder": HouseholderOrthogonal, "spectral": lambda: Spectral(radius=0.0)}
OTHERS = ["exp", "exp-lie", "exp-printed", "cayley", "factorized-lie", "unitary", "unitary-full", "polar"]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [1, 2, 3, 16, 17, 64, 129, 512, 1024])
@pytest.mark.parametrize("name", REFLECTORS)
def test_products_of_fresh_reflectors_have_a_small_lapack_ratio(name: str, size: int, dtype: torch.dtype) -> None:
    constraint = REFLECTORS[name]()
    with torch.no_grad():
        matrix = constraint(*(tensor.to(dtype) for tensor in constraint.raw(size, size)))
    assert lapack_ratio(matrix) <= RATIO


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [3, 16, 64, 129])
@pytest.mark.parametrize("name", OTHERS)
def test_other_fresh_matrices_have_a_small_lapack_ratio(name: str, size: int, dtype: torch.dtype) -> None:
    constraint = CASES[name]()
    raw = constraint.raw(size_for(name, size), size_for(name, size))
    if name == "polar":
        raw = (constraint.project(raw[0].to(dtype)),)
    matrix = constraint(*(tensor.to(dtype) for tensor in raw))
    assert lapack_ratio(matrix) <= RATIO


def _zero_some(raw: torch.Tensor) -> torch.Tensor:
    return raw * (torch.arange(raw.numel()) % 3 > 0)


def _mixed(raw: torch.Tensor) -> torch.Tensor:
    return raw * torch.tensor([1e-30, 1.0, 1e30])[torch.arange(raw.numel()) % 3]


AWKWARD = {
    "zero": torch.zeros_like,
    "tiny": lambda raw: 1e-30 * raw,
    "huge": lambda raw: 1e30 * raw,
    "some zero": _zero_some,
    "mixed": _mixed,
    "nearly parallel": lambda raw: 1 + 1e-4 * raw,
    "equal": torch.ones_like,
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", AWKWARD)
@pytest.mark.parametrize("size", [17, 64, 129])
@pytest.mark.parametrize("name", REFLECTORS)
def test_awkward_reflectors_do_not_break_orthogonality(name: str, size: int, kind: str, dtype: torch.dtype) -> None:
    constraint = REFLECTORS[name]()
    raw = constraint.raw(size, size)
    awkward = [AWKWARD[kind](tensor).to(dtype) for tensor in gaussian_like(raw, 0, dtype=torch.float32)]
    assert lapack_ratio(constraint(*awkward)) <= RATIO


def _train(constraint: Constraint, size: int, steps: int, lr: float) -> torch.Tensor:
    """Minimise a random linear functional by Adam and return the last matrix."""
    generator = torch.Generator().manual_seed(0)
    functional = torch.randn(size, size, generator=generator)
    raw = [tensor.requires_grad_() for tensor in constraint.raw(size, size)]
    optimizer = torch.optim.Adam(raw, lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        (constraint(*raw) * functional).sum().backward()
        optimizer.step()
        moved = constraint.after_step(*(tensor.detach() for tensor in raw))
        if moved is not None:
            with torch.no_grad():
                for tensor, value in zip(raw, moved, strict=True):
                    tensor.copy_(value)
    return constraint(*raw).detach()


@pytest.mark.slow
def test_ten_thousand_steps_keep_the_product_of_reflectors_orthogonal() -> None:
    matrix = _train(HouseholderOrthogonal(), 64, 10_000, lr=1e-2)
    assert lapack_ratio(matrix) <= RATIO


@pytest.mark.parametrize("name", [name for name in OTHERS if name != "factorized-lie"] + ["spectral-orthogonal"])
def test_three_hundred_steps_keep_other_matrices_orthogonal(name: str) -> None:
    matrix = _train(CASES[name](), 16, 300, lr=1e-2)
    assert lapack_ratio(matrix) <= RATIO


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_two_newton_steps_double_the_digits_twice(dtype: torch.dtype) -> None:
    wider = torch.float32 if dtype == torch.bfloat16 else torch.float64
    rounded = orthogonal(64, 0, 1).to(dtype).to(wider)
    assert distance_to_orthogonal(rounded) > 16 * rounding(1, wider)
    assert distance_to_orthogonal(orthonormal(rounded)) <= rounding(64, wider)


@pytest.mark.parametrize("determinant", [1, -1])
def test_the_nearest_rotation_turns_the_cheapest_direction(determinant: int) -> None:
    generator = torch.Generator().manual_seed(3)
    matrix = torch.randn(5, 5, generator=generator, dtype=torch.float64)
    matrix *= determinant * torch.linalg.det(matrix).sign()
    rotation = nearest_rotation(matrix)
    sigma = torch.linalg.svdvals(matrix)
    sigma[-1] *= determinant
    assert torch.linalg.det(rotation) > 0
    # trace inequality: no rotation has a larger inner product with the matrix
    torch.testing.assert_close((rotation * matrix).sum(), sigma.sum())


def test_distance_to_orthogonal_is_that_of_the_farthest_singular_value() -> None:
    matrix = orthogonal(3, 1, 1) @ torch.tensor([1.5, 1.0, 0.25], dtype=torch.float64).diag() @ orthogonal(3, 2, -1)
    torch.testing.assert_close(distance_to_orthogonal(matrix), torch.tensor(0.75, dtype=torch.float64))
