"""Gradients in windows of time against the plain recursion: every check figure of Note [mathematics], section 6.4."""

import math

import pytest
import torch
from torch import Tensor

from steadyrnn.bounds import parallel_gradients
from steadyrnn.bounds.gradients import Constants, layer_constants
from steadyrnn.bounds.memory import (
    boundary_errors,
)
from steadyrnn.bounds.norms import TwoNorm
from tests.bounds.windows import LAMBDA, LINEAR, RELU, TANH, Activation, drawn, mismatches, noise, states, windows


class Gradient:
    """The gradient by (W, U) of the sum of one loss per step, of a layer with input weight U = I, by adjoints in chunks."""

    def __init__(self, w: Tensor, inputs: Tensor, act: Activation, loss: Tensor, chunk: int) -> None:
        self.w, self.inputs, self.act, self.loss, self.chunk = w, inputs, act, loss, chunk

    def slopes(self, found: Tensor) -> Tensor:
        """Return the derivative of the activation behind each step, from the states (steps + 1, n)."""
        h = found[1:]
        return 1 - h * h if self.act is TANH else (h > 0).double() if self.act is RELU else torch.ones_like(h)

    def of(self, found: Tensor, inputs: Tensor, totals: Tensor) -> Tensor:
        """Return the gradient from states (steps + 1, n), inputs and the total adjoint of each state behind a step."""
        inner = self.slopes(found) * totals
        return torch.cat([inner.T @ found[:-1], inner.T @ inputs], dim=1)

    def totals(self, found: Tensor, cotangents: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        """Return the total adjoint of each state behind a step, and that of the first state."""
        slopes, found_totals, carried = self.slopes(found), [], last
        for t in reversed(range(len(cotangents))):
            total = cotangents[t] + carried
            found_totals.insert(0, total)
            carried = self.w.T @ (slopes[t] * total)
        return torch.stack(found_totals), carried

    def whole(self) -> Tensor:
        found = states(self.w, self.inputs, self.act)
        totals, _ = self.totals(found, self.loss, torch.zeros_like(found[0]))
        return self.of(found, self.inputs, totals)

    def chunked(self, warmup: int, adjoint_warmup: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradient in chunks, the mismatches of its adjoints, and those of its states."""
        found = windows(self.w, self.inputs, self.act, warmup, self.chunk)
        gradient, entering, leaving = torch.zeros(len(self.w), 2 * len(self.w), dtype=torch.float64), [], []
        zero = torch.zeros_like(found[0][0])
        for j, one in enumerate(found):
            right = slice((j + 1) * self.chunk, (j + 1) * self.chunk + adjoint_warmup)
            ahead = states(self.w, self.inputs[right], self.act, one[-1])
            last = self.totals(ahead, self.loss[right], zero)[1] if len(ahead) > 1 else zero
            part = slice(j * self.chunk, (j + 1) * self.chunk)
            totals, first = self.totals(one, self.loss[part], last)
            gradient = gradient + self.of(one, self.inputs[part], totals)
            entering.append(last)
            leaving.append(first)
        gaps = [(a - b).norm() for a, b in zip(entering[:-1], leaving[1:], strict=True)]
        return gradient, torch.stack([*gaps, torch.zeros((), dtype=torch.float64)]), mismatches(found, TwoNorm(len(self.w)))

    def constants(self, rate: float) -> tuple[Constants, float]:
        """Return the constants of the layer and the largest state; kinks are left to the check of masks."""
        reached = float(states(self.w, self.inputs, self.act).norm(dim=1).max())
        smoothness = 4 / (3 * math.sqrt(3)) if self.act is TANH else 0.0
        return layer_constants(rate, smoothness, reached, float(self.inputs.norm(dim=1).max()), bias=False), reached


def identity_case(act: Activation) -> Gradient:
    ones = torch.ones(8 * 128, 4, dtype=torch.float64)
    return Gradient(LAMBDA * torch.eye(4, dtype=torch.float64), ones, act, ones.clone(), 128)


@pytest.mark.parametrize("act", [LINEAR, RELU], ids=["linear", "relu"])
@pytest.mark.parametrize("k", [20, 60, 120])
def test_gradients_in_chunks_meet_both_bounds_to_a_third(act: Activation, k: int) -> None:
    case = identity_case(act)
    (constants, radius), gain = case.constants(LAMBDA), float(case.loss[0].norm())
    gradient, adjoint_gaps, state_gaps = case.chunked(k, k)
    error = float((gradient - case.whole()).norm())
    prior = parallel_gradients.window_gradient_error(constants, 8, k, k, radius, gain, 0.0)
    posterior = parallel_gradients.measured_window_gradient_error(
        constants, 128, adjoint_gaps, boundary_errors(LAMBDA, 128, state_gaps), gain, 0.0
    )
    assert error <= posterior <= prior * (1 + 1e-9)
    assert error >= 0.65 * prior


@pytest.mark.parametrize("k", [20, 60])
def test_of_a_random_tanh_network_the_measured_gradient_bound_is_orders_below_the_a_priori_one(k: int) -> None:
    n, rate = 12, 0.95
    case = Gradient(drawn(n, rate), noise(8 * 64, n), TANH, noise(8 * 64, n, seed=5), 64)
    (constants, radius), gain = case.constants(rate), float(case.loss.norm(dim=1).max())
    gradient, adjoint_gaps, state_gaps = case.chunked(k, k)
    error = float((gradient - case.whole()).norm())
    errors = boundary_errors(rate, 64, state_gaps)
    posterior = parallel_gradients.measured_window_gradient_error(constants, 64, adjoint_gaps, errors, gain, 0.0)
    prior = parallel_gradients.window_gradient_error(constants, 8, k, k, radius, gain, 0.0)
    assert error <= posterior + 1e-10 * float(case.whole().norm())
    assert posterior <= 1e-4 * prior


def test_a_random_relu_network_is_certified_by_its_masks() -> None:
    n, rate, k = 12, 0.95, 20
    case = Gradient(drawn(n, rate), noise(8 * 64, n), RELU, noise(8 * 64, n, seed=5), 64)
    (constants, _), gain = case.constants(rate), float(case.loss.norm(dim=1).max())
    gradient, adjoint_gaps, state_gaps = case.chunked(k, k)
    errors = boundary_errors(rate, 64, state_gaps)
    truth, proven = states(case.w, case.inputs, RELU), 0
    for j, one in enumerate(windows(case.w, case.inputs, RELU, k, 64)):
        part = slice(j * 64, (j + 1) * 64)
        inner = one[:-1] @ case.w.T + case.inputs[part]
        reach = errors[j] * rate ** torch.arange(64, dtype=torch.float64)
        agree = parallel_gradients.masks_agree(inner, case.w.norm(dim=1), reach)
        true_inner = truth[part.start : part.stop] @ case.w.T + case.inputs[part]
        assert bool(((inner > 0) == (true_inner > 0))[agree].all())
        proven += int(agree.sum())
    assert proven == 8 * 64
    error = float((gradient - case.whole()).norm())
    assert error <= parallel_gradients.measured_window_gradient_error(constants, 64, adjoint_gaps, errors, gain, 0.0)


def test_a_mask_is_not_proven_on_the_edge() -> None:
    inner = torch.tensor([[1.0, -1.0], [1.0, -2.0]])
    assert parallel_gradients.masks_agree(inner, torch.ones(2), torch.tensor([1.0, 0.5])).tolist() == [False, True]
    assert parallel_gradients.masks_agree(inner, torch.ones(2), torch.tensor([0.5, 0.5]), margin=0.6).tolist() == [False, False]
    assert parallel_gradients.masks_agree(torch.zeros(1, 2), torch.ones(2), torch.zeros(1)).tolist() == [False]


@pytest.mark.parametrize(("context", "agreeing"), [(6, 6), (6, 3), (6, 0), (1, 1)])
def test_the_masked_bound_holds_where_older_masks_are_wrong(context: int, agreeing: int) -> None:
    """A scalar chain in which all but the last ``agreeing`` slopes of the truncated run are zero."""
    rate, steps = 0.8, 200

    def derivative(slopes: list[float]) -> float:
        """Return the derivative by w of h+ = s (w h + 1) behind these slopes, from zero."""
        h, by_w = 0.0, 0.0
        for s in slopes:
            h, by_w = s * (rate * h + 1), s * (h + rate * by_w)
        return by_w

    truncated = [0.0] * (context - agreeing) + [1.0] * agreeing
    bound = parallel_gradients.masked_gradient_error(rate, torch.tensor([context]), torch.tensor([agreeing]), 5.0, 5.0)
    error = abs(derivative([1.0] * steps) - derivative(truncated))
    assert 0.3 * float(bound) <= error <= float(bound)


def test_with_all_masks_equal_the_masked_bound_is_that_of_a_linear_layer() -> None:
    from_masks = parallel_gradients.masked_gradient_error(0.5, torch.tensor([1, 2, 3, 5]), torch.tensor([1, 2, 3, 5]), 4.0, 0.0)
    assert from_masks.tolist() == pytest.approx([4 * k * 0.5 ** (k - 1) for k in (1, 2, 3, 5)], rel=1e-12)


@pytest.mark.parametrize("detach", [False, True])
def test_detaching_the_start_of_a_window_costs_an_error_that_no_warm_up_mends(detach: bool) -> None:
    n, rate, chunk = 8, 0.8, 32
    inputs, w = noise(8 * chunk, n), drawn(n, rate).requires_grad_()
    whole = torch.autograd.grad(states(w, inputs, TANH)[1:].square().sum(), w)[0]
    errors = []
    for k in (10, 30, 60):
        outputs = []
        for first in range(0, len(inputs), chunk):
            begin = max(0, first - k)
            start = states(w, inputs[begin:first], TANH)[-1]
            outputs.append(states(w, inputs[first : first + chunk], TANH, start.detach() if detach else start)[1:])
        gradient = torch.autograd.grad(torch.cat(outputs).square().sum(), w)[0]
        errors.append(float((gradient - whole).norm() / whole.norm()))
    if detach:
        assert min(errors) > 1e-3
        assert max(errors) < 1.01 * min(errors)
    else:
        assert errors[0] < 1e-2
        assert errors[1] < 1e-6
        assert errors[2] < 1e-13


def test_the_adjoint_of_a_window_is_off_by_what_it_did_not_see() -> None:
    case = identity_case(LINEAR)
    _, adjoint_gaps, _ = case.chunked(200, 20)
    missing = LAMBDA * float(adjoint_gaps[0])  # one step into the window
    assert missing <= parallel_gradients.adjoint_error(LAMBDA, float(case.loss[0].norm()), 20, distance=0)
    assert missing >= 0.8 * parallel_gradients.adjoint_error(LAMBDA, float(case.loss[0].norm()), 20, distance=0) * LAMBDA


@pytest.mark.parametrize("tol", [1e2, 1e-3, 1e-9])
def test_the_required_adjoint_warm_up_leaves_half_of_the_tolerance(tol: float) -> None:
    constants, _ = identity_case(LINEAR).constants(LAMBDA)
    k = parallel_gradients.required_adjoint_warmup(constants, 8, 2.0, tol)
    late = [parallel_gradients.window_gradient_error(constants, 8, 10**6, b, 0.0, 2.0, 0.0) for b in (k, k - 1)]
    assert late[0] <= tol / 2 < late[1]
    printed = math.ceil(math.log(7 * constants.weight_gain * (2 / 0.1) * 2 / (0.1 * tol)) / math.log(1 / 0.9))
    assert k == printed - 1


def test_one_window_has_no_error() -> None:
    constants, _ = identity_case(LINEAR).constants(LAMBDA)
    assert parallel_gradients.window_gradient_error(constants, 1, 0, 0, 1.0, 1.0, 1.0) == 0
    assert parallel_gradients.required_adjoint_warmup(constants, 1, 1.0, 1e-9) == 0
