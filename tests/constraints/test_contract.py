"""What every constraint promises, by its kind: it lands in its set, is inverted, and has exact gradients."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import forward_ad, gradcheck, gradgradcheck

from steadyrnn.constraints import Constraint
from steadyrnn.errors import ArgumentError, ConstraintError, NotFiniteError, NotInvertibleError, ShapeError
from tests.constraints.cases import (
    CASES,
    DTYPES,
    INVERTIBLE,
    MAPS,
    NOT_INVERTIBLE,
    PENALTIES,
    PROJECTIONS,
    RECENTRED,
    gaussian_like,
    member,
    outside,
    rounding,
    size_for,
)

SIZES = [1, 2, 3, 16, 17]
LANDING = [*MAPS, *RECENTRED, "exp-printed"]  # the wrong gradient of a baseline does not touch its value
CAYLEY = ["cayley", "factorized", "factorized-lie"]
seeds = st.integers(0, 2**32 - 1)


def made(name: str, size: int) -> tuple[Constraint, tuple[Tensor, ...]]:
    constraint = CASES[name]()
    return constraint, constraint.raw(size_for(name, size), size_for(name, size))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", LANDING)
@given(size=st.integers(1, 12), seed=seeds)
def test_forward_lands_in_the_set(name: str, dtype: torch.dtype, size: int, seed: int) -> None:
    constraint, raw = made(name, size)
    matrix = constraint(*gaussian_like(raw, seed, dtype=dtype))
    assert matrix.dtype == dtype
    assert constraint.violation(matrix) <= rounding(size_for(name, size), dtype)


@pytest.mark.parametrize("scale", [0.0, 1e-30, 10.0, 1e3, 1e5, 1e7, 1e10, 1e15, 1e20, 1e30])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", LANDING)
def test_forward_lands_in_the_set_from_wild_numbers(name: str, size: int, dtype: torch.dtype, scale: float) -> None:
    constraint, raw = made(name, size)
    matrix = constraint(*gaussian_like(raw, seed=size, scale=scale, dtype=dtype))
    assert constraint.violation(matrix) <= rounding(size_for(name, size), dtype)


@pytest.mark.parametrize("scale", [1.0, 1e6])
@pytest.mark.parametrize("name", CASES)
def test_a_weight_is_contiguous(name: str, scale: float) -> None:
    constraint, raw = made(name, 6)
    assert constraint(*gaussian_like(raw, seed=0, scale=scale)).is_contiguous()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("determinant", [1, -1])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", INVERTIBLE)
def test_a_member_is_what_its_raw_tensors_give(name: str, size: int, determinant: int, dtype: torch.dtype) -> None:
    matrix = member(name, size_for(name, size), seed=size, determinant=determinant, dtype=dtype)
    constraint = CASES[name]()
    assert constraint.invertible
    back = constraint(*constraint.right_inverse(matrix))
    allowed = rounding(size, dtype)
    if name in CAYLEY:  # an eigenvalue close to -1 costs digits both ways
        allowed *= float(torch.linalg.cond(torch.eye(len(matrix)) + matrix.double())) if name == "cayley" else 16
    assert torch.linalg.matrix_norm(back.double() - matrix.double(), 2) <= allowed


@pytest.mark.parametrize("name", INVERTIBLE)
@given(size=st.integers(1, 10), seed=seeds, determinant=st.sampled_from([1, -1]))
def test_assigning_twice_gives_the_second_matrix(name: str, size: int, seed: int, determinant: int) -> None:
    constraint, size = CASES[name](), size_for(name, size)
    constraint.right_inverse(member(name, size, seed % 1000, -determinant))
    matrix = member(name, size, seed % 1000 + 1, determinant)
    back = constraint(*constraint.right_inverse(matrix))
    hard = float(torch.linalg.cond(torch.eye(size) + matrix)) if name == "cayley" else 16.0
    assert torch.linalg.matrix_norm(back - matrix, 2) <= hard * rounding(size)


@pytest.mark.parametrize("name", NOT_INVERTIBLE)
def test_a_map_without_inverse_says_so(name: str) -> None:
    constraint = CASES[name]()
    with pytest.raises(NotInvertibleError, match="no right inverse"):
        constraint.right_inverse(member(name, 6, seed=0))
    assert not constraint.invertible


@pytest.mark.parametrize("name", [name for name in INVERTIBLE if name not in ("free", "irnn")])
def test_a_matrix_outside_the_set_is_refused_with_its_violation(name: str) -> None:
    constraint = CASES[name]()
    with pytest.raises(ConstraintError, match=r"violation [\d.]+, allowed for rounding"):
        constraint.right_inverse(outside(name, 6, seed=1))


@pytest.mark.parametrize("name", [name for name in INVERTIBLE if name not in ("free", "irnn", *PENALTIES)])
def test_a_matrix_outside_the_set_is_projected_where_requested(name: str) -> None:
    constraint = CASES[name]()
    constraint.projects = True
    generator = torch.Generator().manual_seed(5)
    given = member(name, 6, seed=1) + 0.2 * torch.randn(6, 6, generator=generator, dtype=torch.float64)
    matrix = constraint(*constraint.right_inverse(given))
    assert constraint.violation(matrix) <= rounding(6)
    torch.testing.assert_close(matrix, constraint.project(given), rtol=0, atol=64 * rounding(6))


@pytest.mark.parametrize("name", CASES)
def test_a_matrix_that_is_not_finite_is_refused(name: str) -> None:
    with pytest.raises((NotFiniteError, NotInvertibleError)):
        CASES[name]().right_inverse(torch.full((4, 4), torch.nan))


@pytest.mark.parametrize("name", INVERTIBLE)
def test_a_matrix_of_another_shape_is_refused(name: str) -> None:
    constraint, _ = made(name, 4)
    with pytest.raises(ShapeError, match=r"must have shape \(4, 4\)"):
        constraint.right_inverse(torch.eye(6))


@pytest.mark.parametrize("name", CASES)
def test_violation_of_a_matrix_that_is_not_finite_is_no_small_number(name: str) -> None:
    constraint, _ = made(name, 4)
    if name not in ("free", "irnn"):
        assert not constraint.violation(torch.full((4, 4), torch.nan)) <= 1e300


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", CASES)
@given(size=st.integers(1, 9), seed=seeds)
def test_violation_of_a_member_is_rounding(name: str, dtype: torch.dtype, size: int, seed: int) -> None:
    size = size_for(name, size)
    constraint, _ = made(name, size)
    assert constraint.violation(member(name, size, seed % 1000, dtype=dtype)) <= rounding(size, dtype)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("name", [*MAPS, *RECENTRED])
def test_gradients_are_exact_twice(name: str, size: int) -> None:
    constraint, raw = made(name, size)
    inputs = [tensor.requires_grad_() for tensor in gaussian_like(raw, seed=size + 7)]
    if all(tensor.numel() == 0 for tensor in inputs):
        pytest.skip("nothing to differentiate: one number has no rotation")
    assert gradcheck(constraint, inputs)
    assert gradgradcheck(constraint, inputs)


def _difference(constraint: Constraint, raw: tuple[Tensor, ...], tangents: tuple[Tensor, ...]) -> Tensor:
    step = 1e-5
    ahead, behind = ([r + sign * step * t for r, t in zip(raw, tangents, strict=True)] for sign in (1, -1))
    return (constraint(*ahead) - constraint(*behind)) / (2 * step)


@pytest.mark.parametrize("way", ["func", "dual"])
@pytest.mark.parametrize("name", [*MAPS, *RECENTRED, *PROJECTIONS])
def test_forward_mode_is_right_or_refused(name: str, way: str) -> None:
    constraint, raw = made(name, 5)
    raw, tangents = gaussian_like(raw, seed=3), gaussian_like(raw, seed=4)
    try:
        if way == "func":
            tangent = torch.func.jvp(constraint, raw, tangents)[1]
        else:
            with forward_ad.dual_level():
                dual = constraint(*(forward_ad.make_dual(r, t) for r, t in zip(raw, tangents, strict=True)))
                tangent = forward_ad.unpack_dual(dual).tangent
    except (NotImplementedError, RuntimeError):
        return
    torch.testing.assert_close(tangent, _difference(constraint, raw, tangents), rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", [*MAPS, *RECENTRED])
def test_a_float32_gradient_is_the_float64_one(name: str) -> None:
    constraint, raw = made(name, 16)
    narrow = [tensor.requires_grad_() for tensor in gaussian_like(raw, seed=2, dtype=torch.float32)]
    functional = gaussian_like((torch.empty(16, 16),), seed=9)[0].float()
    single = torch.autograd.grad((constraint(*narrow) * functional).sum(), narrow, materialize_grads=True)
    wide = [tensor.detach().double().requires_grad_() for tensor in narrow]
    truth = torch.autograd.grad((constraint(*wide) * functional).sum(), wide, materialize_grads=True)
    for got, expected in zip(single, truth, strict=True):
        assert (got.double() - expected).norm() <= 16 * rounding(16, torch.float32) * expected.norm().clamp(min=1)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", [name for name in PROJECTIONS if not name.endswith("clip")])
@given(size=st.integers(1, 12), seed=seeds, scale=st.sampled_from([0.0, 1e-30, 0.1, 1.0, 1e6]))
def test_a_projection_lands_in_the_set_and_stays(
    name: str,
    dtype: torch.dtype,
    size: int,
    seed: int,
    scale: float,
) -> None:
    constraint, raw = made(name, size)
    first = constraint.project(gaussian_like(raw, seed, scale, dtype)[0])
    assert constraint.violation(first) <= rounding(size, dtype)
    torch.testing.assert_close(constraint.project(first), first, rtol=0, atol=rounding(size, dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", PROJECTIONS)
@given(size=st.integers(1, 12), seed=seeds)
def test_a_projection_fixes_members(name: str, dtype: torch.dtype, size: int, seed: int) -> None:
    constraint, _ = made(name, size)
    inside = member(name, size, seed % 1000, determinant=-1, dtype=dtype)
    torch.testing.assert_close(constraint.project(inside), inside, rtol=0, atol=rounding(size, dtype))


@pytest.mark.parametrize("name", ["ball", "ball-small"])
@given(seed=seeds)
def test_a_projection_onto_a_convex_set_brings_no_member_farther(name: str, seed: int) -> None:
    constraint, raw = made(name, 6)
    outside, inside = gaussian_like(raw, seed)[0], member(name, 6, seed % 1000)
    near = constraint.project(outside)
    assert (near - inside).norm() <= (outside - inside).norm() + rounding(6)
    assert ((outside - near) * (inside - near)).sum() <= rounding(36)


@pytest.mark.parametrize("name", ["polar", "ornn", "exp", "cayley", "unitary-full"])
@given(seed=seeds)
def test_no_member_is_nearer_than_the_projection(name: str, seed: int) -> None:
    constraint, _ = made(name, 6)
    outside = gaussian_like((torch.empty(6, 6),), seed)[0]
    nearest = (outside - constraint.project(outside)).norm()
    for other in range(8):
        inside = member(name, 6, seed % 1000 + other, determinant=(-1) ** other)
        assert nearest <= (outside - inside).norm() + rounding(6)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", RECENTRED)
def test_recentring_keeps_the_matrix_and_zeroes_the_way_to_it(name: str, dtype: torch.dtype) -> None:
    constraint, raw = made(name, 16)
    raw = tuple(tensor.to(dtype) for tensor in raw)
    for step in range(100):
        raw = tuple(r + s for r, s in zip(raw, gaussian_like(raw, step, 0.1, dtype), strict=True))
        before = constraint(*raw)
        new = constraint.after_step(*raw)
        assert new is not None
        raw = new
        assert all(not tensor.any() for tensor in raw if tensor.shape == (120,))
        torch.testing.assert_close(constraint(*raw), before, rtol=0, atol=rounding(16, dtype))
        assert constraint.violation(before) <= rounding(16, dtype)


@pytest.mark.parametrize("name", [*MAPS, "exp-printed"])
def test_a_map_wants_nothing_after_a_step(name: str) -> None:
    constraint, raw = made(name, 4)
    assert constraint.after_step(*raw) is None


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", CASES)
def test_a_sample_is_a_member(name: str, size: int) -> None:
    size = size_for(name, size)
    constraint = CASES[name]()
    matrix = constraint.sample(size, size)
    assert matrix.shape == (size, size)
    assert not matrix.requires_grad
    assert constraint.violation(matrix) <= rounding(size, torch.float32)


@pytest.mark.parametrize("name", CASES)
def test_samples_differ(name: str) -> None:
    constraint = CASES[name]()
    same = torch.equal(constraint.sample(6, 6), constraint.sample(6, 6))
    assert same == (name == "irnn")


@pytest.mark.parametrize(
    "name",
    [name for name in CASES if name.startswith(("ornn", "exp", "cayley", "factorized", "unitary"))],
)
def test_a_rectangular_matrix_is_refused(name: str) -> None:
    with pytest.raises(ShapeError, match=r"needs a square matrix.*\(4, 6\).*`Spectral`"):
        CASES[name]().raw(4, 6)


@pytest.mark.parametrize("name", ["free", "spectral", "spectral-clip", "spectral-zero", "spectral-zero-clip", "ball", "polar"])
@pytest.mark.parametrize("shape", [(3, 7), (7, 3), (1, 4), (4, 1)], ids=str)
def test_a_rectangular_matrix_goes_through(name: str, shape: tuple[int, int]) -> None:
    constraint = CASES[name]()
    raw = gaussian_like(constraint.raw(*shape), seed=1)
    matrix = constraint.project(constraint(*raw))
    assert matrix.shape == shape
    assert constraint.violation(matrix) <= rounding(7)
    torch.testing.assert_close(constraint(*constraint.right_inverse(matrix)), matrix, rtol=0, atol=rounding(7))


@pytest.mark.parametrize("name", ["free", "irnn"])
def test_free_accepts_any_matrix(name: str) -> None:
    constraint = CASES[name]()
    matrix = 1e6 * torch.randn(3, 5)
    assert torch.equal(constraint(*constraint.right_inverse(matrix)), matrix)


def test_a_constraint_without_projection_says_so() -> None:
    class Odd(type(CASES["free"]())):  # type: ignore[misc]
        project = Constraint.project

    with pytest.raises(ArgumentError, match="has no projection"):
        Odd().project(torch.eye(2))
