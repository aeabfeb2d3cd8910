"""Gradients of the time-parallel layer: within their bound, within the tolerance, or refused."""

import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

import steadyrnn as sr
from steadyrnn.activations import Activation
from steadyrnn.errors import CertificateError, ConversionError
from steadyrnn.parallel.module import Parallel
from tests.parallel.layers import GATED, gated_of, rnn_of, states_of, unit_inputs


def gradients(layer: nn.Module, run: nn.Module, x: Tensor, loss: str) -> Tensor:
    """Return the gradient by all of W, U and b (of two equal bias vectors the first), as one vector."""
    output, state = run(x)
    total = {"all": lambda: output.square().sum(), "last": lambda: states_of(state)[0].sum(), "one": lambda: output[150].sum()}
    layer.zero_grad()
    total[loss]().backward()
    return torch.cat([p.grad.flatten() for name, p in layer.named_parameters() if "bias_hh" not in name])


def assert_gradient_within_bound(fast: Parallel, loss: str) -> None:
    """Refuse a gradient that is farther from the sequential one's than the report says."""
    x = unit_inputs(301, 2, 5)
    found = gradients(fast.layer, fast, x, loss)
    bound = fast.report.gradient
    truth = gradients(fast.layer, fast.layer, x, loss)
    assert fast.report.windows > 1
    assert float((found - truth).norm()) <= bound + 1e-12 * float(truth.norm())
    assert math.isfinite(bound)


@pytest.mark.parametrize("name", ["tanh", "identity", "sigmoid", "relu", "leaky_relu", "abs"])
@pytest.mark.parametrize("rate", [0.5, 0.8])
@pytest.mark.parametrize("loss", ["all", "last", "one"])
def test_the_gradient_is_within_its_bound(name: str, rate: float, loss: str) -> None:
    assert_gradient_within_bound(sr.to_parallel(rnn_of(rate, name), 1e-5, chunk=50), loss)


def test_the_gradient_bound_is_close_for_a_linear_layer() -> None:
    rnn = rnn_of(0.9, "identity", bias=False)
    with torch.no_grad():
        rnn.weight_hh_l0.copy_(0.9 * torch.eye(12))
        rnn.weight_ih_l0.fill_(0.5)
    fast = sr.to_parallel(rnn, 1e-2, chunk=30)
    x = torch.ones(391, 1, 5, dtype=torch.float64)
    found, truth = gradients(rnn, fast, x, "last"), gradients(rnn, rnn, x, "last")
    gradients(rnn, fast, x, "last")
    assert 0.5 * fast.report.gradient <= float((found - truth).norm()) <= fast.report.gradient


@pytest.mark.parametrize("name", ["tanh", "identity", "relu"])
def test_gradient_tol_makes_the_gradient_as_good_as_requested(name: str) -> None:
    rnn = rnn_of(0.8, name)
    fast = sr.to_parallel(rnn, 1e-3, chunk=60, gradient_tol=1e-6)
    x = unit_inputs(600, 1, 5)
    output, _ = fast(x)
    loss = output.square().sum() / 2  # its cotangents are the outputs
    loss.backward()
    assert fast.report.windows > 1
    assert fast.report.gradient <= 1e-6 * float(output.detach().norm(dim=-1).sum())


def test_without_gradient_tol_the_warm_up_is_shorter() -> None:
    rnn, x = rnn_of(0.8), unit_inputs(900, 1, 5)
    loose, tight = sr.to_parallel(rnn, 1e-3, chunk=60), sr.to_parallel(rnn, 1e-3, chunk=60, gradient_tol=1e-9)
    loose(x), tight(x)
    assert loose.report.warmup < tight.report.warmup


def test_a_relu_layer_on_the_kink_sweeps_until_it_is_exact() -> None:
    rnn = rnn_of(0.8, "relu")
    with torch.no_grad():
        rnn.bias_ih_l0.zero_(), rnn.bias_hh_l0.zero_()
    fast = sr.to_parallel(rnn, 1e-3, chunk=60, gradient_tol=1e-6)
    x = torch.zeros(400, 1, 5, dtype=torch.float64)  # every pre-activation is 0: no mask is ever proven
    fast(x)[0].sum().backward()
    assert fast.report.sweeps == fast.report.windows - 1 > 1
    assert fast.report.gradient == 0


def test_the_gradient_of_a_short_run_has_no_error() -> None:
    rnn = rnn_of(0.8)
    fast = sr.to_parallel(rnn, 1e-3, chunk=60)
    fast(unit_inputs(20, 1, 5))[1].sum().backward()
    assert fast.report.gradient == 0


def test_cotangents_add_up_over_backward_passes() -> None:
    fast = sr.to_parallel(rnn_of(0.8), 1e-3, chunk=40)
    output, _ = fast(unit_inputs(300, 1, 5))
    output.sum().backward(retain_graph=True)
    once = fast.report.gradient
    output.sum().backward()
    assert fast.report.gradient == pytest.approx(2 * once, rel=1e-9)


def weighted(name: str, off: float = 10.0) -> sr.RNN:
    """Return an RNN that does not contract in the 2-norm, but in a weighted one."""
    layer = rnn_of(0.8, name)
    with torch.no_grad():
        layer.weight_hh_l0.copy_(torch.diag(torch.full((12,), 0.5)))
        layer.weight_hh_l0[0, 1] = off
    return layer


@pytest.mark.parametrize("name", ["tanh", "identity", "sigmoid", "relu", "leaky_relu", "abs"])
@pytest.mark.parametrize("loss", ["all", "last", "one"])
def test_the_gradient_is_within_its_bound_where_another_norm_contracts(name: str, loss: str) -> None:
    rnn = weighted(name, 40.0 if name == "sigmoid" else 10.0)
    fast = sr.to_parallel(rnn, 1e-3, chunk=30)
    assert_gradient_within_bound(fast, loss)
    assert fast._proven.certificates[0].tiers[0].contraction.rate > 1 > fast.report.rate


def test_the_gradient_bound_in_a_weighted_norm_is_met_up_to_its_condition() -> None:
    """A linear layer whose state decays no faster than proven; what changing norms costs is the norm's condition, squared."""
    rnn = rnn_of(0.9, "identity", bias=False)
    with torch.no_grad():
        rnn.weight_hh_l0.copy_(0.9 * torch.eye(12))
        rnn.weight_hh_l0[0, 1] = 0.5
        rnn.weight_ih_l0.fill_(0.5)
    fast = sr.to_parallel(rnn, 1e-2, chunk=30)
    x = torch.ones(391, 1, 5, dtype=torch.float64)
    found, truth = gradients(rnn, fast, x, "last"), gradients(rnn, rnn, x, "last")
    gradients(rnn, fast, x, "last")
    norm = fast._proven.certificates[0].best.norm
    assert float((found - truth).norm()) <= fast.report.gradient
    assert fast.report.gradient <= 30 * norm.condition**2 * float((found - truth).norm())


def test_gradient_tol_is_kept_where_another_norm_contracts() -> None:
    rnn = weighted("tanh", 3.0)
    fast = sr.to_parallel(rnn, 1e-3, chunk=150, gradient_tol=1e-6)
    output, _ = fast(unit_inputs(900, 1, 5))
    output.square().sum().div(2).backward()
    assert fast.report.windows > 1
    assert fast.report.gradient <= 1e-6 * float(output.detach().norm(dim=-1).sum())


@pytest.mark.parametrize("kind", [*GATED, "stack"])
def test_where_no_theorem_bounds_the_gradient_it_is_not_given(kind: str) -> None:
    if kind == "stack":
        layer: nn.Module = rnn_of(0.8, num_layers=2)
    else:
        layer = gated_of(kind)
    fast = sr.to_parallel(layer, 1e-4, chunk=40, input_bound=1.0)
    fast(unit_inputs(400, 2, 5))[0].sum().backward()
    with pytest.raises(CertificateError, match="no bound on the error of the gradient"):
        _ = fast.report.gradient
    assert fast.report.to_dict()["gradient"] is None
    with pytest.raises(ConversionError, match="`gradient_tol` cannot be kept"):
        sr.to_parallel(layer, 1e-4, chunk=40, input_bound=1.0, gradient_tol=1e-3)


def test_before_backward_there_is_no_gradient() -> None:
    fast = sr.to_parallel(rnn_of(0.8), 1e-3, chunk=40)
    fast(unit_inputs(300, 1, 5))
    with pytest.raises(CertificateError, match="call backward"):
        _ = fast.report.gradient


@pytest.mark.parametrize("kind", ["RNN", *GATED])
def test_gradients_reach_inputs_and_weights(kind: str) -> None:
    layer = rnn_of(0.5) if kind == "RNN" else gated_of(kind)
    fast = sr.to_parallel(layer, 1e-12, chunk=60, input_bound=1.0)
    x = unit_inputs(400, 2, 5).requires_grad_()
    found, truth = (
        torch.autograd.grad(f(x)[0].square().sum(), [x, *layer.parameters()], allow_unused=True) for f in (fast, layer)
    )
    assert fast.report.windows > 1
    for a, b in zip(found, truth, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-9)


@pytest.mark.gpu
def test_the_gradient_bound_is_given_on_a_gpu() -> None:
    for name in ("tanh", "relu"):
        rnn = rnn_of(0.8, name).cuda()
        fast, x = sr.to_parallel(rnn, 1e-5, chunk=50), unit_inputs(301, 2, 5).cuda()
        found = gradients(rnn, fast, x, "all")
        bound = fast.report.gradient
        truth = gradients(rnn, rnn, x, "all")
        assert float((found - truth).norm()) <= bound + 1e-12 * float(truth.norm())


class Bent(Activation):
    """Bends at zero."""

    smoothness = math.inf
    kinks = (0.0,)


@dataclass(frozen=True)
class Wavy(Bent):
    """Is curved beside the kink."""

    name = "test_wavy"
    slopes = steepness = (0.0, 1.0)

    def value(self, x: Tensor, theta: Tensor | None = None) -> Tensor:
        return torch.where(x < 0, 0.0, x / 2 + (1e6 * x).sin() / 2e6)

    def derivative(self, x: Tensor) -> Tensor:
        return torch.where(x < 0, 0.0, (1 + (1e6 * x).cos()) / 2)


@dataclass(frozen=True)
class Slanted(Bent):
    """Linear on either side of zero, as it says."""

    name = "test_slanted"
    slopes = steepness = (0.25, 0.75)
    homogeneous = True

    def value(self, x: Tensor, theta: Tensor | None = None) -> Tensor:
        return torch.where(x < 0, x / 4, 3 * x / 4)

    def derivative(self, x: Tensor) -> Tensor:
        return torch.where(x < 0, 0.25, 0.75)


def test_a_curved_activation_with_a_kink_has_no_bound_on_its_gradient() -> None:
    fast = sr.to_parallel(rnn_of(0.5, Wavy()), 1e-3, chunk=30)
    fast(unit_inputs(301, 2, 5))[0].sum().backward()
    with pytest.raises(CertificateError, match="'test_wavy', which is not smooth"):
        _ = fast.report.gradient


def test_the_gradient_of_a_users_piecewise_linear_activation_is_within_its_bound() -> None:
    assert_gradient_within_bound(sr.to_parallel(rnn_of(0.8, Slanted()), 1e-5, chunk=50), "all")
