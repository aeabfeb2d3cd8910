"""The error of a run in parts: step by step it is met, and never exceeded."""

import random

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


class RoundedPart:
    """A part of h = rate h + x whose computed steps are off by ``error`` times a sign, and what is proven without rounding."""

    def __init__(self, rate: float, error: float, inputs: list[float], signs: list[float], first: bool) -> None:
        self.rate, self.error, self.inputs, self.signs = rate, error, inputs, signs
        self.start = 1.0 if first else 0.0
        self.known = self.run(self.start, len(inputs))
        self.outputs, self.end = [*self.known], self.known[-1] if inputs else self.start
        self.repeated, self.jump, self.change = 0, 0.0, 0.0

    def run(self, state: float, steps: int) -> list[float]:
        states = []
        for x, sign in zip(self.inputs[:steps], self.signs, strict=False):
            states.append(state := self.rate * state + x + sign * self.error)
        return states

    def receive(self, state: float, repeated: int) -> None:
        """Run the first steps again; jumps and changes are the proven ones, which rounding exceeds."""
        again = self.run(state, repeated)
        self.outputs = again + self.known[repeated:]
        self.repeated, self.change, steps = repeated, 0.0, len(self.inputs)
        if repeated == steps:
            self.jump, self.change = 0.0, self.rate**steps * abs(state - self.start)
            self.start, self.end = state, again[-1] if again else state
        else:
            self.jump = self.rate**repeated * abs(state)


@given(
    rate=st.sampled_from([0.3, 0.9, 0.99]), lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    seed=st.integers(0, 2**32 - 1), worst=st.booleans(),
)  # fmt: skip
def test_rounding_adds_no_more_than_in_one_run(rate: float, lengths: list[int], seed: int, worst: bool) -> None:
    draw, error = random.Random(seed), 1e-3
    made, exact, state = [], list[list[float]](), 1.0
    for place, steps in enumerate(lengths):
        inputs = [draw.choice([-1.0, 1.0, 0.0]) for _ in range(steps)]
        signs = [1.0 if worst else draw.choice([-1.0, 1.0]) for _ in range(steps)]
        made.append(RoundedPart(rate, error, inputs, signs, place == 0))
        exact.append([state := rate * state + x for x in inputs])
    covered = [0] + [draw.randint(1, steps) for steps in lengths[1:]]
    for _ in lengths[1:]:
        ends = [part.end for part in made]
        for place, part in enumerate(made[1:], 1):
            covered[place] = draw.randint(covered[place], lengths[place])
            part.receive(ends[place - 1], covered[place])
        changes = [0.0, *(part.change for part in made)]
        told = [Part(len(p.inputs), p.repeated, p.jump, changes[place], 0.0) for place, p in enumerate(made)]
        for part, true, bound in zip(made, exact, part_errors(rate, told), strict=True):
            found = max(abs(a - b) for a, b in zip(part.outputs, true, strict=True))
            assert found <= bound + error / (1 - rate) * (1 + 1e-9)


@pytest.mark.parametrize("rate", [1.0, 1.5])
def test_what_does_not_contract_has_no_bound(rate: float) -> None:
    with pytest.raises(CertificateError, match="only what contracts"):
        part_errors(rate, [Part(3, 0, 0.0, 0.0, 1.0)])
    with pytest.raises(CertificateError, match="only what contracts"):
        carried_errors(rate, [3, 3])
