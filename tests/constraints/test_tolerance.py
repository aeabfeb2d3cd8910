"""What rounding may do to a weight: it follows the weight, members in every dtype are taken, others are not."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from steadyrnn.constraints import (
    CayleySpectral,
    Constraint,
    ExpOrthogonal,
    Free,
    FullUnitary,
    PolarOrthogonal,
    Spectral,
    SpectralBall,
    StableLSTM,
)
from steadyrnn.constraints.registry import CONSTRAINTS
from steadyrnn.constraints.slot import Slot, membership_of
from steadyrnn.constraints.tolerance import entry_rounding, membership_tolerance
from steadyrnn.errors import ConstraintError
from steadyrnn.layers.lstm import LSTM
from tests.constraints.cases import CASES, INVERTIBLE, PENALTIES, gaussian_like, member, orthogonal, size_for

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
SCALED = {
    "ball-tiny": lambda: SpectralBall(1e-4),
    "ball-large": lambda: SpectralBall(1e4),
    "spectral-tiny": lambda: Spectral(center=1e-3, radius=1e-3),
    "spectral-tiny-clip": lambda: Spectral(center=1e-3, radius=5e-4, sigma="clip"),
    "spectral-zero-tiny": lambda: Spectral(center=0.0, radius=1e-4),
    "spectral-large": lambda: Spectral(center=1e3, radius=10.0),
    "spectral-large-clip": lambda: Spectral(center=1e3, radius=10.0, sigma="clip"),
    "factorized-tiny": lambda: CayleySpectral(center=1e-3, radius=1e-4),
}
SETS = {name: make for name, make in CASES.items() if name not in PENALTIES} | SCALED

every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
every_set = pytest.mark.parametrize("name", SETS)
seeds = st.integers(0, 2**32 - 1)


def produced(name: str, size: int, seed: int, dtype: torch.dtype) -> Slot:
    """Return a slot in a dtype with random raw tensors, put back as after a step; some singular values are at the ends."""
    torch.manual_seed(seed)
    slot = Slot(SETS[name](), size, size, dtype=dtype)
    drawn = gaussian_like(slot.raws(), seed, scale=3.0)
    slot.write(tuple(value.to(dtype) for value in drawn))
    slot.after_optimizer_step()
    return slot


def assert_taken(name: str, size: int, seed: int, dtype: torch.dtype) -> None:
    """Check that what a constraint made is a member wherever membership is decided."""
    slot = produced(name, size, seed, dtype)
    weight = slot.weight().detach()
    found = membership_of(slot.constraint, weight)
    assert found.violation <= found.allowed
    slot.load_state_dict(slot.state_dict())
    if slot.constraint.invertible:
        twin = Slot(SETS[name](), size, size, dtype=dtype)
        twin.assign(weight)
        twin.constraint.right_inverse(weight)
        twin.assign(slot.constraint(*(raw.double() for raw in slot.raws())).detach().to(dtype))


@every_dtype
@every_set
@given(size=st.integers(1, 24), seed=seeds)
def test_a_member_that_a_constraint_made_is_taken_in_every_dtype(name: str, dtype: torch.dtype, size: int, seed: int) -> None:
    assert_taken(name, size_for(name, size), seed, dtype)


@every_dtype
@every_set
def test_a_large_member_is_taken_in_every_dtype(name: str, dtype: torch.dtype) -> None:
    assert_taken(name, 128, 0, dtype)


@every_dtype
@pytest.mark.parametrize("name", [name for name in CONSTRAINTS if name not in PENALTIES])
def test_a_member_of_512_rows_is_taken_in_every_dtype(name: str, dtype: torch.dtype) -> None:
    assert_taken(name, 512, 0, dtype)


@every_dtype
@given(rows=st.integers(1, 12), columns=st.integers(1, 12), seed=seeds, power=st.integers(-8, 8))
def test_a_rounded_matrix_moves_by_less_than_half_the_tolerance(
    dtype: torch.dtype, rows: int, columns: int, seed: int, power: int
) -> None:
    """The rounding of float64 entries is one of the two roundings that the tolerance counts."""
    exact = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 10.0**power
    stored = exact.clamp(-torch.finfo(dtype).max, torch.finfo(dtype).max).to(dtype)
    moved = (stored.double() - exact.clamp(-torch.finfo(dtype).max, torch.finfo(dtype).max)).abs()
    assert bool((moved <= entry_rounding(stored)).all())
    assert float(torch.linalg.matrix_norm(moved, 2)) <= membership_tolerance(stored) / 2


def test_some_matrix_moves_by_almost_half_the_storing_term() -> None:
    exact = torch.full((64, 64), 1 + 0.999 * 2**-8, dtype=torch.float64)  # each entry rounds down by almost half a spacing
    moved = torch.linalg.matrix_norm(exact.bfloat16().double() - exact, 2)
    assert float(moved) >= 0.9 * membership_tolerance(exact.bfloat16()) / 2


def kronecker(factor: Tensor, size: int) -> Tensor:
    """Return the largest Kronecker power of a matrix with at most that many rows: few distinct entries."""
    power = factor.new_ones(1, 1)
    while power.shape[0] * factor.shape[0] <= size:
        power = torch.kron(power, factor)
    return power


def reflection(size: int) -> Tensor:
    """Return the reflection at the vector of ones."""
    return torch.eye(size, dtype=torch.float64) - 2 / size


def rotation(angle: float) -> Tensor:
    """Return a rotation of the plane."""
    cos, sin = math.cos(angle), math.sin(angle)
    return torch.tensor([[cos, -sin], [sin, cos]], dtype=torch.float64)


def hartley(size: int) -> Tensor:
    """Return the orthogonal Hartley matrix, a real relative of Fourier's."""
    at = torch.arange(size, dtype=torch.float64)
    angle = 2 * math.pi * torch.outer(at, at).remainder(size) / size
    return (angle.cos() + angle.sin()) / math.sqrt(size)


def circulant(size: int) -> Tensor:
    """Return a random orthogonal circulant matrix: its eigenvalues, the transform of its first row, have modulus 1."""
    drawn = torch.randn(size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    first = torch.fft.ifft(torch.fft.fft(drawn).sgn()).real
    return torch.stack([first.roll(shift) for shift in range(size)])


ORTHOGONAL = {
    "random": lambda size: orthogonal(size, 0, 1),
    "identity": lambda size: torch.eye(size, dtype=torch.float64),
    "permutation": lambda size: torch.eye(size, dtype=torch.float64).flip(0),
    "reflection": reflection,
    "hadamard": lambda size: kronecker(rotation(math.pi / 4), size),
    "rotations": lambda size: kronecker(rotation(0.6), size),
    "rotations-other": lambda size: kronecker(rotation(2.2), size),
    "reflections-5": lambda size: kronecker(reflection(5), size),
    "reflections-7": lambda size: kronecker(reflection(7), size),
    "hartley": hartley,
    "circulant": circulant,
    "block": lambda size: torch.block_diag(*[orthogonal(min(size, 8), seed, 1) for seed in range(-(-size // 8))]),
}
RANK_ONE = {
    "all-equal": lambda size: torch.full((size, size), 1 / size, dtype=torch.float64),
    "random-rank-one": lambda size: orthogonal(size, 0, 1)[:, :1] @ orthogonal(size, 1, 1)[:1],
}
MEMBERS = ORTHOGONAL | RANK_ONE
SIZES = [1, 3, 17, 64, 512]


@pytest.mark.parametrize("dtype", DTYPES[:-1], ids=str)  # float64 holds the exact matrix
@pytest.mark.parametrize("scale", [1.0, 1e-3])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", MEMBERS)
def test_the_storing_term_holds_the_rounding_of_a_structured_member_and_of_raw_tensors(
    name: str, size: int, scale: float, dtype: torch.dtype
) -> None:
    exact = scale * MEMBERS[name](size)
    stored = exact.to(dtype)
    moved = torch.linalg.matrix_norm(stored.double() - exact, 2)
    norm = torch.linalg.matrix_norm(stored.double(), 2)
    computing = 16 * max(exact.shape) * min(torch.finfo(dtype).eps, torch.finfo(torch.float32).eps) * norm
    raw = torch.finfo(dtype).eps / 2 * norm
    assert float(moved + raw + computing) <= membership_tolerance(stored)


@every_dtype
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ORTHOGONAL)
def test_a_structured_orthogonal_matrix_is_taken_in_every_dtype(name: str, size: int, dtype: torch.dtype) -> None:
    stored = ORTHOGONAL[name](size).to(dtype)
    for constraint in (SpectralBall(1.0), PolarOrthogonal()):
        constraint.right_inverse(stored)


def test_errors_that_are_arranged_on_purpose_exceed_the_tolerance() -> None:
    """The bound above 49 rows holds in probability only: here all errors have the sign of one rank-one matrix."""
    flat = kronecker(rotation(math.pi / 4), 512).sign() / 32
    exact = flat + 0.99 * 2.0**-9 / 32  # half a spacing is 2**-8 of 1/32 above it, 2**-9 below it
    moved = torch.linalg.matrix_norm(exact.bfloat16().double() - exact, 2)
    assert membership_tolerance(exact.bfloat16()) < float(moved)


def relative(size: int, dtype: torch.dtype) -> float:
    """Return the most that the tolerance of a square matrix may be, relative to its norm.

    The Frobenius norm is at most sqrt(N) norms; rows and columns are no longer than the norm.
    """
    work = min(torch.finfo(dtype).eps, torch.finfo(torch.float32).eps)
    return min(math.sqrt(size), 4) * torch.finfo(dtype).eps + 16 * size * work


def largest(name: str, size: int) -> tuple[Constraint, Tensor]:
    """Return a constraint with a member whose singular values are all the largest ones of the set."""
    constraint = SETS[name]()
    match constraint:
        case SpectralBall():
            return constraint, constraint.bound * orthogonal(size, 0, 1)
        case Spectral() | CayleySpectral():
            return constraint, (constraint.center + constraint.radius) * orthogonal(size, 0, 1)
        case _:
            return constraint, member(name, size, 0)


@every_dtype
@pytest.mark.parametrize("size", [2, 16, 256])
@pytest.mark.parametrize(
    "name", [name for name in [*INVERTIBLE, *SCALED] if name in SETS and not isinstance(SETS[name](), Free)]
)
def test_a_matrix_outside_by_more_than_rounding_is_refused(name: str, size: int, dtype: torch.dtype) -> None:
    constraint, edge = largest(name, size)
    slot = Slot(constraint, size, size, dtype=dtype)
    # near 0 the spacing of float16 is that of its least number, whatever the weight
    least = size * torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps / float(torch.linalg.matrix_norm(edge, 2))
    beyond = (1 + 2 * (relative(size, dtype) + least)) * edge
    with pytest.raises(ConstraintError, match="violation"):
        slot.assign(beyond.to(dtype))
    with pytest.raises(ConstraintError, match="violation"):
        slot.constraint.right_inverse(beyond.to(dtype))


@pytest.mark.parametrize(
    ("bound", "size", "scale", "dtype"),
    [
        (0.99, 256, 20.0, torch.bfloat16),
        (0.99, 256, 1.02, torch.bfloat16),
        (0.99, 512, 1.01, torch.float16),
        (1e-4, 256, 5e-4, torch.float32),
        (1e-4, 256, 1.01e-4, torch.float32),
        (1e-12, 8, 1.01e-12, torch.float64),
    ],
)
def test_a_scaled_identity_outside_a_ball_is_refused_on_every_way(
    bound: float, size: int, scale: float, dtype: torch.dtype
) -> None:
    outside = (scale * torch.eye(size)).to(dtype)
    slot = Slot(SpectralBall(bound), size, size, dtype=dtype)
    with pytest.raises(ConstraintError, match="violation"):
        slot.assign(outside)
    with pytest.raises(ConstraintError, match="violation"):
        slot.load_state_dict({"raw0": outside})
    with pytest.raises(ConstraintError, match="violation"):
        SpectralBall(bound).right_inverse(outside)


@pytest.mark.parametrize(
    ("make", "scale", "dtype"),
    [
        *((lambda: SpectralBall(1.0), scale, torch.bfloat16) for scale in (1.12, 1.05)),
        *((ExpOrthogonal, scale, torch.bfloat16) for scale in (0.95, 1.05, 1.1)),
        *((ExpOrthogonal, scale, torch.float16) for scale in (0.99, 1.01)),
        *((PolarOrthogonal, scale, torch.float32) for scale in (0.998, 1.002)),
    ],
)
@pytest.mark.parametrize("size", [300, 512])
def test_a_large_matrix_that_expands_or_shrinks_is_refused(
    make: Callable[[], Constraint], scale: float, dtype: torch.dtype, size: int
) -> None:
    outside = (scale * orthogonal(size, 0, 1)).to(dtype)
    with pytest.raises(ConstraintError, match="violation"):
        make().right_inverse(outside)
    with pytest.raises(ConstraintError, match="violation"):
        Slot(make(), size, size, dtype=dtype).assign(outside)


HUGE = [
    (1e150, torch.float64),
    (1e200, torch.float64),
    (1e300, torch.float64),
    (3e38, torch.float32),
    (3e38, torch.bfloat16),
    (6e4, torch.float16),
]


@pytest.mark.parametrize(("value", "dtype"), HUGE)
@pytest.mark.parametrize("make", [ExpOrthogonal, SpectralBall, lambda: SpectralBall(1e-30), FullUnitary, PolarOrthogonal])
@pytest.mark.parametrize("pattern", [torch.eye(4), torch.ones(4, 4)])
def test_a_huge_matrix_is_refused(make: Callable[[], Constraint], pattern: Tensor, value: float, dtype: torch.dtype) -> None:
    outside = value * pattern.to(dtype)
    assert 0 < membership_tolerance(outside) <= 4 * relative(4, dtype) * value  # the norm is at most 4 values
    with pytest.raises(ConstraintError, match="violation"):
        make().right_inverse(outside)
    with pytest.raises(ConstraintError, match="violation"):
        Slot(make(), 4, 4, dtype=dtype).assign(outside)


@pytest.mark.parametrize("bound", [1e-300, 1e-200, 1e200, 1e300])
def test_a_ball_of_any_size_takes_its_edge_and_no_more(bound: float) -> None:
    edge = bound * orthogonal(8, 0, 1)
    SpectralBall(bound).right_inverse(edge)
    with pytest.raises(ConstraintError, match="violation"):
        SpectralBall(bound).right_inverse((1 + 3 * relative(8, torch.float64)) * edge)


def test_a_tolerance_that_float64_cannot_hold_excuses_nothing() -> None:
    beyond = torch.full((8, 8), 1.7e308, dtype=torch.float64)  # the norm is 8 times as large
    assert membership_tolerance(beyond) == 0.0
    with pytest.raises(ConstraintError, match="violation"):
        SpectralBall(1.0).right_inverse(beyond)


@pytest.mark.parametrize("power", [-900, 900])
def test_the_tolerance_scales_over_the_range_of_float64(power: int) -> None:
    matrix = orthogonal(64, 0, 1)
    assert membership_tolerance(2.0**power * matrix) == pytest.approx(
        2.0**power * membership_tolerance(matrix), rel=1e-12, abs=0
    )


def test_a_matrix_that_float16_cannot_hold_is_outside() -> None:
    slot = Slot(SpectralBall(1.0), 2, 2, dtype=torch.float16)
    with pytest.raises(ConstraintError, match="violation"):
        slot.assign(1e6 * torch.eye(2))


@every_dtype
@given(size=st.integers(1, 12), seed=seeds, power=st.integers(-3, 3))
def test_the_tolerance_scales_with_the_matrix(dtype: torch.dtype, size: int, seed: int, power: int) -> None:
    matrix = (1 + torch.rand(size, size, generator=torch.Generator().manual_seed(seed))).to(dtype)
    scale = 2.0**power  # exact in every dtype
    assert membership_tolerance(scale * matrix) == pytest.approx(scale * membership_tolerance(matrix), rel=1e-12)
    assert membership_tolerance(matrix) <= relative(size, dtype) * float(torch.linalg.matrix_norm(matrix.double(), 2)) * 1.001


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_rounding_excuses_no_matrix_that_is_not_finite(value: float) -> None:
    assert membership_tolerance(torch.full((2, 2), value)) == 0.0
    assert membership_tolerance(torch.zeros(0, 3)) == 0.0


def test_the_coarser_dtype_counts() -> None:
    matrix = orthogonal(8, 0, 1)
    wide, narrow = membership_tolerance(matrix), membership_tolerance(matrix, torch.bfloat16)
    assert narrow > 1e6 * wide
    assert membership_tolerance(matrix.bfloat16(), torch.float64) == membership_tolerance(matrix.bfloat16())


def test_the_unitary_set_sees_a_rounded_member_of_any_origin_as_one() -> None:
    exact = member("unitary-full", 64, 0)
    bent = exact * (1 + 2.0**-9 * torch.sign(torch.randn(64, 64, generator=torch.Generator().manual_seed(0))))
    for matrix in (exact.bfloat16(), bent.bfloat16()):
        FullUnitary().right_inverse(matrix)


@every_dtype
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
@given(seed=seeds)
def test_a_stable_lstm_that_was_projected_and_rounded_is_a_member(dtype: torch.dtype, scale: float, seed: int) -> None:
    torch.manual_seed(seed)
    layer = LSTM(3, 8, transition=StableLSTM(input_bound=2.0), dtype=torch.float64)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_().mul_(scale)
    layer.after_optimizer_step()
    layer.to(dtype)
    layer.load_state_dict(layer.state_dict())


@every_dtype
@pytest.mark.parametrize("gate", range(4))
def test_a_stable_lstm_whose_row_is_beyond_rounding_is_refused(gate: int, dtype: torch.dtype) -> None:
    size, stable = 256, StableLSTM()
    layer = LSTM(3, size, transition=stable, dtype=dtype)
    state = {name: torch.zeros_like(value) for name, value in layer.state_dict().items()}
    state["bias_ih_l0"][size : 2 * size] = -30.0  # large numbers elsewhere, whose rounding is no excuse for this row
    row = state["weight_hh_l0"][gate * size]
    row[:] = stable.radii[gate] / size
    summed = 8 * (size + 8) * torch.finfo(torch.float64).eps
    row[0] += (4 * torch.finfo(dtype).eps + summed) * stable.radii[gate]
    with pytest.raises(ConstraintError, match="violation"):
        layer.load_state_dict(state)
