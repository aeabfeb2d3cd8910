"""Exponentials of skew matrices: determinants, the three gradients, and their descent (Note [mathematics], 3.5 and 3.6)."""

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from steadyrnn.constraints import ExpOrthogonal
from steadyrnn.constraints.factor import skew_size
from steadyrnn.errors import ArgumentError
from steadyrnn.linalg.packing import pack_skew, unpack_skew
from tests.constraints.cases import gaussian_like, orthogonal, rounding, signed_identities


def gradient(constraint: ExpOrthogonal, raw: Tensor, direction: Tensor) -> Tensor:
    """Return the raw gradient of the linear loss ``<direction, W>``."""
    raw = raw.detach().clone().requires_grad_()
    (result,) = torch.autograd.grad((constraint(raw) * direction).sum(), raw)
    return result


@pytest.mark.parametrize("name", ["exact", "lie", "printed"])
@pytest.mark.parametrize("determinant", [1, -1])
def test_both_determinants_are_kept_while_training(name: str, determinant: int) -> None:
    constraint = ExpOrthogonal(gradient=name)
    (raw,) = constraint.right_inverse(orthogonal(6, 0, determinant))
    for step in range(20):
        raw = raw - 0.05 * gradient(constraint, raw, orthogonal(6, step, 1))
        raw = (constraint.after_step(raw) or (raw,))[0]
    assert int(torch.linalg.slogdet(constraint(raw)).sign) == determinant


@pytest.mark.parametrize("size", [2, 3, 6])
def test_half_turns_and_the_identity_are_reached(size: int) -> None:
    constraint = ExpOrthogonal()
    for matrix in signed_identities(size):
        back = constraint(*constraint.right_inverse(matrix))
        assert torch.linalg.matrix_norm(back - matrix, 2) <= rounding(size)


@pytest.mark.parametrize(("name", "bound"), [("exact", math.pi), ("printed", math.pi / 2)])
def test_a_fresh_skew_matrix_has_a_norm_below_its_bound(name: str, bound: float) -> None:
    constraint = ExpOrthogonal(gradient=name)
    (raw,) = constraint.raw(64, 64)
    norm = float(torch.linalg.matrix_norm(unpack_skew(raw, 64), 2))
    assert 0.9 * bound < norm <= bound


def test_a_fresh_lie_matrix_starts_at_zero_from_a_random_base() -> None:
    constraint = ExpOrthogonal(gradient="lie")
    (raw,) = constraint.raw(64, 64)
    assert not raw.any()
    angles = torch.linalg.eigvals(constraint(raw).double()).angle()
    assert angles.abs().max() > 0.9 * math.pi


@pytest.mark.parametrize("name", ["exact", "lie"])
def test_the_gradient_at_zero_is_the_printed_direction(name: str) -> None:
    constraint = ExpOrthogonal(gradient=name)
    (raw,) = constraint.raw(6, 6)
    zero, g = torch.zeros_like(raw, dtype=torch.float64), gaussian_like((torch.empty(6, 6),), 0)[0]
    w = constraint(zero)
    expected = pack_skew(g @ w.mT - w @ g.mT)
    torch.testing.assert_close(gradient(constraint, zero, g), expected, rtol=0, atol=16 * rounding(6))


@pytest.mark.parametrize("determinant", [1, -1])
def test_the_printed_gradient_is_the_printed_direction_everywhere(determinant: int) -> None:
    constraint = ExpOrthogonal(gradient="printed")
    w = orthogonal(6, 1, determinant)
    (raw,) = constraint.right_inverse(w)
    g = gaussian_like((torch.empty(6, 6),), 0)[0]
    expected = pack_skew(g @ w.mT - w @ g.mT)
    torch.testing.assert_close(gradient(constraint, raw, g), expected, rtol=0, atol=16 * rounding(6))
    exact = ExpOrthogonal()
    (same,) = exact.right_inverse(w)
    torch.testing.assert_close(exact(same), constraint(raw), rtol=0, atol=rounding(6))
    assert (gradient(exact, same, g) - expected).norm() > 0.1 * expected.norm()


def test_the_sign_that_is_printed_ascends() -> None:
    constraint = ExpOrthogonal(gradient="printed")
    (raw,) = constraint.raw(8, 8)
    raw = 0.1 * gaussian_like((raw,), 0)[0]
    g = gaussian_like((torch.empty(8, 8),), 1)[0]
    step = 1e-3 * gradient(constraint, raw, g)
    loss, plus, minus = ((constraint(raw + sign * step) * g).sum() for sign in (0, 1, -1))
    assert minus < loss < plus
    torch.testing.assert_close(plus - loss, loss - minus, rtol=0.02, atol=0)


def test_beyond_half_pi_the_printed_direction_may_ascend() -> None:
    # two planes turned by 2.2; G couples the angle of one with the opposite angle of the other, 4.4 apart
    turn = torch.tensor([[0.0, -2.2], [2.2, 0.0]], dtype=torch.float64)
    skew = torch.block_diag(turn, turn)
    across = torch.tensor([[0.5, 0.0], [0.0, -0.5]], dtype=torch.float64)
    s = torch.zeros(4, 4, dtype=torch.float64)
    s[2:, :2], s[:2, 2:] = across, -across.mT
    exact, printed = ExpOrthogonal(), ExpOrthogonal(gradient="printed")
    exact.raw(4, 4)
    printed.raw(4, 4)
    raw = pack_skew(skew)
    g = s @ exact(raw)
    wanted, used = gradient(exact, raw, g), gradient(printed, raw, g)
    assert float(wanted @ used / (used @ used)) == pytest.approx(math.sin(4.4) / 4.4, rel=1e-12)  # -0.216
    rise = float((printed(raw - 0.5e-3 * used) * g).sum() - (printed(raw) * g).sum())
    assert rise == pytest.approx(2.2e-4, rel=0.02)


def _minimise(name: str, start: float) -> tuple[list[float], Tensor]:
    """Bring W to a random rotation by plain steps from a skew matrix of that norm; return the losses."""
    constraint = ExpOrthogonal(gradient=name)
    skew = gaussian_like((torch.empty(12, 12),), 3)[0]
    skew = skew - skew.mT
    skew *= start / torch.linalg.matrix_norm(skew, 2)
    target, first = orthogonal(12, 5, 1), torch.linalg.matrix_exp(skew)
    (raw,) = constraint.raw(12, 12)
    (raw,) = constraint.right_inverse(first) if name == "lie" else (pack_skew(skew),)
    losses = []
    for _ in range(1000):
        raw = raw.detach().requires_grad_()
        loss = 0.5 * (constraint(raw) - target).square().sum()
        (step,) = torch.autograd.grad(loss, raw)
        losses.append(float(loss.detach()))
        raw = raw.detach() - 0.05 * step
        raw = (constraint.after_step(raw) or (raw,))[0]
    return losses, constraint(raw)


@pytest.mark.parametrize("start", [0.5, 3.0, 6.0])
def test_multiplicative_steps_converge_and_exact_ones_never_rise_but_printed_ones_do(start: float) -> None:
    lie, exact, printed = (_minimise(name, start)[0] for name in ("lie", "exact", "printed"))
    assert lie[-1] <= 1e-20
    assert max(later - sooner for sooner, later in pairwise(exact)) <= 1e-12
    assert sum(later > sooner + 1e-6 for sooner, later in pairwise(printed)) >= 100
    assert printed[-1] > exact[-1] > lie[-1]


@pytest.mark.parametrize("steps", [10, 100, 1000])
def test_rounding_errors_do_not_add_up_over_multiplicative_steps(steps: int) -> None:
    constraint = ExpOrthogonal(gradient="lie")
    (raw,) = constraint.raw(16, 16)
    plain = constraint(raw)
    turn = torch.linalg.matrix_exp(unpack_skew(_small_step(), 16))
    for _ in range(steps):
        raw = constraint.after_step(raw + _small_step())[0]  # type: ignore[index]
        plain = turn @ plain

    def drift(matrix: Tensor) -> float:
        return float((matrix.double().mT @ matrix.double() - torch.eye(16)).norm()) / 4

    assert drift(constraint(raw)) <= 8e-7
    if steps == 1000:
        assert drift(plain) > 2 * drift(constraint(raw))


def _small_step() -> Tensor:
    return gaussian_like((torch.empty(skew_size(16)),), 0, 0.02, torch.float32)[0]


def test_without_attaching_lie_is_exact_around_its_base() -> None:
    lie = ExpOrthogonal(gradient="lie")
    (raw,) = lie.raw(5, 5)
    there = gaussian_like((raw,), 0)[0]
    base = lie(torch.zeros_like(there))
    exact = ExpOrthogonal()
    exact.raw(5, 5)
    torch.testing.assert_close(lie(there), exact(there) @ base, rtol=0, atol=rounding(5))


def test_an_unknown_gradient_is_refused() -> None:
    with pytest.raises(ArgumentError, match="`gradient` must be one of exact, lie, printed, but is 'euclid'"):
        ExpOrthogonal(gradient="euclid")


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_skew_matrices_are_packed_and_unpacked(size: int) -> None:
    assert skew_size(size) == size * (size - 1) // 2
    (packed,) = gaussian_like((torch.empty(skew_size(size)),), 0)
    skew = unpack_skew(packed, size)
    assert torch.equal(skew, -skew.mT)
    assert torch.equal(pack_skew(skew), packed)
