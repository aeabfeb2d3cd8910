"""The factored SVD parametrisation: the matrix it stands for, its derivatives, and how few operations it takes."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from steadyrnn.errors import ArgumentError, DtypeError, ShapeError
from steadyrnn.linalg.householder import householder_factors
from steadyrnn.linalg.operators import DiagonalLowRank, spectral_operator
from steadyrnn.linalg.packing import pack, packed_size, unpack
from steadyrnn.linalg.spectral_factors import spectral_factors
from tests.linalg.matrices import gaussian, orthogonality, relative
from tests.support.operations import Operations
from tests.support.reflections import reflect

Arguments = tuple[Tensor, Tensor, Tensor]
Build = Callable[..., DiagonalLowRank]

UNIT = torch.finfo(torch.float32).eps / 2
SHAPES = [(3, 1), (7, 3), (40, 9), (70, 32), (128, 16)]


def lengths(n: int, k: int, seed: int) -> Tensor:
    """Return columns of lengths from 1e-30 to 1e30."""
    return gaussian(n, k, seed=seed) * 10.0 ** (60 * torch.rand(k, generator=torch.Generator().manual_seed(seed)) - 30)


def with_zeros(n: int, k: int, seed: int) -> Tensor:
    columns = gaussian(n, k, seed=seed)
    columns[:, 1::3] = 0
    return columns


def near_parallel(spread: float) -> Callable[[int, int, int], Tensor]:
    return lambda n, k, seed: gaussian(n, 1, seed=seed) + spread * gaussian(n, k, seed=seed + 1)


COLUMNS: dict[str, Callable[[int, int, int], Tensor]] = {
    "random": lambda n, k, seed: gaussian(n, k, seed=seed),
    "equal": near_parallel(0.0),
    "parallel to 1e-6": near_parallel(1e-6),
    "parallel to 1e-2": near_parallel(1e-2),
    "of all lengths": lengths,
    "some of them zero": with_zeros,
}


def arguments(columns: str, n: int, k: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Arguments:
    """Return packed reflectors of both sides and a diagonal, all of them numbers that float32 can hold."""
    u, v = (pack(COLUMNS[columns](n, k, s)) for s in (seed, seed + 10))
    left, right, sigma = (t.float().to(dtype) for t in (u, v, 1 + 0.3 * gaussian(n, seed=seed + 20)))
    return left, right, sigma


def fast(left: Tensor, right: Tensor, sigma: Tensor, k: int) -> DiagonalLowRank:
    return spectral_factors(left, right, sigma, k)


def sides(left: Tensor, right: Tensor, sigma: Tensor, k: int) -> tuple[Tensor, Tensor]:
    return unpack(left, len(sigma), k), unpack(right, len(sigma), k)


def composed(left: Tensor, right: Tensor, sigma: Tensor, k: int) -> DiagonalLowRank:
    u, v = sides(left, right, sigma, k)
    return spectral_operator(householder_factors(u), sigma, householder_factors(v))


def plain(left: Tensor, right: Tensor, sigma: Tensor, k: int) -> Tensor:
    """Return the matrix by one reflection after the other."""
    u, v = (reflect(torch.eye(len(sigma), dtype=sigma.dtype), side.mT) for side in sides(left, right, sigma, k))
    return (u * sigma) @ v.mT


def gradients(result: Callable[..., Any], given: Arguments, k: int, *weights: Tensor, **kw: bool) -> tuple[Tensor, ...]:
    """Return the gradients of the arguments, those of the reflectors for columns of length 1, as ``u`` times it."""
    leaves = [t.clone().requires_grad_() for t in given]
    made = result(*leaves, k)
    made = (made,) if isinstance(made, Tensor) else made
    found = torch.autograd.grad(made, leaves, [w.to(leaves[0].dtype) for w in weights], **kw)
    scale = [side.double().norm(dim=0) for side in sides(*given, k)]
    packed = (pack(unpack(g.double(), len(given[2]), k) * s) for g, s in zip(found[:2], scale, strict=True))
    return *packed, found[2].double()


def wide(given: Arguments) -> Arguments:
    left, right, sigma = (t.double() for t in given)
    return left, right, sigma


def product(operator: DiagonalLowRank) -> Tensor:
    """Return what the factors stand for, without a rounding of its own."""
    return operator.to(torch.float64).dense()


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_the_matrix_is_as_accurate_as_that_of_single_reflections(n: int, k: int, columns: str) -> None:
    given = arguments(columns, n, k)
    truth = plain(*wide(given), k)
    assert relative(product(fast(*given, k)), truth) <= 2 * max(relative(plain(*given, k), truth), 16 * UNIT)


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_the_gradient_is_as_accurate_as_that_of_the_composed_functions(n: int, k: int, columns: str) -> None:
    given = arguments(columns, n, k)
    weights = gaussian(n, seed=1), gaussian(n, 2 * k, seed=2), gaussian(n, 2 * k, seed=3)
    weights = tuple(w.float() for w in weights)
    truth = gradients(composed, wide(given), k, *weights)
    for got, reference, true in zip(
        gradients(fast, given, k, *weights), gradients(composed, given, k, *weights), truth, strict=True
    ):
        assert relative(got, true) <= 2 * max(relative(reference, true), 16 * UNIT)


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_the_gradient_of_the_matrix_is_as_accurate_as_that_of_single_reflections(n: int, k: int, columns: str) -> None:
    given, g = arguments(columns, n, k), gaussian(n, n, seed=1).float()
    truth = gradients(plain, wide(given), k, g)
    dense = gradients(lambda *a: fast(*a).dense(), given, k, g)
    for got, reference, true in zip(dense, gradients(plain, given, k, g), truth, strict=True):
        assert relative(got, true) <= 2 * max(relative(reference, true), 16 * UNIT)


@given(n=st.integers(2, 12), seed=st.integers(0, 2**31 - 30), share=st.floats(0, 1))
def test_the_factors_are_those_of_the_composed_functions(n: int, seed: int, share: float) -> None:
    k = 1 + int(share * (n - 1))
    given = arguments("random", n, k, seed)
    truth = composed(*wide(given), k)
    for got, reference, true in zip(fast(*given, k), composed(*given, k), truth, strict=True):
        assert got.dtype == torch.float32
        assert got.is_contiguous()
        assert relative(got, true) <= 2 * max(relative(reference, true), 16 * UNIT)


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_it_is_orthogonal_where_the_diagonal_is_one(n: int, k: int, columns: str) -> None:
    left, right, sigma = arguments(columns, n, k)
    q = fast(left, right, torch.ones_like(sigma), k).dense()
    assert orthogonality(q) <= 30


@pytest.mark.parametrize("missing", ["diagonal", "left", "right", "left and right"])
def test_a_factor_that_is_not_used_has_no_share_in_the_gradient(missing: str) -> None:
    given = arguments("random", 12, 3)
    used = [name for name in DiagonalLowRank._fields if name not in missing]

    def loss(build: Build, given: Arguments) -> tuple[Tensor | None, ...]:
        leaves = [t.clone().requires_grad_() for t in given]
        made = build(*leaves, 3)
        total = torch.stack([getattr(made, name).pow(3).sum() for name in used]).sum()
        return torch.autograd.grad(total, leaves, allow_unused=True)

    found = zip(loss(fast, given), loss(composed, given), loss(composed, wide(given)), strict=True)
    for got, reference, true in found:
        if got is None or reference is None or true is None:
            assert missing == "left and right"
            assert got is reference is true
        else:
            assert relative(got, true) <= 2 * max(relative(reference, true), 16 * UNIT)


def test_zero_columns_are_the_identity_and_have_no_gradient() -> None:
    n, k = 9, 3
    left, right = (torch.zeros(packed_size(n, k)).requires_grad_() for _ in range(2))
    sigma = gaussian(n).float()
    made = fast(left, right, sigma, k)
    assert torch.equal(made.dense(), sigma.diag())
    weights = [gaussian(n, 2 * k, seed=seed).float() for seed in (1, 2)]
    for gradient in torch.autograd.grad((made.left, made.right), (left, right), weights):
        assert float(gradient.abs().max()) == 0


def test_a_zero_column_among_others_has_no_gradient() -> None:
    given = arguments("some of them zero", 12, 5)
    leaves = [t.requires_grad_() for t in given]
    found = torch.autograd.grad(fast(*leaves, 5).dense().pow(3).sum(), leaves)
    for side in sides(*found, 5):
        assert float(side[:, 1::3].abs().max()) == 0
        assert float(side[:, 0].abs().max()) > 0


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_not_finite_stays_visible(bad: float) -> None:
    left, right, sigma = arguments("random", 12, 3)
    left[7] = bad
    assert bool(fast(left, right, sigma, 3).dense().isnan().any())


@pytest.mark.parametrize("length", [1e-30, 1e30])
def test_the_gradient_goes_as_one_over_the_length(length: float) -> None:
    left, right, sigma = arguments("random", 9, 3)
    one, other = (left.clone().requires_grad_(), (left * length).requires_grad_())
    (expected,) = torch.autograd.grad(fast(one, right, sigma, 3).dense().pow(3).sum(), one)
    (got,) = torch.autograd.grad(fast(other, right, sigma, 3).dense().pow(3).sum(), other)
    assert relative(got.double() * length, expected.double()) <= 16 * UNIT


@pytest.mark.parametrize("k", [0, 1, 4, 10])
def test_float64_has_first_and_second_derivatives(k: int) -> None:
    leaves = [t.requires_grad_(t.numel() > 0) for t in arguments("random", 12, k, dtype=torch.float64)]
    assert gradcheck(lambda *a: fast(*a, k), leaves)
    assert gradgradcheck(lambda *a: fast(*a, k), leaves)


@pytest.mark.parametrize("k", [33, 40])
def test_more_reflectors_than_a_block_holds_are_taken_in_blocks(k: int) -> None:
    given = arguments("random", 90, k)
    truth = plain(*wide(given), k)
    assert relative(product(fast(*given, k)), truth) <= 2 * max(relative(plain(*given, k), truth), 16 * UNIT)


def test_many_cotangents_at_once_give_the_gradients_of_each() -> None:
    leaves = [t.requires_grad_() for t in arguments("random", 20, 3)]
    made, cotangents = fast(leaves[0], leaves[1], leaves[2], 3), torch.randn(4, 20, 6)
    together = torch.autograd.grad(made.left, leaves, cotangents, retain_graph=True, is_grads_batched=True)
    each = [torch.autograd.grad(made.left, leaves, one, retain_graph=True) for one in cotangents]
    for got, *ones in zip(together, *each, strict=True):
        assert relative(got, torch.stack(ones).double()) <= 32 * UNIT


@pytest.mark.parametrize("frozen", [(), (0,), (2,), (0, 1)])
def test_float32_has_second_derivatives(frozen: tuple[int, ...]) -> None:
    given, x = arguments("random", 12, 3), gaussian(5, 12, seed=4)

    def second(build: Build, given: Arguments) -> list[Tensor]:
        leaves = [t.clone().requires_grad_(place not in frozen) for place, t in enumerate(given)]
        free = [t for t in leaves if t.requires_grad]
        loss = build(*leaves, 3).apply(x.to(free[0].dtype)).tanh().pow(2).sum()
        first = torch.autograd.grad(loss, free, create_graph=True)
        return list(torch.autograd.grad(torch.stack([g.pow(2).sum() for g in first]).sum(), free))

    truth = second(composed, wide(given))
    for got, reference, true in zip(second(fast, given), second(composed, given), truth, strict=True):
        assert relative(got, true) <= 2 * max(relative(reference, true), 16 * UNIT)


def test_functorch_and_forward_mode_agree_with_autograd() -> None:
    given = arguments("random", 8, 2)

    def dense(left: Tensor) -> Tensor:
        return fast(left, *given[1:], 2).dense()

    expected = torch.autograd.functional.jacobian(dense, given[0]).double()
    assert relative(torch.func.jacrev(dense)(given[0]), expected) <= 64 * UNIT
    assert relative(torch.func.jacfwd(dense)(given[0]), expected) <= 64 * UNIT


@pytest.mark.parametrize("k", [1, 16])
def test_it_compiles_as_one_graph(k: int) -> None:
    given, x = arguments("random", 40, k), gaussian(3, 40, seed=4).float()

    def loss(left: Tensor, right: Tensor, sigma: Tensor) -> Tensor:
        return spectral_factors(left, right, sigma, k).apply(x).pow(3).sum()

    leaves = [t.requires_grad_() for t in given]
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=False)
    for got, expected in zip(
        torch.autograd.grad(compiled(*leaves), leaves), torch.autograd.grad(loss(*leaves), leaves), strict=True
    ):
        assert relative(got, expected) <= 64 * UNIT


def test_autocast_touches_neither_the_factors_nor_their_gradient() -> None:
    given = arguments("random", 12, 3)
    weights = gaussian(12, seed=1), gaussian(12, 6, seed=2), gaussian(12, 6, seed=3)
    expected = gradients(fast, given, 3, *weights)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = gradients(fast, given, 3, *weights)
    for got, same in zip(found, expected, strict=True):
        assert torch.equal(got, same)


def test_it_is_one_node_of_few_operations() -> None:
    leaves = [t.requires_grad_() for t in arguments("random", 64, 8)]
    with Operations() as forward:
        made = spectral_factors(*leaves, 8)
    assert made.left.grad_fn is made.right.grad_fn
    assert {type(node).__name__ for node, _ in made.left.grad_fn.next_functions if node} == {"AccumulateGrad"}
    with Operations() as backward:
        torch.autograd.grad((made.left, made.right), leaves, (made.left.detach(), made.right.detach()))
    assert forward.names.total() <= 14, forward.names
    assert backward.names.total() <= 21, backward.names


def test_the_composed_functions_take_more_operations() -> None:
    leaves = [t.requires_grad_() for t in arguments("random", 64, 8)]
    with Operations() as forward:
        composed(*leaves, 8)
    assert forward.names.total() > 28, forward.names


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"sigma": torch.ones(2, 2)}, ShapeError, "`sigma` must be a vector, but has shape"),
        ({"left": torch.ones(4)}, ShapeError, r"`left` must have shape \(9,\) for 2 reflectors of length 5, but has .*4"),
        ({"right": torch.ones(9, 1)}, ShapeError, "`right` must have shape"),
        ({"right": torch.ones(9, dtype=torch.float64)}, DtypeError, "`right` must have the dtype of `sigma`"),
        ({"count": 6}, ArgumentError, "`count` must be a number of columns from 0 to `rows` = 5, but is 6"),
    ],
)
def test_a_bad_argument_is_refused(change: dict[str, Any], error: type[Exception], message: str) -> None:
    left, right, sigma = arguments("random", 5, 2)
    given = {"left": left, "right": right, "sigma": sigma, "count": 2}
    with pytest.raises(error, match=message):
        spectral_factors(**(given | change))


def test_half_precision_is_refused_with_the_way_out() -> None:
    with pytest.raises(DtypeError, match="cast the result"):
        fast(*arguments("random", 5, 2, dtype=torch.bfloat16), 2)
