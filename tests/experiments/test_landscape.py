"""Descents of linear Spectral-RNNs: the loss is the expected error, and an end is what it is called."""

from collections.abc import Callable

import pytest
import torch
from torch.nn.utils import parameters_to_vector

from steadyrnn.experiments.base import Judgement
from steadyrnn.experiments.landscape import (
    Ending,
    Fit,
    LinearSpectral,
    _descend,
    _name_end,
    _places,
    as_clipped,
    descend_from,
    examine_end,
    judge_narrow,
    judge_wide,
)

SIZES = {"inputs": 2, "units": 3, "outputs": 2, "steps": 6, "radius": 0.5}


def pair(seed: int = 0) -> Fit:
    torch.manual_seed(seed)
    teacher, student = (LinearSpectral(2, 3, 2, 0.5) for _ in range(2))
    return Fit(student, teacher.responses(6).detach())


def test_responses_are_powers_of_the_weight() -> None:
    torch.manual_seed(0)
    net = LinearSpectral(2, 4, 3, 0.2)
    w, u = net.rnn.weight_hh_l0, net.rnn.weight_ih_l0
    wanted = torch.stack([(net.readout @ torch.linalg.matrix_power(w, k) @ u).T for k in range(5)])
    torch.testing.assert_close(net.responses(5), wanted, rtol=1e-12, atol=1e-12)


def test_the_loss_is_the_expected_error_over_white_inputs() -> None:
    """The output is linear in the inputs, so that the expectation is the mean over all unit impulses times their number."""
    torch.manual_seed(0)
    one, other = (LinearSpectral(2, 3, 2, 0.5) for _ in range(2))
    fit = Fit(one, other.responses(6).detach())
    every = torch.eye(12, dtype=torch.float64).reshape(12, 6, 2).transpose(0, 1)  # an impulse at each step and input
    errors = [(net.rnn(every)[0][-1] @ net.readout.T) for net in (one, other)]
    expected = (errors[0] - errors[1]).square().sum() / fit.scale**2
    torch.testing.assert_close(fit.residuals().square().sum(), expected, rtol=1e-11, atol=0.0)


def test_jacobian_and_hessian_are_those_of_finite_differences() -> None:
    fit = pair()
    point = parameters_to_vector(fit.parameters).detach().clone()
    residuals, jacobian = fit.jacobian()
    gradient, hessian = fit.derivatives()
    torch.testing.assert_close(gradient, 2 * jacobian.T @ residuals, rtol=1e-10, atol=1e-12)
    step, direction = 1e-5, torch.randn(len(point), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    losses = [fit.loss_at(point + k * step * direction) for k in (-1, 0, 1)]
    slope = float(2 * residuals @ jacobian @ direction)
    assert (losses[2] - losses[0]) / (2 * step) == pytest.approx(slope, rel=1e-6)
    curvature = float(direction @ hessian @ direction)
    assert (losses[0] - 2 * losses[1] + losses[2]) / step**2 == pytest.approx(curvature, rel=1e-3)  # 1e-16 / step^2 is lost


def test_a_descent_only_lowers_the_loss_and_starts_anew_with_its_seed() -> None:
    one, again, other = (descend_from(seed, **SIZES, rounds=30) for seed in (0, 0, 1))
    assert one == again
    assert one["losses"] != other["losses"]
    assert all(late < early for early, late in zip(one["losses"], one["losses"][1:], strict=False))
    assert one["loss"] <= one["losses"][-1]


def test_a_student_that_starts_at_its_teacher_is_at_a_global_minimum() -> None:
    torch.manual_seed(0)
    net = LinearSpectral(2, 3, 2, 0.5)
    fit = Fit(net, net.responses(6).detach())
    assert fit.loss_at(parameters_to_vector(fit.parameters).detach()) == 0.0
    assert _name_end(0.0, None) == "global"


@pytest.mark.parametrize(
    ("loss", "found", "end"),
    [
        (1e-13, None, "global"),
        (0.1, None, "open"),
        (0.1, Ending(1e-9, 0.0, None), "local"),
        (0.1, Ending(1e-9, 0.0, 1e-3), "edge"),
        (0.1, Ending(1e-9, -1e-3, 1e-3), "open"),
        (0.1, Ending(1e-3, 0.0, 1e-3), "open"),
        (0.1, Ending(1e-9, -1e-3, None), "open"),
    ],
)
def test_an_end_has_its_name(loss: float, found: Ending | None, end: str) -> None:
    assert _name_end(loss, found) == end


def one_unit(raw: float, weight: float, steps: int = 5) -> Fit:
    """Return a student of one unit, its singular value between 0.9 and 1.1, against a teacher with another weight."""
    torch.manual_seed(0)
    student = LinearSpectral(1, 1, 1, 0.1)
    with torch.no_grad():
        student.rnn.get_parameter("transition_l0.h.raw2").fill_(raw)
    return Fit(student, (weight ** torch.arange(steps, dtype=torch.float64)).reshape(steps, 1, 1))


@pytest.mark.parametrize(("raw", "weight"), [(30.0, 1.8), (-30.0, 0.3)])
def test_an_end_that_the_loss_presses_against_is_a_minimum_on_the_border(raw: float, weight: float) -> None:
    """The nearest weight in the set is its end on the teacher's side."""
    fit = one_unit(raw, weight)
    losses, gradient = _descend(fit, 200)
    found = examine_end(fit)
    assert gradient < 1e-8
    assert found.inward is not None
    assert _name_end(losses[-1], found) == "edge"


@pytest.mark.parametrize(("raw", "weight"), [(100.0, 0.3), (-100.0, 1.8), (100.0, 1.05)])
def test_a_start_that_is_saturated_at_the_wrong_end_is_no_minimum(raw: float, weight: float) -> None:
    """The gradient by the raw number vanishes there, but the loss falls when the singular value moves into the set."""
    fit = one_unit(raw, weight)
    losses, gradient = _descend(fit, 200)
    found = examine_end(fit)
    assert gradient < 1e-8 < found.slope
    assert found.inward is None
    assert _name_end(losses[-1], found) == "open"


@pytest.mark.parametrize("raw", [14.0, -14.0])
def test_a_singular_value_close_to_an_end_is_judged_by_its_own_gradient(raw: float) -> None:
    """Not called saturated yet, but the slope of its sigmoid is 1e-6 and hides the gradient as well."""
    fit = one_unit(raw, 1.0)
    assert examine_end(fit).slope > 1e-3
    assert examine_end(fit).inward is None


@pytest.mark.parametrize("raw", [20.0, -20.0])
def test_the_rate_into_the_set_is_that_of_finite_differences(raw: float) -> None:
    fit = one_unit(raw, 1.8 if raw > 0 else 0.3)
    student = fit.student
    gain = float((student.readout @ student.rnn.weight_ih_l0).detach())
    sigma, step = float(student.rnn.weight_hh_l0.detach()), 1e-6

    def loss(weight: float) -> float:
        response = gain * weight ** torch.arange(5, dtype=torch.float64)
        return float((response - fit.target.flatten()).square().sum()) / fit.scale**2

    inside = -1 if raw > 0 else 1
    expected = (loss(sigma + inside * step) - loss(sigma - inside * step)) / (2 * step)
    gradient = Fit(as_clipped(student), fit.target).derivatives()[0]
    place = _places(student)
    assert inside * float(gradient[place]) == pytest.approx(expected, rel=1e-6)
    found = examine_end(fit)
    assert found.inward == (pytest.approx(expected, rel=1e-6) if expected > 0 else None)


def test_the_same_network_has_its_singular_values_as_parameters() -> None:
    torch.manual_seed(1)
    net = LinearSpectral(2, 4, 3, 0.5)
    torch.testing.assert_close(as_clipped(net).responses(6), net.responses(6), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("name", "judge"), [("wide", judge_wide), ("narrow", judge_narrow)])
@pytest.mark.parametrize(
    ("end", "verdict"), [("global", "seen"), ("local", "not seen"), ("edge", "not seen"), ("open", "not seen")]
)
def test_one_descent_that_ends_elsewhere_is_told(name: str, judge: Callable[..., Judgement], end: str, verdict: str) -> None:
    cells = {f"{name}/seed{k}": {"end": "global"} for k in range(3)} | {f"{name}/seed3": {"end": end}}
    found = judge(cells)
    assert found.verdict == verdict
    assert found.mean == (1.0 if end == "global" else 0.75)
