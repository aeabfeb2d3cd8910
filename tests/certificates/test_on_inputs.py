"""Certificates for given inputs: valid for them, labelled so, and never worse than the general one."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import steadyrnn as sr
from steadyrnn.activations import Absolute, Activation, Identity, LeakyReLU, ReLU, Sigmoid, Tanh
from steadyrnn.certificates.certify import certify, recheck
from steadyrnn.errors import ArgumentError, ArgumentTypeError, CertificateError, NotFiniteError, ShapeError

ACTIVATIONS = {a.name: a for a in (Tanh(), ReLU(), LeakyReLU(0.2), Sigmoid(), Absolute(), Identity())}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_no_slope_near_a_point_is_steeper_than_the_bound(name: str) -> None:
    activation: Activation = ACTIVATIONS[name]
    generator = torch.Generator().manual_seed(0)
    a = 3 * torch.randn(200, dtype=torch.float64, generator=generator)
    radius = torch.rand(200, dtype=torch.float64, generator=generator)
    inside = (a + radius * torch.linspace(-1, 1, 101, dtype=torch.float64).unsqueeze(1)).requires_grad_()
    (slope,) = torch.autograd.grad(activation.value(inside).sum(), inside)
    assert bool((slope.abs() <= activation.steepest_near(a, radius) + 1e-12).all())


def driven(scale: float, seed: int = 0, **options: Any) -> tuple[sr.RNN, Tensor]:
    """Return a network with large inputs, which saturate it or switch its units off."""
    torch.manual_seed(seed)
    rnn = sr.RNN(3, 12, dtype=torch.float64, **options)
    return rnn, scale * torch.randn(60, 4, 3, dtype=torch.float64)


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu", "leaky_relu", "sigmoid", "abs", "identity"])
@pytest.mark.parametrize("bound", [0.7, 0.98])
def test_no_window_of_these_inputs_errs_more_than_the_certificate_says(nonlinearity: str, bound: float) -> None:
    rnn, x = driven(3.0, nonlinearity=nonlinearity, transition=sr.SpectralBall(bound))
    certificate = certify(rnn, inputs=x)
    whole = rnn(x)[0]
    for k in (1, 2, 5, 10, 30):
        for end in range(k + 1, 61, 7):
            window = rnn(x[end - k : end])[0][-1]
            error = float(torch.linalg.vector_norm(whole[end - 1] - window, dim=-1).max())
            assert error <= certificate.truncation_error(k)


@pytest.mark.parametrize("lag", [1, 2, 5, 20])
def test_jacobians_on_these_inputs_lie_between_the_bounds(lag: int) -> None:
    rnn, x = driven(2.0, nonlinearity="leaky_relu")
    certificate = certify(rnn, inputs=x[:, :1])
    for start in range(0, 60 - lag, 9):
        state = rnn(x[:start, :1])[1]
        jacobian = torch.autograd.functional.jacobian(lambda h, s=start: rnn(x[s : s + lag, :1], h)[1], state)
        low, high = certificate.gradient_bounds(lag)
        assert low <= float(torch.linalg.matrix_norm(jacobian.view(12, 12), 2)) <= high


def test_saturated_units_forget_much_faster_than_the_general_certificate_says() -> None:
    rnn, x = driven(20.0, transition=sr.Spectral(center=0.99, radius=0.0))
    assert certify(rnn, inputs=x).horizon(1e-3) * 20 < certify(rnn).horizon(1e-3)


def test_a_network_without_a_general_certificate_can_have_one_on_its_inputs() -> None:
    rnn, x = driven(30.0, transition=sr.Free())
    with torch.no_grad():
        rnn.weight_hh_l0.mul_(3)
    assert not certify(rnn).stable
    certificate = certify(rnn, inputs=x)
    assert certificate.truncation_error(8) < 0.01 * certificate.truncation_error(1)


def test_it_says_what_it_is_valid_for() -> None:
    rnn, x = driven(1.0)
    certificate = certify(rnn, inputs=x)
    assert certificate.valid_for == "these inputs only (4 rows of 60 steps)"
    assert "these inputs only" in str(certificate)
    with pytest.raises(CertificateError, match="only with its inputs"):
        recheck(certificate.to_dict(), rnn)


def test_a_window_that_reaches_the_start_loses_nothing() -> None:
    rnn, x = driven(1.0)
    assert certify(rnn, inputs=x).truncation_error(60) == 0


@pytest.mark.parametrize("make", [nn.LSTM, nn.GRU])
def test_a_gated_layer_is_certified_for_the_largest_entry_met(make: Any) -> None:
    torch.manual_seed(0)
    layer = make(3, 5).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(0.2)
    x = 0.1 * torch.randn(20, 2, 3, dtype=torch.float64)
    certificate = certify(layer, inputs=x)
    assert certificate.contraction < certify(layer, input_bound=3.0).contraction
    assert certificate.valid_for.startswith("these inputs only")


def test_rows_first_and_no_batch_are_read_as_the_layer_reads_them() -> None:
    rnn, x = driven(2.0, batch_first=True)
    one = certify(rnn, inputs=x.transpose(0, 1))
    rnn.batch_first = False
    assert one.truncation_error(4) == certify(rnn, inputs=x).truncation_error(4)
    assert certify(rnn, inputs=x[:, 0]).valid_for == "these inputs only (1 rows of 60 steps)"


@pytest.mark.parametrize(
    ("inputs", "error"),
    [
        ([1.0], ArgumentTypeError),
        (torch.zeros(3), ShapeError),
        (torch.zeros(3, 2, 4), ShapeError),
        (torch.full((2, 1, 3), torch.nan), NotFiniteError),
    ],
    ids=["list", "one-dimension", "width", "nan"],
)
def test_inputs_that_do_not_fit_are_refused(inputs: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="inputs"):
        certify(nn.RNN(3, 4), inputs=inputs)


def test_no_steps_need_no_memory() -> None:
    assert certify(nn.RNN(3, 4), inputs=torch.zeros(0, 2, 3)).truncation_error(0) == 0


def test_a_stack_is_refused() -> None:
    with pytest.raises(CertificateError, match="one layer"):
        certify(nn.RNN(3, 4, num_layers=2), inputs=torch.zeros(2, 1, 3))


def test_inputs_beyond_the_bound_are_refused() -> None:
    rnn, x = driven(100.0, nonlinearity="identity", transition=sr.SpectralBall(0.9))
    with pytest.raises(ArgumentError, match="input_bound"):
        certify(rnn, 1e-3, inputs=x)


def test_an_expanding_network_has_no_known_trajectory() -> None:
    torch.manual_seed(0)
    rnn = sr.RNN(2, 32, bias=False, dtype=torch.float64)
    with torch.no_grad():
        rnn.weight_hh_l0.copy_(2.5 * torch.randn(32, 32, dtype=torch.float64) / 32**0.5)
    with pytest.raises(CertificateError, match="expands"):
        certify(rnn, inputs=0.1 * torch.randn(1000, 1, 2, dtype=torch.float64))


def test_no_rows_need_no_memory() -> None:
    assert certify(nn.RNN(3, 4), inputs=torch.zeros(5, 0, 3)).truncation_error(2) == 0
