"""Singular values around 0: entries of the diagonal of either sign, the set a ball, residual blocks close to the identity."""

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import steadyrnn as sr
from steadyrnn.constraints import Spectral, SpectralBall
from steadyrnn.constraints.optimizer import attach_projection
from steadyrnn.constraints.slot import Slot
from steadyrnn.constraints.spectral import from_interval, into_interval
from tests.constraints.cases import DTYPES, gaussian_like, member, rounding

KINDS = ["sigmoid", "clip", "penalty"]
seeds = st.integers(0, 2**31)


@pytest.mark.parametrize("sigma", KINDS)
@pytest.mark.parametrize("shape", [(40, 40), (40, 60)], ids=str)
def test_a_fresh_weight_has_entries_of_both_signs_all_over_the_interval(sigma: str, shape: tuple[int, int]) -> None:
    constraint = Spectral(center=0.0, radius=0.5, sigma=sigma)
    diagonal = constraint.signed_diagonal(constraint.raw(*shape)[2])
    assert float(diagonal.min()) < -0.3
    assert float(diagonal.max()) > 0.3
    assert float(diagonal.abs().max()) <= 0.5


def test_without_width_there_is_the_zero_matrix_only() -> None:
    assert not Spectral(center=0.0, radius=0.0).sample(3, 5).any()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@given(seed=seeds, size=st.integers(1, 9))
def test_the_set_is_a_ball(dtype: torch.dtype, seed: int, size: int) -> None:
    constraint, ball = Spectral(center=0.0, radius=0.5), SpectralBall(bound=0.5)
    matrix = gaussian_like((torch.empty(size, size),), seed, dtype=dtype)[0]
    assert torch.equal(constraint.violation(matrix), ball.violation(matrix))
    assert torch.equal(constraint.project(matrix), ball.project(matrix))


@given(seed=seeds)
def test_no_member_is_nearer_than_the_projection(seed: int) -> None:
    constraint = Spectral(center=0.0, radius=0.5)
    outside = gaussian_like((torch.empty(6, 6),), seed)[0]
    nearest = (outside - constraint.project(outside)).norm()
    for other in range(8):
        inside = member("spectral-zero", 6, seed % 1000 + other, determinant=(-1) ** other)
        assert nearest <= (outside - inside).norm() + rounding(6)


@pytest.mark.parametrize("reflectors", [0, 1, 2, (3, 1), (0, 2)])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_factored_form_has_the_absolute_values_as_singular_values(
    reflectors: int | tuple[int, int], dtype: torch.dtype
) -> None:
    constraint = Spectral(reflectors=reflectors, center=0.0, radius=0.5)
    raw = gaussian_like(constraint.raw(12, 12), 0, dtype=dtype)
    operator = constraint.operator(*raw)
    assert operator is not None
    assert bool((operator.diagonal < 0).any())
    sigma = numpy.linalg.svd(operator.dense().double().numpy(), compute_uv=False)
    expected = constraint.singular_values(raw[2]).double().numpy()
    numpy.testing.assert_allclose(sigma, -numpy.sort(-expected), rtol=0, atol=rounding(12, dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@given(size=st.floats(1e-30, 0.5), sign=st.sampled_from([-1, 1]))
def test_small_values_keep_their_digits(dtype: torch.dtype, size: float, sign: int) -> None:
    sigma = torch.tensor([sign * size], dtype=dtype)
    back = into_interval(from_interval(sigma, 0.0, 1.0), 0.0, 1.0)
    torch.testing.assert_close(back, sigma, rtol=16 * torch.finfo(dtype).eps, atol=0)


def test_it_is_the_map_that_is_stated() -> None:
    free = torch.linspace(-30, 30, 601, dtype=torch.float64)
    stated = 2 * 0.5 * (free.sigmoid() - 0.5)
    torch.testing.assert_close(into_interval(free, 0.0, 0.5), stated, rtol=0, atol=rounding(1))


def test_clipping_keeps_the_signs() -> None:
    constraint = Spectral(reflectors=0, center=0.0, radius=0.5, sigma="clip")
    raw = constraint.raw(3, 3)
    clipped = constraint.after_step(*raw[:2], torch.tensor([-2.0, 0.25, 2.0]))
    assert clipped is not None
    assert clipped[2].tolist() == [-0.5, 0.25, 0.5]


def test_the_penalty_is_the_squared_frobenius_norm() -> None:
    constraint = Spectral(center=0.0, sigma="penalty")
    raw = gaussian_like(constraint.raw(5, 5), 3)
    torch.testing.assert_close(constraint.penalty(*raw), constraint(*raw).square().sum())


@pytest.mark.parametrize("sigma", ["sigmoid", "clip"])
def test_a_singular_value_crosses_zero_in_training(sigma: str) -> None:
    """From 0.4 to -0.4: a diagonal that had to keep its sign would stop at 0."""
    slot = Slot(Spectral(reflectors=0, center=0.0, radius=0.5, sigma=sigma), 3, 3, dtype=torch.float64)
    with torch.no_grad():
        slot.raw2.fill_(0.4 if sigma == "clip" else float(from_interval(torch.tensor(0.4), 0.0, 0.5)))
    optimizer = torch.optim.SGD(slot.parameters(), lr=0.5 if sigma == "clip" else 8.0)  # the map has a slope of 1/4 at most
    attach_projection(optimizer, slot)
    for _ in range(200):
        optimizer.zero_grad()
        (slot.weight() + 0.4 * torch.eye(3)).square().sum().backward()
        optimizer.step()
    torch.testing.assert_close(slot.weight(), -0.4 * torch.eye(3, dtype=torch.float64), rtol=0, atol=1e-5)


def test_a_certificate_knows_the_norm() -> None:
    rnn = sr.RNN(3, 8, transition=Spectral(center=0.0, radius=0.5), dtype=torch.float64)
    certificate = sr.certify(rnn, input_bound=1.0)
    norm = float(torch.linalg.matrix_norm(rnn.weight_hh_l0.detach(), 2))
    assert certificate.stable
    assert certificate.contraction <= norm + rounding(8) <= 0.5 + 2 * rounding(8)
    (sigma,) = sr.spectrum(rnn).values()
    assert float(sigma.max()) == pytest.approx(norm)
    assert float(sigma.min()) >= 0


def test_gradients_of_a_recurrent_layer_stay_within_their_bounds() -> None:
    rnn = sr.RNN(3, 8, nonlinearity="identity", transition=Spectral(center=0.0, radius=0.5), dtype=torch.float64)
    flow = sr.gradient_flow(rnn, torch.randn(6, 2, 3, dtype=torch.float64))
    measured = numpy.asarray(flow.spectral)
    assert (measured <= 0.5 ** numpy.asarray(flow.lag) * (1 + 1e-12)).all()
    assert (measured <= numpy.asarray(flow.high) * (1 + 1e-12)).all()
    assert (measured >= numpy.asarray(flow.low) * (1 - 1e-12)).all()
