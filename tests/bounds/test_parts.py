"""The error of a run in parts: step by step it is met, and never exceeded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadyrnn.bounds.parts import Part, carried_errors, part_errors, part_tolerance
from steadyrnn.errors import CertificateError

SIZES = st.floats(0, 1e3, allow_subnormal=False)


@st.composite
def parts(draw: st.DrawFn) -> list[Part]:
    found = []
    for place in range(draw(st.integers(1, 6))):
        steps = draw(st.integers(0, 9))
        repeated = draw(st.integers(0, steps)) if place else 0
        jump = draw(SIZES) if place and repeated < steps else 0.0
        found.append(Part(steps, repeated, jump, draw(SIZES) if place else 0.0, draw(SIZES)))
    return found


def by_steps(rate: float, run: list[Part]) -> list[float]:
    """Return the largest error of each part where every error has the same sign, and shrinks no faster than proven."""
    found, behind = [], 0.0
    for part in run:
        error = part.change + behind + (part.jump if part.repeated == 0 else 0.0)
        errors = []
        for step in range(1, part.steps + 1):
            error *= rate
            errors.append(error + (part.own if step > part.repeated else 0.0))
            error += part.jump if step == part.repeated else 0.0
        behind = error + (part.own if part.repeated < part.steps else 0.0)
        found.append(max(errors, default=0.0))
    return found


@given(rate=st.sampled_from([0.0, 0.3, 0.9, 0.9999]), run=parts())
def test_the_bound_is_what_happens_at_worst(rate: float, run: list[Part]) -> None:
    for bound, error in zip(part_errors(rate, run), by_steps(rate, run), strict=True):
        assert error <= bound <= error * (1 + 1e-9) + 1e-250


@given(rate=st.sampled_from([0.0, 0.3, 0.9, 0.9999]), steps=st.lists(st.integers(0, 9), min_size=1, max_size=6))
def test_carried_errors_are_the_most_that_add_up(rate: float, steps: list[int]) -> None:
    """An error of 1 arises in every part; how large it is where the next ones start."""
    totals = [0.0]
    for number in steps[:-1]:
        totals.append(1 + rate**number * totals[-1])
    assert max(totals) <= carried_errors(rate, steps) <= max(totals) * (1 + 1e-9)


@given(rate=st.sampled_from([0.0, 0.3, 0.9, 0.9999]), run=parts())
def test_parts_that_keep_their_tolerance_keep_that_of_the_run(rate: float, run: list[Part]) -> None:
    share = part_tolerance(7.0, rate, [part.steps for part in run])
    worst = [Part(part.steps, part.repeated, 2 * share * (place > 0), 0.0, share) for place, part in enumerate(run)]
    assert max(part_errors(rate, worst)) <= 7.0


@pytest.mark.parametrize("rate", [1.0, 1.5])
def test_what_does_not_contract_has_no_bound(rate: float) -> None:
    with pytest.raises(CertificateError, match="only what contracts"):
        part_errors(rate, [Part(3, 0, 0.0, 0.0, 1.0)])
    with pytest.raises(CertificateError, match="only what contracts"):
        carried_errors(rate, [3, 3])
