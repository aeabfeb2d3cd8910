"""The exponential of skew matrices, and its gradient at any angles."""

import math

import pytest
import scipy.linalg
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from steadyrnn.errors import DtypeError, ShapeError
from steadyrnn.linalg.exponential import angles_of_skew, exp_skew, skew_part, turn_planes
from tests.linalg.matrices import (
    distance,
    gaussian,
    gaussian_complex,
    orthogonal,
    orthogonality,
    relative,
    root_mean_defect,
    rounding,
    skew,
)

PI = math.pi


def scipy_exp(b: Tensor) -> Tensor:
    return torch.from_numpy(scipy.linalg.expm(b.numpy()))


def gradient(b: Tensor, g: Tensor) -> Tensor:
    leaf = b.clone().requires_grad_()
    return torch.autograd.grad(exp_skew(leaf), leaf, g)[0]


def cosine(a: Tensor, b: Tensor) -> float:
    return float((a * b).sum() / (a.norm() * b.norm()))


def real_route(b: Tensor) -> Tensor:
    """Return the exponential without complex numbers, from the eigenvectors of B'B."""
    squares, v = torch.linalg.eigh(b.mT @ b)
    angles = squares.clamp(min=0).sqrt()
    return (v * angles.cos()) @ v.mT + b @ (v * torch.sinc(angles / PI)) @ v.mT


def through_eigh(b: Tensor) -> Tensor:
    minus_angles, v = torch.linalg.eigh(1j * b)
    return ((v * torch.exp(-1j * minus_angles)) @ v.mH).real


def test_the_skew_part_is_the_nearest_skew_matrix() -> None:
    a, other = gaussian(5, 5), skew(5, 1.0, seed=1)
    part = skew_part(a)
    assert torch.equal(part, -part.mT)
    assert abs(float(((a - part) * other).sum())) <= rounding(5, 5)


def test_the_skew_part_of_a_complex_matrix_is_skew_hermitian() -> None:
    part = skew_part(gaussian_complex(4, 4))
    assert torch.equal(part, -part.mH)


@pytest.mark.parametrize("norm", [1e-8, 0.1, 1.0, 3.0, 10.0, 100.0])
@pytest.mark.parametrize("n", [1, 2, 3, 8, 33])
def test_exp_skew_agrees_with_scipy(n: int, norm: float) -> None:
    b = skew(n, norm) if n > 1 else torch.zeros(1, 1, dtype=torch.float64)
    assert distance(exp_skew(b), scipy_exp(b)) <= rounding(n) * max(norm, 1)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_exp_skew_of_complex_matrices_agrees_with_scipy(n: int) -> None:
    b = skew_part(gaussian_complex(n, n))
    assert distance(exp_skew(b), scipy_exp(b)) <= rounding(n, n)


def test_exp_skew_of_zero_is_the_identity() -> None:
    zero = torch.zeros(6, 6)
    assert torch.equal(exp_skew(zero), torch.eye(6))


def test_exp_skew_without_entries_has_none() -> None:
    assert exp_skew(torch.zeros(0, 0)).shape == (0, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("norm", [1.0, 10.0, 100.0])
@pytest.mark.parametrize("n", [2, 3, 17, 128])
def test_exp_skew_is_orthogonal_whatever_the_norm(n: int, norm: float, dtype: torch.dtype) -> None:
    assert orthogonality(exp_skew(skew(n, norm).to(dtype))) <= 30


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rank", [2, 4, 16, 17])
def test_turning_planes_is_the_exponential_also_where_angles_are_zero(rank: int, dtype: torch.dtype) -> None:
    b = skew_part((gaussian(17, rank, seed=0) @ gaussian(rank, 17, seed=1)) / 17).to(dtype)
    turned = turn_planes(*angles_of_skew(b))
    assert orthogonality(turned) <= 30
    assert distance(turned.double(), scipy_exp(b.double())) <= 17 * 16 * torch.finfo(dtype).eps


@given(n=st.integers(1, 9), seed=st.integers(0, 2**31))
def test_exp_skew_has_determinant_one(n: int, seed: int) -> None:
    b = skew_part(3 * gaussian(n, n, seed=seed))
    assert float(torch.linalg.det(exp_skew(b))) == pytest.approx(1, abs=rounding(n, n))


@pytest.mark.parametrize(("norm", "published"), [(1.0, 2.2e-6), (10.0, 1.8e-6), (100.0, 1.6e-6)])
def test_in_float32_it_is_closer_and_more_orthogonal_than_scaling_and_squaring(norm: float, published: float) -> None:
    b = skew_part(skew(256, norm).float())
    ours, squared, truth = exp_skew(b), torch.matrix_exp(b), scipy_exp(b.double())
    assert root_mean_defect(ours) <= published
    assert root_mean_defect(ours) < root_mean_defect(squared)
    assert distance(ours.double(), truth) < distance(squared.double(), truth)


@pytest.mark.parametrize("norm", [10.0, 100.0])
def test_in_float64_it_is_more_orthogonal_than_scaling_and_squaring(norm: float) -> None:
    b = skew(256, norm)
    assert root_mean_defect(exp_skew(b)) < root_mean_defect(torch.matrix_exp(b))


@pytest.mark.parametrize("norm", [1.0, 10.0, 100.0])
def test_the_real_route_loses_digits_as_the_square_of_the_norm(norm: float) -> None:
    b, round_off = skew_part(skew(256, norm).float()), 2.0**-24
    assert distance(real_route(b).double(), scipy_exp(b.double())) <= round_off * max(norm**2, 16)


def test_at_a_large_norm_the_hermitian_route_is_closer_than_the_real_one() -> None:
    b = skew_part(skew(256, 100.0).float())
    truth = scipy_exp(b.double())
    assert 2 * distance(exp_skew(b).double(), truth) < distance(real_route(b).double(), truth)


@pytest.mark.parametrize("norm", [0.1, 1.0, 3.0, 10.0])
def test_the_gradient_is_the_skew_part_of_the_frechet_derivative_of_the_transpose(norm: float) -> None:
    b, g = skew(8, norm), gaussian(8, 8, seed=1)
    frechet = scipy.linalg.expm_frechet(b.mT.numpy(), g.numpy(), compute_expm=False)
    assert distance(gradient(b, g), skew_part(torch.from_numpy(frechet))) <= rounding(8, 8)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_exp_of_the_skew_part_has_first_and_second_derivatives(n: int) -> None:
    a = gaussian(n, n).requires_grad_()
    assert gradcheck(lambda a: exp_skew(skew_part(a)), a)
    assert gradgradcheck(lambda a: exp_skew(skew_part(a)), a)


@pytest.mark.parametrize("n", [1, 3])
def test_exp_of_complex_skew_parts_has_first_and_second_derivatives(n: int) -> None:
    a = gaussian_complex(n, n).requires_grad_()
    assert gradcheck(lambda a: exp_skew(skew_part(a)), a)
    assert gradgradcheck(lambda a: exp_skew(skew_part(a)), a)


def test_derivatives_at_zero_are_right_where_all_angles_coincide() -> None:
    zero = torch.zeros(4, 4, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda a: exp_skew(skew_part(a)), zero)
    assert gradgradcheck(lambda a: exp_skew(skew_part(a)), zero)


def test_a_free_entry_has_twice_the_gradient_of_the_matrix() -> None:
    n, g = 4, gaussian(4, 4, seed=1)
    above = torch.triu_indices(n, n, 1)
    entries = gaussian(n * (n - 1) // 2).requires_grad_()
    upper = torch.zeros(n, n, dtype=torch.float64).index_put((above[0], above[1]), entries)
    b = upper - upper.mT
    (grad,) = torch.autograd.grad(exp_skew(b), entries, g)
    assert distance(grad, 2 * gradient(b.detach(), g)[above[0], above[1]]) <= rounding(n)


def test_the_gradient_agrees_with_finite_differences() -> None:
    b, g, step = skew(6, 2.0), gaussian(6, 6, seed=1), 1e-5
    direction = skew(6, 1.0, seed=2)
    difference = ((exp_skew(b + step * direction) - exp_skew(b - step * direction)) * g).sum() / (2 * step)
    assert float((gradient(b, g) * direction).sum()) == pytest.approx(float(difference), rel=1e-8)


def test_the_printed_direction_is_twice_the_gradient_at_zero_and_not_elsewhere() -> None:
    g = gaussian(6, 6, seed=1)
    zero, b = torch.zeros(6, 6, dtype=torch.float64), skew(6, 2.0)

    def printed(b: Tensor) -> Tensor:
        w = exp_skew(b)
        return g @ w.mT - w @ g.mT

    assert distance(printed(zero), 2 * gradient(zero, g)) <= rounding(6)
    assert relative(printed(b), 2 * gradient(b, g)) > 0.1


def test_the_printed_direction_is_exact_where_it_commutes() -> None:
    b = skew(2, 1.3)  # in the plane all rotations commute
    g, w = gaussian(2, 2, seed=1), exp_skew(b)
    assert distance(g @ w.mT - w @ g.mT, 2 * gradient(b, g)) <= rounding(2)


@pytest.mark.parametrize("norm", [0.1, 0.5, 1.0, 1.5])
def test_below_a_quarter_turn_the_printed_direction_descends_by_the_stated_cosine(norm: float) -> None:
    b = skew(8, norm)
    w = exp_skew(b)
    worst = min(cosine(skew_part(g @ w.mT), gradient(b, g)) for g in (gaussian(8, 8, seed=seed) for seed in range(100)))
    assert worst >= math.sin(2 * norm) / (2 * norm)


@pytest.mark.parametrize(
    ("norm", "published"),
    [(0.1, 0.9993), (0.5, 0.984), (1.0, 0.938), (1.5, 0.870), (2.0, 0.791), (3.0, 0.629), (5.0, 0.454), (10.0, 0.306)],
)
def test_the_mean_cosine_with_the_printed_direction_falls_as_stated(norm: float, published: float) -> None:
    b = skew(64, norm)
    w = exp_skew(b)
    cosines = [cosine(skew_part(g @ w.mT), gradient(b, g)) for g in (gaussian(64, 64, seed=seed) for seed in range(1, 4))]
    assert sum(cosines) / len(cosines) == pytest.approx(published, abs=0.02)  # another draw of B moves it by that


def test_beyond_a_quarter_turn_some_loss_rises_along_the_printed_direction() -> None:
    b = rotation_generator([2.2, -2.2], 4)  # angles 4.4 apart, where sin(x) / x is negative
    w = exp_skew(b)
    candidates = (skew(4, 1.0, seed=seed) @ w for seed in range(200))
    products = [float((skew_part(g @ w.mT) * gradient(b, g)).sum()) for g in candidates]
    worst = min(range(200), key=products.__getitem__)
    g, step = skew(4, 1.0, seed=worst) @ w, 1e-3
    s = skew_part(g @ w.mT)
    assert products[worst] < 0
    assert float(((exp_skew(b - step * 2 * s) - w) * g).sum()) > 0


def rotation_generator(angles: list[float], n: int) -> Tensor:
    b = torch.zeros(n, n, dtype=torch.float64)
    for index, angle in enumerate(angles):
        b[2 * index, 2 * index + 1], b[2 * index + 1, 2 * index] = -angle, angle
    return b


def test_the_inner_product_with_the_gradient_is_the_stated_sum() -> None:
    b, g = skew(6, 2.5), gaussian(6, 6, seed=1)
    s = skew_part(g @ exp_skew(b).mT)
    minus_angles, v = torch.linalg.eigh(1j * b)
    gaps = minus_angles.unsqueeze(0) - minus_angles.unsqueeze(1)
    inside = v.mH @ s.to(v.dtype) @ v
    expected = (inside.abs().square() * torch.sinc(gaps / PI)).sum()
    assert float((s * gradient(b, g)).sum()) == pytest.approx(float(expected), rel=rounding(6, 6))


def test_the_lowest_value_of_sin_x_over_x_is_the_stated_one() -> None:
    x = torch.linspace(4, 5, 100_001, dtype=torch.float64)
    values = x.sin() / x
    assert float(values.min()) == pytest.approx(-0.2172, abs=5e-5)
    assert float(x[values.argmin()]) == pytest.approx(4.493, abs=5e-4)


def test_a_component_between_angles_a_full_turn_apart_has_no_gradient() -> None:
    b = rotation_generator([PI, -PI], 4)  # all angles are plus or minus pi: exp is -I, whatever the planes
    g = gaussian(4, 4)
    turned = gradient(b, g)
    commuting = (turned - b @ turned @ b / PI**2) / 2  # its part that commutes with b
    assert distance(turned, commuting) <= rounding(4, 4)


@pytest.mark.parametrize("gap", [0.0, 1e-12])
def test_close_angles_spoil_the_derivative_of_eigenvectors_but_not_ours(gap: float) -> None:
    basis, g = orthogonal(6), gaussian(6, 6, seed=1)
    b = skew_part(basis @ rotation_generator([1.0, 1.0 + gap, 0.4], 6) @ basis.mT)
    frechet = scipy.linalg.expm_frechet(b.mT.numpy(), g.numpy(), compute_expm=False)
    truth = skew_part(torch.from_numpy(frechet))
    leaf = b.clone().requires_grad_()
    (naive,) = torch.autograd.grad(through_eigh(skew_part(leaf)), leaf, g)
    assert distance(gradient(b, g), truth) <= rounding(6)
    assert not distance(naive, truth) <= 1e-6


def test_at_zero_the_derivative_of_eigenvectors_is_not_a_number_but_ours_is() -> None:
    zero, g = torch.zeros(4, 4, dtype=torch.float64, requires_grad=True), gaussian(4, 4)
    (naive,) = torch.autograd.grad(through_eigh(skew_part(zero)), zero, g)
    assert bool(naive.isnan().any())
    assert distance(gradient(zero.detach(), g), skew_part(g)) <= rounding(4)


def test_the_gradient_in_float32_is_more_accurate_than_that_of_scaling_and_squaring() -> None:
    b, g = skew(128, 2.3), gaussian(128, 128, seed=1)
    truth = gradient(b, g)
    leaf = b.float().requires_grad_()
    (squared,) = torch.autograd.grad(torch.matrix_exp(skew_part(leaf)), leaf, g.float())
    ours = relative(gradient(b.float(), g.float()), truth)
    assert ours <= 1.9e-6
    assert ours < relative(squared, truth)


def test_a_multiplicative_step_descends_with_minus_and_ascends_with_plus() -> None:
    w, a = orthogonal(12, 1), gaussian(12, 12, seed=1)
    g = w - a
    direction = g @ w.mT - w @ g.mT

    def change(step: float) -> float:
        return float(((exp_skew(step * direction) @ w - a).square().sum() - (w - a).square().sum()) / 2)

    assert change(-1e-3) < 0 < change(1e-3)


def test_multiplicative_steps_converge_where_the_printed_additive_ones_do_not() -> None:
    n, step = 8, 0.05
    a = orthogonal(n, 1, seed=5)
    start = skew(n, 3.0)

    def loss(w: Tensor) -> float:
        return float((w - a).square().sum() / 2)

    w, b, rises = exp_skew(start), start, 0
    for _ in range(400):
        g = w - a
        w = exp_skew(-step * (g @ w.mT - w @ g.mT)) @ w
        v = exp_skew(b)
        b = b - step * ((v - a) @ v.mT - v @ (v - a).mT)
        rises += loss(exp_skew(b)) > loss(v)
    assert loss(w) <= rounding(n, n)
    assert rises > 0
    assert loss(exp_skew(b)) > 0.1


def test_exact_additive_steps_never_raise_the_loss() -> None:
    a, b, step = orthogonal(8, 1, seed=5), skew(8, 3.0), 0.05
    losses = []
    for _ in range(200):
        w = exp_skew(b)
        losses.append(float((w - a).square().sum() / 2))
        b = b - step * gradient(b, w - a)
    assert losses == sorted(losses, reverse=True)


def test_forward_mode_agrees_with_reverse_mode() -> None:
    a = gaussian(4, 4).requires_grad_()
    modes = {"check_forward_ad": True, "check_backward_ad": False, "check_undefined_grad": False}
    assert gradcheck(lambda a: exp_skew(skew_part(a)), a, **modes)


def test_functorch_transforms_agree_with_autograd() -> None:
    a = gaussian(4, 4)

    def function(a: Tensor) -> Tensor:
        return exp_skew(skew_part(a))

    expected = torch.autograd.functional.jacobian(function, a)
    assert distance(torch.func.jacrev(function)(a), expected) <= rounding(4, 4)
    assert distance(torch.func.jacfwd(function)(a), expected) <= rounding(4, 4)
    assert distance(torch.func.vmap(function)(torch.stack([a, 2 * a]))[1], function(2 * a)) <= rounding(4, 4)


def test_exp_skew_compiles_as_one_graph() -> None:
    def loss(a: Tensor) -> Tensor:
        return exp_skew(skew_part(a)).pow(3).sum()

    a = gaussian(6, 6).requires_grad_()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=False)
    assert distance(*(torch.autograd.grad(f(a), a)[0] for f in (loss, compiled))) <= rounding(6)


@pytest.mark.parametrize("shape", [(3,), (2, 3)])
def test_what_is_not_a_square_matrix_is_refused(shape: tuple[int, ...]) -> None:
    for function in (skew_part, exp_skew):
        with pytest.raises(ShapeError, match="square"):
            function(torch.zeros(shape))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_refused_with_the_way_out(dtype: torch.dtype) -> None:
    with pytest.raises(DtypeError, match="cast the result"):
        exp_skew(torch.zeros(2, 2, dtype=dtype))


def test_integers_are_refused() -> None:
    with pytest.raises(DtypeError, match="floating"):
        exp_skew(torch.zeros(2, 2, dtype=torch.int64))
