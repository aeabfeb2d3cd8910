"""How far states and outputs move with the weights: what the paper prints and what holds."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from steadyrnn.bounds.perturbation import (
    activation_bound,
    activation_perturbation,
    contractive_perturbation,
    output_perturbation,
)
from steadyrnn.errors import ArgumentError, CertificateError, NotFiniteError

SLACK = 1 + 1e-12  # of the norms that the tests measure


def scalar(weight: float, gain: float, steps: int) -> float:
    """Return the state of a scalar ReLU network under an input of 1 at every time."""
    h = 0.0
    for _ in range(steps):
        h = max(weight * h + gain, 0.0)
    return h


def norm(matrix: Tensor) -> float:
    return float(torch.linalg.matrix_norm(matrix, 2)) * SLACK


def of_norm(matrix: Tensor, size: float) -> Tensor:
    return matrix * (size / torch.linalg.matrix_norm(matrix, 2))


def printed_activation_bound(w: float, m: float, steps: int, dw: float, dm: float, bound: float = 1.0) -> float:
    """The first display of the paper's Lemma 2."""
    return bound * steps * math.e * dm + bound * (steps + 2) * dw * m * w ** (steps - 2)


@pytest.mark.parametrize(
    ("weight", "dw", "dm", "moved", "printed"), [(2.0, 0.0, 0.1, 102.3, 2.72), (0.5, 0.05, 0.0, 0.2185, 0.0023)]
)
def test_a_scalar_network_breaks_the_printed_activation_bound(
    weight: float, dw: float, dm: float, moved: float, printed: float
) -> None:
    steps = 10
    truth = scalar(weight + dw, 1 + dm, steps) - scalar(weight, 1.0, steps)
    assert truth == pytest.approx(moved, abs=5e-5)
    assert printed_activation_bound(weight, 1.0, steps, dw, dm) == pytest.approx(printed, rel=0.02)
    assert truth <= activation_perturbation(weight, 1.0, 1.0, steps, dw, dm)


class Network:
    """A random ReLU network, a perturbation as large as allowed, and inputs up to norm 1."""

    def __init__(self, seed: int, scale: float | None = None) -> None:
        generator = torch.Generator().manual_seed(seed)

        def draw(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        def number(low: float, high: float) -> float:
            return low + (high - low) * float(torch.rand((), generator=generator))

        n, self.steps = 3, 1 + int(number(1, 12))
        sizes = (number(0.2, 1.6) if scale is None else scale, number(0.3, 2.0), number(0.3, 2.0))
        shares = [number(0, 1) * size / self.steps for size in sizes]
        self.weights, self.changes = ([of_norm(draw(n, n), size) for size in each] for each in (sizes, shares))
        if seed % 2:  # no cancellation: what the bounds have to cover
            self.weights, self.changes = ([each.abs() for each in matrices] for matrices in (self.weights, self.changes))
            self.weights = [of_norm(each, size) for each, size in zip(self.weights, sizes, strict=True)]
            self.changes = [of_norm(each, size) for each, size in zip(self.changes, shares, strict=True)]
        self.x = draw(self.steps, n).abs()
        self.x = self.x / self.x.norm(dim=1, keepdim=True)

    def state(self, weight: Tensor, input_weight: Tensor) -> Tensor:
        h = torch.zeros(3, dtype=torch.float64)
        for x in self.x:
            h = (weight @ h + input_weight @ x).relu()
        return h

    def measure(self) -> tuple[float, float, float]:
        """Return the norms of the state, of its change, and of the change of the output."""
        (w, m, y), (v, k, z) = self.weights, (a + d for a, d in zip(self.weights, self.changes, strict=True))
        first, second = self.state(w, m), self.state(v, k)
        return float(first.norm()), float((second - first).norm()), float((z @ second - y @ first).norm())


def test_random_networks_break_the_printed_display_and_never_the_bounds() -> None:
    broken, ratios = 0, []
    for seed in range(300):
        network = Network(seed)
        (w, m, y), (dw, dm, dy) = map(norm, network.weights), map(norm, network.changes)
        state, moved, output = network.measure()
        broken += moved > printed_activation_bound(w, m, network.steps, dw, dm)
        assert state <= activation_bound(w, m, SLACK, network.steps)
        assert moved <= activation_perturbation(w, m, SLACK, network.steps, dw, dm)
        ratios.append(output / output_perturbation(w, m, y, SLACK, network.steps, dw, dm, dy))
    assert broken > 0
    assert 0.1 < max(ratios) <= 1


@pytest.mark.parametrize("scale", [0.3, 0.8, 0.95])
def test_a_contraction_moves_within_a_bound_that_knows_no_time(scale: float) -> None:
    ratios = []
    for seed in range(60):
        network = Network(seed, scale)
        (w, m, _), (dw, dm, _) = map(norm, network.weights), map(norm, network.changes)
        perturbed = norm(network.weights[0] + network.changes[0])
        moved = network.measure()[1]
        if perturbed < 1:
            ratios.append(moved / contractive_perturbation(w, m, SLACK, dw, dm, perturbed))
            assert contractive_perturbation(w, m, SLACK, dw, dm) >= contractive_perturbation(w, m, SLACK, dw, dm, perturbed)
    assert 0.01 < max(ratios) <= 1


def test_a_scalar_network_meets_the_contractive_bound() -> None:
    truth = scalar(0.5, 1.1, 200) - scalar(0.5, 1.0, 200)
    bound = contractive_perturbation(0.5, 1.0, 1.0, recurrent_change=0.0, input_change=0.1)
    assert 0.999 * bound < truth <= bound


@given(norm=st.floats(0, 3), gain=st.floats(0, 10), bound=st.floats(0, 10), steps=st.integers(0, 40))
def test_the_bound_on_the_state_is_the_geometric_sum_rounded_up(norm: float, gain: float, bound: float, steps: int) -> None:
    exact = Fraction(bound) * Fraction(gain) * sum(Fraction(norm) ** j for j in range(steps))
    found = Fraction(activation_bound(norm, gain, bound, steps))
    assert exact <= found <= exact * (1 + Fraction(1, 10**12)) + Fraction(1, 10**280)


@pytest.mark.parametrize("weight", [0.5, 1.0, 2.0])
def test_a_scalar_network_meets_the_bound_on_the_state(weight: float) -> None:
    truth = scalar(weight, 1.0, 30)
    assert truth <= activation_bound(weight, 1.0, 1.0, 30) <= truth * (1 + 1e-13)
    assert truth <= 30 * max(weight**29, 1.0)  # the coarser form of the lemma


def test_the_output_bound_is_the_sum_of_three_terms() -> None:
    w, m, y, b, t, dw, dm, dy = 1.5, 2.0, 3.0, 0.5, 4, 0.1, 0.2, 0.3
    expected = t * b * w ** (t - 1) * (math.e * t * y * m * dw + math.e * y * dm + m * dy)
    assert output_perturbation(w, m, y, b, t, dw, dm, dy) == pytest.approx(expected, rel=1e-12)


def test_a_weight_below_one_may_move_by_one_over_the_steps() -> None:
    """Note [mathematics], 2.12: the maximum with 1 is what the induction needs, and what random perturbations satisfy."""
    assert activation_perturbation(0.1, 1.0, 1.0, 10, recurrent_change=0.1, input_change=0.0) < math.inf
    truth = scalar(0.2, 1.0, 10) - scalar(0.1, 1.0, 10)
    assert truth <= activation_perturbation(0.1, 1.0, 1.0, 10, recurrent_change=0.1, input_change=0.0)


@pytest.mark.parametrize("norm", [1.0, 1.2])
def test_the_contractive_bound_is_infinite_without_a_contraction(norm: float) -> None:
    assert contractive_perturbation(norm, 1.0, 1.0, 0.1, 0.1) == math.inf
    assert contractive_perturbation(0.5, 1.0, 1.0, 0.6, 0.1) == math.inf


def test_large_changes_are_refused_by_name() -> None:
    with pytest.raises(CertificateError, match=r"`recurrent_change` is 0\.3, but must be at most max\(`recurrent_norm`, 1\)"):
        activation_perturbation(0.5, 1.0, 1.0, 10, recurrent_change=0.3, input_change=0.0)
    with pytest.raises(CertificateError, match=r"`output_change` is 0\.3, but must be at most `output_norm`"):
        output_perturbation(0.5, 1.0, 1.0, 1.0, 10, 0.0, 0.0, output_change=0.3)


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize(("bad", "error"), [(math.nan, NotFiniteError), (-1.0, ArgumentError)])
def test_numbers_that_are_no_bounds_are_refused(place: int, bad: float, error: type[Exception]) -> None:
    numbers = [0.5, 1.0, 1.0, 0.01]
    numbers[place] = bad
    name = ["recurrent_norm", "input_norm", "input_bound", "recurrent_change"][place]
    with pytest.raises(error, match=f"`{name}`"):
        activation_perturbation(*numbers[:3], 10, numbers[3], 0.0)
    with pytest.raises(error, match=f"`{name}`"):
        contractive_perturbation(*numbers, 0.0)


def test_a_perturbation_needs_a_step() -> None:
    with pytest.raises(ArgumentError, match="`steps`"):
        activation_perturbation(0.5, 1.0, 1.0, 0, 0.0, 0.0)
