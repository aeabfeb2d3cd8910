"""Products of reflections of many networks equal those of each network by itself."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from steadyrnn.errors import DtypeError, ShapeError
from steadyrnn.linalg.householder import householder_product
from steadyrnn.linalg.householder_stack import householder_products, unpack_stack
from steadyrnn.linalg.packing import packed_size, unpack


def draw(members: int, rows: int, count: int, seed: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(members, rows, count, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@given(
    members=st.integers(1, 4), rows=st.integers(1, 40), share=st.floats(0, 1), seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)  # fmt: skip
def test_each_product_is_orthogonal_and_that_of_its_own_columns(
    members: int, rows: int, share: float, seed: int, dtype: torch.dtype
) -> None:
    columns = draw(members, rows, round(share * rows), seed, dtype)
    together = householder_products(columns)
    eps = torch.finfo(dtype).eps
    for own, product in zip(columns, together, strict=True):
        exact = householder_product(own.double())
        assert (product.double() - exact).norm() <= 16 * rows * eps
        assert (product.double().mT @ product.double() - torch.eye(rows)).norm() <= 16 * rows * eps


@pytest.mark.parametrize("count", [0, 1, 5, 19])  # of float64, in blocks of 8 at most
def test_gradients_are_exact(count: int) -> None:
    columns = draw(2, 20, count, seed=1).requires_grad_()
    if count:
        assert torch.autograd.gradcheck(householder_products, columns)
    assert householder_products(columns).shape == (2, 20, 20)


def test_second_derivatives_are_exact() -> None:
    assert torch.autograd.gradgradcheck(householder_products, draw(2, 4, 3, seed=2).requires_grad_())


@pytest.mark.parametrize("size", [1e-160, 1e-30, 1e30, 1e150])
def test_lengths_of_columns_do_not_matter(size: float) -> None:
    columns = draw(2, 6, 4, seed=3)
    assert torch.allclose(householder_products(size * columns), householder_products(columns), rtol=0, atol=1e-14)


def test_a_zero_column_is_the_identity_and_has_no_gradient() -> None:
    columns = draw(1, 5, 3, seed=4)
    columns[:, :, 1] = 0
    columns.requires_grad_()
    product = householder_products(columns)
    assert torch.allclose(product[0], householder_product(columns[0].detach()[:, [0, 2]]), rtol=0, atol=1e-14)
    (gradient,) = torch.autograd.grad(product.square().sum() + product.sum(), columns)
    assert not gradient[:, :, 1].any()


def test_nan_stays_in_its_own_product() -> None:
    columns = draw(3, 5, 2, seed=5)
    columns[1, 0, 0] = float("nan")
    product = householder_products(columns)
    assert product[1].isnan().any()
    assert product[[0, 2]].isfinite().all()


def test_trapezoids_are_unpacked_like_single_ones() -> None:
    packed = draw(3, packed_size(5, 3), 1, seed=6).squeeze(2)
    assert torch.equal(unpack_stack(packed, 5, 3), torch.stack([unpack(row, 5, 3) for row in packed]))


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: householder_products(torch.ones(2, 3)), ShapeError, "`columns` must have shape"),
        (lambda: householder_products(torch.ones(1, 2, 1).bfloat16()), DtypeError, "`columns` must be float32 or float64"),
        (lambda: unpack_stack(torch.ones(2, 4), 3, 1), ShapeError, "`packed` must have shape"),
    ],
)
def test_bad_input_is_named(call: object, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        call()  # type: ignore[operator]
