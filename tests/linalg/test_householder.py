"""Products of reflections: equal to the plain ones, orthogonal, and differentiable in every way."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from steadyrnn.errors import ArgumentTypeError, DtypeError, ShapeError
from steadyrnn.linalg.householder import householder_apply, householder_factors, householder_product
from tests.linalg.matrices import distance, gaussian, orthogonality, relative, root_mean_defect, rounding
from tests.support.reflections import reflect

SHAPES = [(1, 1), (2, 1), (3, 3), (5, 4), (9, 9), (12, 7), (7, 20), (17, 16), (33, 33), (70, 69)]
DTYPES = [torch.float32, torch.float64]


def plain_product(columns: Tensor) -> Tensor:
    return reflect(torch.eye(len(columns), dtype=columns.dtype), columns.mT)


def near_parallel(n: int, spread: float, dtype: torch.dtype, seed: int = 0) -> Tensor:
    return (gaussian(n, 1, seed=seed) + spread * gaussian(n, n - 1, seed=seed + 1)).to(dtype)


@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_the_product_is_that_of_single_reflections(n: int, k: int) -> None:
    columns = gaussian(n, k)
    assert distance(householder_product(columns), plain_product(columns)) <= rounding(n, dtype=torch.float64)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_apply_multiplies_by_the_product_or_its_transpose(n: int, k: int, transpose: bool) -> None:
    columns, x = gaussian(n, k), gaussian(n, 3, seed=1)
    q = plain_product(columns)
    assert distance(householder_apply(columns, x, transpose), (q.mT if transpose else q) @ x) <= rounding(n, 3)


@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_the_factors_give_the_product(n: int, k: int) -> None:
    columns = gaussian(n, k)
    y, z = householder_factors(columns)
    assert y.shape == (n, k)
    assert z.shape == (k, n)
    assert distance(torch.eye(n, dtype=torch.float64) - y @ z, plain_product(columns)) <= rounding(n)


def test_the_columns_of_the_first_factor_have_length_one() -> None:
    y, _ = householder_factors(7 * gaussian(9, 5))
    assert distance(y.norm(dim=0), torch.ones(5, dtype=torch.float64)) <= rounding(9)


def test_no_row_of_the_second_factor_is_longer_than_two() -> None:
    _, z = householder_factors(near_parallel(65, 1e-4, torch.float64))
    assert float(z.norm(dim=1).max()) <= 2 + rounding(65)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_compact_form_has_the_gram_matrix_as_its_symmetric_part(dtype: torch.dtype) -> None:
    y, z = householder_factors(gaussian(12, 6, dtype=dtype))
    s = torch.linalg.pinv(z.double() @ torch.linalg.pinv(y.mT.double()))  # Z = S^-1 Y^T
    assert distance(s + s.mT, (y.mT @ y).double()) <= rounding(12, 6, dtype=dtype)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_no_columns_give_the_identity(n: int) -> None:
    none, x = torch.zeros(n, 0), gaussian(n, 2, dtype=torch.float32)
    assert torch.equal(householder_product(none), torch.eye(n))
    assert torch.equal(householder_apply(none, x), x)
    assert [f.shape for f in householder_factors(none)] == [(n, 0), (0, n)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 3, 16, 17, 64, 129, 512, 1024])
def test_the_product_is_orthogonal_for_random_columns(n: int, dtype: torch.dtype) -> None:
    assert orthogonality(householder_product(gaussian(n, n - 1, dtype=dtype))) <= 30


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", [1e-30, 1e30])
@pytest.mark.parametrize("n", [1, 2, 3, 16, 17, 64, 129])
def test_the_product_is_orthogonal_for_tiny_and_huge_columns(n: int, length: float, dtype: torch.dtype) -> None:
    columns = gaussian(n, n)
    columns[:, ::2] *= length
    columns[:, 1::5] = 0
    assert orthogonality(householder_product(columns.to(dtype))) <= 30


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("spread", [0.0, 1e-6, 1e-4, 1e-2, 1e-1])
@pytest.mark.parametrize("n", [2, 3, 16, 17, 64, 129, 512])
def test_the_product_is_orthogonal_for_near_parallel_columns(n: int, spread: float, dtype: torch.dtype) -> None:
    assert orthogonality(householder_product(near_parallel(n, spread, dtype))) <= 30


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [16, 17, 64, 129])
def test_the_product_is_orthogonal_for_columns_of_either_sign_and_in_two_bundles(n: int, dtype: torch.dtype) -> None:
    columns = near_parallel(n, 1e-4, dtype)
    columns[:, ::3] *= -1
    columns[:, 1::4] = near_parallel(n, 1e-4, dtype, seed=7)[:, 1::4]
    assert orthogonality(householder_product(columns)) <= 30


@pytest.mark.parametrize("transpose", [False, True])
def test_apply_keeps_the_identity_orthogonal_for_near_parallel_columns(transpose: bool) -> None:
    columns = near_parallel(64, 1e-4, torch.float32)
    assert orthogonality(householder_apply(columns, torch.eye(64), transpose)) <= 30


@pytest.mark.parametrize(("n", "published"), [(128, 7.2e-7), (256, 1.0e-6), (512, 1.4e-6), (1024, 1.9e-6)])
def test_float32_defect_of_single_reflections_is_at_most_the_published_one(n: int, published: float) -> None:
    assert root_mean_defect(plain_product(gaussian(n, n, dtype=torch.float32))) <= published


@pytest.mark.parametrize(("n", "published"), [(128, 9.1e-7), (256, 1.1e-6), (512, 1.3e-6), (1024, 1.5e-6)])
def test_float32_defect_is_at_most_that_of_the_unblocked_form(n: int, published: float) -> None:
    assert root_mean_defect(householder_product(gaussian(n, n, dtype=torch.float32))) <= published


def unblocked_product(columns: Tensor) -> Tensor:
    y = columns / columns.norm(dim=0)
    gram = y.mT @ y
    triangle = gram.triu(1) + torch.diag(gram.diagonal()) / 2
    identity = torch.eye(len(columns), dtype=columns.dtype)
    return identity - y @ torch.linalg.solve_triangular(triangle, y.mT, upper=True)


def test_the_unblocked_form_is_the_same_product() -> None:
    columns = gaussian(64, 64)
    assert distance(unblocked_product(columns), householder_product(columns)) <= rounding(64)


def test_float32_defect_of_near_parallel_columns_needs_blocks() -> None:
    draws = [near_parallel(512, 1e-4, torch.float32, seed) for seed in range(3)]
    assert max(root_mean_defect(householder_product(columns)) for columns in draws) <= 3.7e-6
    # how much is lost without blocks depends on how the processor adds up
    assert max(root_mean_defect(unblocked_product(columns)) for columns in draws) > 3.7e-6


@pytest.mark.parametrize("seed", range(3))
def test_float32_defect_of_near_parallel_columns_is_small_reflection_by_reflection(seed: int) -> None:
    assert root_mean_defect(plain_product(near_parallel(512, 1e-4, torch.float32, seed))) <= 1.9e-6


def test_at_the_largest_size_the_compact_form_is_closer_to_orthogonal_than_single_reflections() -> None:
    columns = gaussian(1024, 1024, dtype=torch.float32)
    assert root_mean_defect(householder_product(columns)) < root_mean_defect(plain_product(columns))


def test_float32_defect_of_identical_columns_needs_the_gram_diagonal() -> None:
    n, worst = 1024, 0.0
    for seed in (1, 3, 4):
        columns = gaussian(n, 1, seed=seed, dtype=torch.float32).expand(n, n).contiguous()
        y = columns / columns.norm(dim=0)
        constant = (y.mT @ y).triu(1) + torch.eye(n) / 2
        naive = torch.eye(n) - y @ torch.linalg.solve_triangular(constant, y.mT, upper=True)
        worst = max(worst, root_mean_defect(naive))
        assert root_mean_defect(householder_product(columns)) <= 7.7e-6
    assert worst > 7.7e-6  # a length that rounds to 1 exactly shows no fault, so not every draw does


def test_columns_whose_squares_underflow_are_reflected_all_the_same() -> None:
    columns = 1e-25 * gaussian(64, 64, dtype=torch.float32)
    truth = plain_product(columns.double())
    naive = torch.eye(64)
    for u in columns.mT:
        naive = naive - 2 * torch.outer(naive @ u, u) / (u @ u).clamp(min=torch.finfo(torch.float32).tiny)
    assert distance(naive, truth) > 0.9
    assert relative(householder_product(columns), truth) <= 9e-7


def test_ten_thousand_steps_keep_the_length_of_a_state() -> None:
    q = householder_product(gaussian(128, 127, dtype=torch.float32))
    x = gaussian(128, 1, dtype=torch.float32)
    start = x.norm()
    for _ in range(10_000):
        x = q @ x
    assert abs(float(x.norm() / start) - 1) <= 2e-4


@pytest.mark.parametrize("n", [128, 512, 1024])
def test_singular_values_in_float32_are_those_requested(n: int) -> None:
    sigma = torch.linspace(0.9, 1.1, n)
    u, v = (householder_product(gaussian(n, n - 1, seed=seed, dtype=torch.float32)) for seed in (0, 1))
    norm = float(torch.linalg.matrix_norm(((u * sigma) @ v.mT).double(), 2))
    assert abs(norm - float(sigma.max())) <= 3.4e-7


@given(n=st.integers(2, 12), seed=st.integers(0, 2**31))
def test_the_determinant_is_minus_one_to_the_number_of_nonzero_columns(n: int, seed: int) -> None:
    columns = gaussian(n, n, seed=seed)
    zero = seed % n
    columns[:, :zero] = 0
    assert round(float(torch.linalg.det(householder_product(columns)))) == (-1) ** (n - zero)


def test_nan_in_a_column_stays_visible() -> None:
    columns = gaussian(4, 3)
    columns[1, 1] = torch.nan
    assert bool(householder_product(columns).isnan().any())


@pytest.mark.parametrize("dtype", DTYPES)
def test_columns_need_not_be_contiguous(dtype: torch.dtype) -> None:
    columns = gaussian(9, 12, dtype=dtype)
    assert torch.equal(householder_product(columns.mT[:, ::2]), householder_product(columns.mT[:, ::2].contiguous()))


@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 1), (5, 4), (9, 9), (7, 20), (12, 10)])
def test_the_product_has_first_and_second_derivatives(n: int, k: int) -> None:
    columns = gaussian(n, k).requires_grad_()
    assert gradcheck(householder_product, columns)
    assert gradgradcheck(householder_product, columns)


@pytest.mark.parametrize(("n", "k"), [(1, 1), (5, 4), (9, 9), (12, 7)])
def test_the_stated_gradient_of_the_compact_form_is_the_gradient(n: int, k: int) -> None:
    y, x, g = gaussian(n, k), gaussian(n, 3, seed=1), gaussian(n, 3, seed=2)
    y = y / y.norm(dim=0)
    gram = y.mT @ y
    s = gram.triu(1) + torch.diag(gram.diagonal()) / 2
    p = torch.linalg.solve_triangular(s, y.mT @ x, upper=True)
    r = -torch.linalg.solve_triangular(s.mT, y.mT @ g, upper=False)
    grad_s = -r @ p.mT
    above = grad_s.triu(1)
    grad_y = x @ r.mT - g @ p.mT + y @ (above + above.mT) + y * grad_s.diagonal()
    leaves = y.clone().requires_grad_(), x.clone().requires_grad_()
    expected = torch.autograd.grad(householder_apply(*leaves), leaves, g)
    size = max(1.0, float(torch.linalg.cond(s)))
    assert distance(grad_y, expected[0]) <= rounding(n, k) * size
    assert distance(g + y @ r, expected[1]) <= rounding(n, k) * size


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (5, 4), (12, 10)])
def test_apply_has_first_and_second_derivatives(n: int, k: int, transpose: bool) -> None:
    columns, x = gaussian(n, k).requires_grad_(), gaussian(n, 2, seed=1).requires_grad_()
    assert gradcheck(lambda c, v: householder_apply(c, v, transpose), (columns, x))
    assert gradgradcheck(lambda c, v: householder_apply(c, v, transpose), (columns, x))


def test_the_factors_have_first_and_second_derivatives() -> None:
    columns = gaussian(12, 10).requires_grad_()
    assert gradcheck(householder_factors, columns)
    assert gradgradcheck(householder_factors, columns)


@pytest.mark.parametrize("wanted", [(True, False), (False, True)])
def test_apply_differentiates_only_what_is_requested(wanted: tuple[bool, bool]) -> None:
    columns, x = gaussian(5, 4), gaussian(5, 2, seed=1)
    both = [t.clone().requires_grad_() for t in (columns, x)]
    one = [t.clone().requires_grad_(w) for t, w in zip((columns, x), wanted, strict=True)]
    householder_apply(*both).pow(3).sum().backward()
    householder_apply(*one).pow(3).sum().backward()
    for b, o, w in zip(both, one, wanted, strict=True):
        assert torch.equal(o.grad, b.grad) if w else o.grad is None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("spread", [1e-4, 1e-1, 1e3])
@pytest.mark.parametrize("n", [17, 129])
def test_the_gradient_is_as_accurate_as_that_of_single_reflections(n: int, spread: float, dtype: torch.dtype) -> None:
    columns, g = near_parallel(n, spread, dtype), gaussian(n, n, seed=3, dtype=dtype)

    def gradient(product: Callable[[Tensor], Tensor], dtype: torch.dtype) -> Tensor:
        leaf = columns.to(dtype, copy=True).requires_grad_()
        return torch.autograd.grad(product(leaf), leaf, g.to(dtype))[0]

    truth = gradient(plain_product, torch.float64)
    fast, plain = (relative(gradient(product, dtype), truth) for product in (householder_product, plain_product))
    if dtype == torch.float64:  # no truth beyond this dtype: they can only agree
        assert fast <= rounding(n)
    else:
        assert fast <= 2 * max(plain, 16 * torch.finfo(dtype).eps / 2)


@pytest.mark.parametrize(
    ("dtype", "length"),
    [(torch.float32, 1e-30), (torch.float32, 1e30), (torch.float64, 1e-160), (torch.float64, 1e160)],
)
def test_the_gradient_goes_as_one_over_the_length(dtype: torch.dtype, length: float) -> None:
    columns = gaussian(9, 8, dtype=dtype).requires_grad_()
    scaled = (columns.detach() * length).requires_grad_()
    weight = gaussian(9, 9, seed=1, dtype=dtype)
    (expected,) = torch.autograd.grad((householder_product(columns) * weight).sum(), columns)
    (got,) = torch.autograd.grad((householder_product(scaled) * weight).sum(), scaled)
    assert distance(got * length, expected) <= rounding(9, 9, dtype=dtype)


@pytest.mark.parametrize("length", [1.0, 1e-3, 1e-6, 1e-9, 1e-12])
def test_gradient_times_length_does_not_change_with_the_length(length: float) -> None:
    u = gaussian(10, 1)
    x, g = gaussian(10, 4, seed=1), gaussian(10, 4, seed=2)

    def product(u: Tensor) -> float:
        leaf = u.clone().requires_grad_()
        (grad,) = torch.autograd.grad(householder_apply(leaf, x), leaf, g)
        return float(grad.norm() * u.norm())

    assert product(length * u) == pytest.approx(product(u), rel=rounding(10))


def test_the_gradient_is_orthogonal_to_each_column() -> None:
    columns = gaussian(20, 19).requires_grad_()
    (grad,) = torch.autograd.grad(householder_product(columns), columns, gaussian(20, 20, seed=1))
    assert float((grad * columns.detach()).sum(dim=0).abs().max()) <= rounding(20, 20)


def test_a_plain_gradient_step_lengthens_every_column() -> None:
    columns = gaussian(8, 7).requires_grad_()
    (grad,) = torch.autograd.grad(householder_product(columns), columns, gaussian(8, 8, seed=1))
    before, step = columns.detach().square().sum(dim=0), 0.1
    after = (columns.detach() - step * grad).square().sum(dim=0)
    assert distance(after, before + step**2 * grad.square().sum(dim=0)) <= rounding(8, 8)


def test_a_zero_column_is_the_identity_with_a_zero_gradient_of_any_order() -> None:
    columns = gaussian(6, 5)
    columns[:, 2] = 0
    kept = torch.cat([columns[:, :2], columns[:, 3:]], dim=1)
    assert distance(householder_product(columns), householder_product(kept)) <= rounding(6)
    hessian = torch.autograd.functional.hessian(lambda c: householder_product(c).pow(3).sum(), columns)
    leaf = columns.clone().requires_grad_()
    (grad,) = torch.autograd.grad(householder_product(leaf).pow(3).sum(), leaf)
    assert float(grad[:, 2].abs().max()) == 0
    assert bool(hessian.isfinite().all())
    assert float(hessian[:, 2].abs().max()) == 0


@pytest.mark.parametrize("function", [householder_product, lambda c: householder_apply(c, c, True), householder_factors])
def test_forward_mode_agrees_with_reverse_mode(function: Callable[[Tensor], Tensor]) -> None:
    columns = gaussian(6, 5).requires_grad_()
    assert gradcheck(function, columns, check_forward_ad=True, check_backward_ad=False, check_undefined_grad=False)


def test_functorch_jacobians_agree_with_autograd() -> None:
    columns = gaussian(6, 5)
    expected = torch.autograd.functional.jacobian(householder_product, columns)
    assert distance(torch.func.jacrev(householder_product)(columns), expected) <= rounding(6, 5)
    assert distance(torch.func.jacfwd(householder_product)(columns), expected) <= rounding(6, 5)


def test_functorch_hessian_agrees_with_double_backward() -> None:
    columns = gaussian(5, 4)

    def loss(c: Tensor) -> Tensor:
        return householder_product(c).pow(3).sum()

    expected = torch.autograd.functional.hessian(loss, columns)
    assert distance(torch.func.hessian(loss)(columns), expected) <= rounding(5, 4, 5, 4)


def test_vmap_maps_over_stacks_of_columns_and_of_vectors() -> None:
    stack, x = gaussian(3, 6, 5), gaussian(6, 2, seed=1)
    together = torch.func.vmap(lambda c: householder_apply(c, x, True))(stack)
    one_by_one = torch.stack([householder_apply(c, x, True) for c in stack])
    assert distance(together, one_by_one) <= rounding(6)
    gradients = torch.func.vmap(torch.func.grad(lambda c: householder_product(c).pow(3).sum()))(stack)
    assert gradients.shape == stack.shape


@pytest.mark.parametrize("k", [1, 39])
def test_everything_compiles_as_one_graph(k: int) -> None:
    def loss(c: Tensor, x: Tensor) -> Tensor:
        y, z = householder_factors(c)
        return (householder_apply(c, householder_product(c) @ x, True) + y @ (z @ x)).pow(3).sum()

    columns = gaussian(40, k, dtype=torch.float32).requires_grad_()
    x = gaussian(40, 3, seed=1, dtype=torch.float32).requires_grad_()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=False)
    expected = torch.autograd.grad(loss(columns, x), (columns, x))
    got = torch.autograd.grad(compiled(columns, x), (columns, x))
    for e, g in zip(expected, got, strict=True):
        assert relative(g, e) <= rounding(40, dtype=torch.float32)


@pytest.mark.parametrize("function", [householder_product, householder_factors])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_refused_with_the_way_out(function: Callable[[Tensor], Tensor], dtype: torch.dtype) -> None:
    with pytest.raises(DtypeError, match="cast the result"):
        function(torch.ones(3, 2, dtype=dtype))


def test_complex_columns_are_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="`columns`"):
        householder_product(torch.ones(3, 2, dtype=torch.complex64))


def test_a_vector_is_refused() -> None:
    with pytest.raises(ShapeError, match="`columns`"):
        householder_product(torch.ones(3))


def test_apply_refuses_vectors_of_another_length() -> None:
    with pytest.raises(ShapeError, match="`x`"):
        householder_apply(torch.ones(3, 2), torch.ones(4, 1))


def test_apply_refuses_vectors_of_another_dtype() -> None:
    with pytest.raises(DtypeError, match="`x`"):
        householder_apply(torch.ones(3, 2), torch.ones(3, 1, dtype=torch.float64))
