"""modReLU on real numbers: one learned shift per unit, in the activation, a layer and a certificate."""

import math

import pytest
import torch
from torch import Tensor

import steadyrnn as sr
from steadyrnn.activations import RealModReLU
from steadyrnn.engines.cuda.kernels.codes import supports_elman
from steadyrnn.engines.triton.specs import spec_of
from steadyrnn.errors import ArgumentError, CertificateError
from steadyrnn.models.settings import ModelSettings
from steadyrnn.models.systems import build_model
from tests.models.test_systems import INTERFACES
from tests.support.errors import assert_equal_up_to_rounding, unit_roundoff


def layer(engine: str, shift: Tensor, **options: object) -> sr.RNN:
    torch.manual_seed(0)
    rnn = sr.RNN(2, shift.numel(), nonlinearity="modrelu_real", engine=engine, dtype=torch.float64, **options)  # type: ignore[arg-type]
    rnn.activation_l0.data.copy_(shift)
    return rnn


SHIFT = torch.tensor([-0.3, 0.0, 0.2, -0.05, 0.4])


def test_a_value_is_the_sign_times_the_shifted_size() -> None:
    x, theta = torch.randn(50, 7, dtype=torch.float64), torch.randn(7, dtype=torch.float64)
    expected = x.sign() * torch.relu(x.abs() + theta)
    assert_equal_up_to_rounding(RealModReLU().value(x, theta), expected)


@pytest.mark.parametrize("zero", [0.0, -0.0])
@pytest.mark.parametrize("theta", [0.5, 0.0, -0.5])
def test_zero_stays_zero(zero: float, theta: float) -> None:
    assert RealModReLU().value(torch.tensor([zero]), torch.tensor([theta])).item() == 0.0


def test_nan_stays_nan() -> None:
    assert RealModReLU().value(torch.tensor([math.nan]), torch.tensor([-1.0])).isnan().all()


def test_a_shift_below_zero_is_not_expansive() -> None:
    x, y = torch.randn(2, 500, 6, dtype=torch.float64)
    theta = -torch.rand(6, dtype=torch.float64)
    moved = (RealModReLU().value(x, theta) - RealModReLU().value(y, theta)).abs()
    assert (moved <= (x - y).abs() + 4 * unit_roundoff(x.dtype) * (x.abs() + y.abs() + 1)).all()


def test_a_positive_shift_has_no_bound_on_the_slope() -> None:
    assert RealModReLU().slope_bounds(torch.tensor([-1.0, 0.1])) == (-math.inf, math.inf)
    assert RealModReLU().slope_bounds(torch.tensor([-1.0, 0.0])) == (0.0, 1.0)


def test_there_is_no_derivative_without_the_shift() -> None:
    with pytest.raises(ArgumentError, match="depends on its learned shift"):
        RealModReLU().derivative(torch.ones(2))


def test_a_layer_has_one_shift_per_unit_that_starts_at_zero_and_is_learned() -> None:
    rnn = sr.RNN(2, 5, num_layers=2, nonlinearity="modrelu_real")
    assert [tuple(p.shape) for name, p in rnn.named_parameters() if name.startswith("activation")] == [(5,), (5,)]
    assert rnn.activation_l1.abs().sum() == 0
    rnn(torch.randn(4, 3, 2))[0].square().sum().backward()
    assert rnn.activation_l0.grad is not None
    assert (rnn.activation_l0.grad != 0).all()


def test_a_layer_computes_the_formula_step_by_step() -> None:
    rnn, x = layer("auto", SHIFT), torch.randn(6, 3, 2, dtype=torch.float64)
    h = x.new_zeros(3, 5)
    for step in x:
        before = step @ rnn.weight_ih_l0.mT + rnn.bias_ih_l0 + h @ rnn.weight_hh_l0.mT + rnn.bias_hh_l0
        h = before.sign() * torch.relu(before.abs() + rnn.activation_l0)
    torch.testing.assert_close(rnn(x)[0][-1], h)


@pytest.mark.parametrize("recompute", [False, True])
def test_the_cpu_engine_is_the_reference(recompute: bool) -> None:
    x, results = torch.randn(9, 4, 2, dtype=torch.float64), []
    for engine in ("reference", "cpu"):
        rnn = layer(engine, SHIFT, recompute=recompute)
        output = rnn(x, lengths=torch.tensor([9, 4, 1, 0]))[0]
        output.square().sum().backward()
        results.append([output.detach(), *(p.grad for p in rnn.parameters())])
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected)


def test_no_gpu_kernel_takes_it_for_another_function() -> None:
    cell = layer("auto", SHIFT).cell
    assert spec_of(cell) is None
    assert not supports_elman(cell)


def test_a_contraction_is_certified_if_no_shift_is_positive() -> None:
    rnn = layer("auto", -SHIFT.abs(), transition=sr.SpectralBall(0.5))
    certificate = sr.certify(rnn, input_bound=1.0)
    assert certificate.stable
    x, starts = torch.randn(5, 2, 2, dtype=torch.float64), torch.randn(1, 2, 5, dtype=torch.float64)
    one, other = (rnn(x, start)[0] for start in (starts, -starts))
    apart, before = (one - other).norm(dim=-1), 2 * starts[0].norm(dim=-1)
    assert (apart[-1] <= 0.5**5 * before * (1 + 1e-9)).all()


def test_a_positive_shift_is_not_certified() -> None:
    rnn = layer("auto", SHIFT, transition=sr.SpectralBall(0.5))
    assert not sr.certify(rnn, input_bound=1.0).stable
    with pytest.raises(CertificateError):
        sr.certify(rnn, inputs=torch.randn(3, 1, 2, dtype=torch.float64), input_bound=9.0)


def test_a_system_of_any_width_takes_it_by_name() -> None:
    model = build_model(ModelSettings("urnn", width=5, nonlinearity="modrelu_real"), INTERFACES["last"])
    assert model.rnn.activation == RealModReLU()
    assert model.rnn.activation_l0.shape == (5,)
