"""Counts of operations: sums over reflectors, closed forms, and the numbers the source prints."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadyrnn.errors import ArgumentError
from tests.support.flops import backward_flops, dense_flops, forward_flops, hgrad_flops, hprod_flops, wy_flops

counts = st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(0, n)))


@given(counts)
def test_the_forward_count_has_its_closed_form(case: tuple[int, int, int]) -> None:
    n, m1, m2 = case
    assert forward_flops(n, m1, m2) == 4 * n * (m1 + m2) - 2 * m1**2 - 2 * m2**2 + 2 * (m1 + m2)


@given(counts)
def test_the_backward_count_has_its_closed_form(case: tuple[int, int, int]) -> None:
    n, m1, m2 = case
    doubled = 14 * n * (m1 + m2) - 7 * (m1**2 + m2**2) + 7 * (m1 + m2)
    assert 2 * backward_flops(n, m1, m2) == doubled


def test_a_reflection_and_its_gradient() -> None:
    assert (hprod_flops(10), hgrad_flops(10)) == (40, 70)


def test_the_printed_backward_count_contradicts_the_row_above_it() -> None:
    n, m = 128, 16
    sizes = range(n - m + 1, n + 1)
    assert sum(3 * n + 6 * k for k in sizes) == 17_712
    assert 6 * n * m - 3 * m**2 // 2 == 11_904
    assert backward_flops(n, m, 0) == 13_496


@given(counts)
def test_the_backward_count_of_three_terms_is_not_the_printed_one(case: tuple[int, int, int]) -> None:
    n, m1, m2 = case
    sizes = [k for m in (m1, m2) for k in range(n - m + 1, n + 1)]
    total, squares = m1 + m2, m1**2 + m2**2
    assert sum(3 * n + 6 * k for k in sizes) == 9 * n * total - 3 * squares + 3 * total
    assert 2 * sum(3 * n + 3 * k for k in sizes) == 12 * n * total - 3 * squares + 3 * total  # printed: half the second term


def test_the_printed_forward_count_of_one_orthogonal_factor_misses_half_of_a_term() -> None:
    n, m = 128, 16
    assert forward_flops(n, m, 0) - 2 * m == 4 * n * m - 2 * m**2 != 4 * n * m - m**2


def test_the_factored_form_is_cheaper_below_half_the_size() -> None:
    assert wy_flops(512, 100, 100) < dense_flops(512) < wy_flops(512, 140, 140)


@pytest.mark.parametrize("count", [-1, 6])
def test_more_reflectors_than_rows_are_refused(count: int) -> None:
    with pytest.raises(ArgumentError, match="reflectors"):
        forward_flops(5, count, 0)
    with pytest.raises(ArgumentError, match="reflectors"):
        wy_flops(5, 0, count)
