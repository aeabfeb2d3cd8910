"""Descents of linear Spectral-RNNs: the loss is the expected error, and an end is what it is called."""

from collections.abc import Callable

import pytest
import torch
from torch.nn.utils import parameters_to_vector

from steadyrnn.experiments.base import Judgement
from steadyrnn.experiments.landscape import (
    Fit,
    LinearSpectral,
    _name_end,
    descend_from,
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
    hessian = fit.hessian()
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
    assert _name_end(0.0, 0.0, None, False) == "global"


@pytest.mark.parametrize(
    ("loss", "gradient", "lowest", "at_edge", "end"),
    [
        (1e-13, 1.0, None, False, "global"),
        (0.1, 1e-9, 0.0, False, "local"),
        (0.1, 1e-9, 0.0, True, "edge"),
        (0.1, 1e-9, -1e-3, False, "open"),
        (0.1, 1e-3, None, True, "open"),
    ],
)
def test_an_end_has_its_name(loss: float, gradient: float, lowest: float | None, at_edge: bool, end: str) -> None:
    assert _name_end(loss, gradient, lowest, at_edge) == end


@pytest.mark.parametrize(("name", "judge"), [("wide", judge_wide), ("narrow", judge_narrow)])
@pytest.mark.parametrize(
    ("end", "verdict"), [("global", "seen"), ("local", "not seen"), ("edge", "not seen"), ("open", "not seen")]
)
def test_one_descent_that_ends_elsewhere_is_told(name: str, judge: Callable[..., Judgement], end: str, verdict: str) -> None:
    cells = {f"{name}/seed{k}": {"end": "global"} for k in range(3)} | {f"{name}/seed3": {"end": end}}
    found = judge(cells)
    assert found.verdict == verdict
    assert found.mean == (1.0 if end == "global" else 0.75)
