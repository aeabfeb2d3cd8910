"""Rules that move an orthogonal matrix downhill: what they reach, what the printed one does, and drift.

See Note [mathematics], sections 3.5, 3.6 and 3.9.
"""

import math
from functools import cache

import pytest
import torch
from torch import Tensor

from steadyrnn.linalg.exponential import exp_skew, skew_part
from tests.linalg.matrices import (
    gaussian,
    gaussian_complex,
    orthogonal,
    orthogonality,
    root_mean_defect,
    rounding,
    skew,
    unitary,
)

SIZE, STEP, STEPS = 12, 0.05, 3000
STARTS = [0.5, 3.0, 6.0]  # spectral norms of the first skew matrix
NORMS = [0.1, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0]


def gradient(b: Tensor, g: Tensor) -> Tensor:
    leaf = b.clone().requires_grad_()
    return torch.autograd.grad(exp_skew(leaf), leaf, g)[0]


def printed(w: Tensor, g: Tensor) -> Tensor:
    return g @ w.mH - w @ g.mH


@cache
def losses(rule: str, start: float) -> Tensor:
    """Bring W from the exponential of a skew matrix towards a rotation A; return all values of (1/2) |W - A|^2."""
    a, b = orthogonal(SIZE, 1, seed=1), skew(SIZE, start)
    w, seen = exp_skew(b), []
    for _ in range(STEPS):
        g = w - a
        seen.append(g.square().sum() / 2)
        if rule == "multiplicative":
            w = exp_skew(-STEP * printed(w, g)) @ w
        else:
            b = b - STEP * (gradient(b, g) if rule == "exact" else printed(w, g))
            w = exp_skew(b)
    return torch.stack([*seen, (w - a).square().sum() / 2])


@pytest.mark.parametrize("start", STARTS)
def test_the_printed_direction_raises_the_loss_at_hundreds_of_steps(start: float) -> None:
    assert int((losses("printed", start).diff() > 0).sum()) >= 900


@pytest.mark.parametrize("start", STARTS)
def test_the_printed_direction_is_far_from_the_target_after_three_thousand_steps(start: float) -> None:
    assert float(losses("printed", start)[-1000:].mean()) > 1  # it never settles, so no single loss tells


@pytest.mark.parametrize("start", STARTS)
def test_exact_additive_steps_lower_the_loss_every_time(start: float) -> None:
    assert float(losses("exact", start).diff().max()) < 0


@pytest.mark.parametrize("start", STARTS)
def test_exact_additive_steps_end_closer_than_printed_ones(start: float) -> None:
    assert float(losses("exact", start)[-1]) < float(losses("printed", start)[-1000:].min())


def test_exact_additive_steps_are_slower_the_further_out_they_start() -> None:
    near, *far = (float(losses("exact", start)[-1]) for start in STARTS)
    assert near < min(far)


@pytest.mark.parametrize("start", STARTS)
def test_multiplicative_steps_reach_the_target_up_to_the_rounding_of_all_steps(start: float) -> None:
    assert float(losses("multiplicative", start)[-1]) <= STEPS * rounding(SIZE) ** 2  # independent errors add in squares


@pytest.mark.parametrize("start", STARTS)
def test_adding_the_printed_matrix_as_printed_raises_the_loss_as_much_as_subtracting_lowers_it(start: float) -> None:
    a, w, step = orthogonal(SIZE, 1, seed=1), exp_skew(skew(SIZE, start)), 1e-3
    direction = printed(w, w - a)

    def change(sign: int) -> float:
        moved = exp_skew(sign * step * direction) @ w
        return float(((moved - a).square().sum() - (w - a).square().sum()) / 2)

    first_order = step * float(direction.square().sum()) / 2
    second_order = step**2 / 2 * float(torch.linalg.matrix_norm(direction, "nuc") * torch.linalg.matrix_norm(direction, 2))
    assert abs(change(1) - first_order) <= second_order < first_order
    assert abs(change(-1) + first_order) <= second_order


@cache
def drifted(steps: int) -> Tensor:
    """Return a float32 matrix after that many multiplicative steps."""
    n = 128
    a = orthogonal(n, 1, seed=1).float()
    w = exp_skew(skew(n, 3.0)).float()
    for _ in range(steps):
        w = torch.matrix_exp(-STEP * printed(w, w - a)) @ w
    return w


def test_multiplicative_steps_in_float32_drift_further_from_orthogonal_the_more_there_are() -> None:
    ten, hundred, thousand = (root_mean_defect(drifted(steps)) for steps in (10, 100, 1000))
    assert ten < hundred < thousand


def test_multiplicative_steps_in_float32_drift_more_slowly_than_their_number() -> None:
    assert root_mean_defect(drifted(1000)) < 100 * root_mean_defect(drifted(10))


def test_one_newton_step_undoes_more_than_the_drift_of_ten_steps() -> None:
    w = drifted(1000)
    mended = w @ (3 * torch.eye(len(w)) - w.mT @ w) / 2
    assert root_mean_defect(mended) < root_mean_defect(drifted(10))
    assert orthogonality(mended) <= 30


@cache
def worst_cosine(norm: float) -> float:
    """Return the least cosine between the printed direction and the gradient over 300 random losses, ten for each matrix."""
    found = []
    for seed in range(300):
        b, g = skew(8, norm, seed=seed // 10), gaussian(8, 8, seed=1000 + seed)
        s, exact = skew_part(g @ exp_skew(b).mT), gradient(b, g)
        found.append(float((s * exact).sum() / (s.norm() * exact.norm())))
    return min(found)


def test_the_worst_cosine_with_the_printed_direction_falls_with_the_norm() -> None:
    worst = [worst_cosine(norm) for norm in NORMS]
    assert worst == sorted(worst, reverse=True)


@pytest.mark.parametrize("norm", [norm for norm in NORMS if norm < math.pi / 2])
def test_below_a_quarter_turn_no_random_loss_is_below_the_stated_cosine(norm: float) -> None:
    assert math.sin(2 * norm) / (2 * norm) <= worst_cosine(norm) < 1


@pytest.mark.parametrize("norm", [5.0, 10.0])
def test_far_beyond_a_quarter_turn_some_random_loss_rises_along_the_printed_direction(norm: float) -> None:
    assert worst_cosine(norm) < 0


@pytest.mark.parametrize("seed", range(5))
def test_a_multiplicative_step_of_a_unitary_matrix_descends_with_minus_and_ascends_with_plus(seed: int) -> None:
    w, a = unitary(6, seed=seed), gaussian_complex(6, 6, seed=seed + 100)
    direction = printed(w, w - a)

    def change(step: float) -> float:
        return float(((exp_skew(step * direction) @ w - a).abs().square().sum() - (w - a).abs().square().sum()) / 2)

    assert change(-1e-3) < 0 < change(1e-3)


def test_multiplicative_steps_of_a_unitary_matrix_keep_it_unitary_and_reach_another() -> None:
    w, a = unitary(6), unitary(6, seed=7)
    for _ in range(STEPS):
        w = exp_skew(-STEP * printed(w, w - a)) @ w
    assert float((w - a).abs().square().sum() / 2) <= STEPS * rounding(6) ** 2
