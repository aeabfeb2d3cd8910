"""Bounds as a reader sees them: the digits that are printed are a bound, too."""

import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import steadyrnn as sr
from steadyrnn.certificates.base import format_above, rate_in_words


@given(st.floats(min_value=0, allow_infinity=False), st.integers(1, 17))
def test_what_is_written_is_not_below_the_bound(bound: float, digits: int) -> None:
    written = float(format_above(bound, digits))
    assert written >= bound
    if 1e-300 < bound < 1e300:
        assert written <= bound * (1 + 10 * 10.0**-digits)


@pytest.mark.parametrize(("bound", "text"), [(0.9, "0.9"), (0.0, "0"), (1e-5, "1e-05"), (math.inf, "inf"), (math.nan, "nan")])
def test_a_number_of_few_digits_is_written_as_it_is(bound: float, text: str) -> None:
    assert format_above(bound) == text


@given(st.floats(min_value=0.5, max_value=1, exclude_max=True))
def test_a_rate_below_one_is_never_written_as_one(rate: float) -> None:
    assert rate <= float(rate_in_words(rate)) < 1


def numbers_after(words: str, text: str) -> float:
    found = re.search(rf"{words} ([-+.e\d]+)", text)
    assert found is not None, text
    return float(found[1])


@pytest.mark.parametrize("seed", range(5))
def test_reports_print_their_bounds_rounded_up(seed: int) -> None:
    torch.manual_seed(seed)
    rnn = sr.RNN(3, 8, transition=sr.SpectralBall(0.5 + 0.05 * seed))
    x = torch.randn(500, 1, 3) / 10
    certificate = sr.certify(rnn, input_bound=1.0)
    for claim in certificate.claims:
        assert float(claim.value_in_words) >= claim.value
    fast = sr.to_parallel(rnn, tol=1e-4, chunk=50)
    fast(x)
    assert numbers_after("within", str(fast.report)) >= fast.report.truncation
    assert numbers_after("rounding of", str(fast.report)) >= fast.report.rounding
    assert numbers_after("Contraction", str(fast.report)) >= fast.report.rate
    verified = sr.verify(rnn, x, rnn(x)[0])
    assert numbers_after("within", str(verified)) >= verified.error
    windows = sr.to_feedforward(rnn, eps=1e-3, input_bound=1.0)
    assert numbers_after("output within", str(windows.report)) >= windows.report.bound
