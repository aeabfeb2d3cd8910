"""Regression on a Gaussian sequence, against Miller, Hardt, section 7.1 and appendix A.5."""

import pytest
import torch

from steadyrnn.errors import ArgumentError
from steadyrnn.tasks.base import Interface
from steadyrnn.tasks.hashing import Stream, gaussian
from steadyrnn.tasks.settings import StableSystemSettings
from steadyrnn.tasks.stable_system import StableSystem, impulse_response


def test_the_paper_s_setting_is_the_default() -> None:
    settings = StableSystemSettings()
    assert (settings.length, settings.inputs, settings.bound, settings.train) == (200, 32, 0.75, 1)
    task = StableSystem(settings)
    assert task.interface == Interface(inputs=32, outputs=1, reads="last")
    assert task.train_batch(0, 1).input.shape == (200, 1, 32)
    assert (task.metric, task.higher_is_better) == ("loss", False)


def test_inputs_are_normal_with_covariance_four_times_the_identity() -> None:
    (batch,) = StableSystem(StableSystemSettings(length=50, test=200)).batches("test", 200)
    x = batch.input.double().flatten(0, 1)  # (10,000, 32)
    covariance = x.T @ x / len(x)
    assert (covariance - 4 * torch.eye(32, dtype=torch.float64)).abs().max() < 0.25  # 4.4 standard errors of the diagonal
    assert x.mean(0).abs().max() < 0.09


def test_targets_are_uniform_from_minus_two_to_two() -> None:
    (batch,) = StableSystem(StableSystemSettings(length=1, inputs=1, test=20_000)).batches("test", 20_000)
    y = batch.target.double()
    assert -2 <= y.min() < -1.99
    assert 1.99 < y.max() < 2
    assert abs(y.mean()) < 0.04
    assert y.var().item() == pytest.approx(4 / 3, abs=0.04)
    assert abs((y[:, 0] * batch.input[0, :, 0]).mean()) < 0.08  # and have nothing to do with the input


def test_answering_nought_has_the_error_of_the_baseline() -> None:
    for target in ("uniform", "system"):
        task = StableSystem(StableSystemSettings(length=20, inputs=4, target=target, test=20_000))
        (batch,) = task.batches("test", 20_000)
        error = task.loss(torch.zeros_like(batch.target), batch).item()
        assert error == pytest.approx(task.baselines["loss"], rel=0.05)
    assert StableSystem(StableSystemSettings()).baselines["loss"] == pytest.approx(4 / 3)


@pytest.mark.parametrize("length", [1, 2, 30])
def test_the_target_of_a_system_is_its_last_output(length: int) -> None:
    settings = StableSystemSettings(seed=4, length=length, inputs=6, target="system", test=9)
    (batch,) = StableSystem(settings).batches("test", 9)
    w, u, c, d = (gaussian(4, Stream.SYSTEM, i, torch.arange(n), dtype=torch.float64) for i, n in enumerate([36, 36, 6, 6]))
    left, sigma, right = torch.linalg.svd(0.5**0.5 * w.view(6, 6))
    assert sigma.max() > 0.75  # or nothing was cut off
    w = left @ torch.diag(sigma.clamp(max=0.75)) @ right
    h, x = torch.zeros(9, 6, dtype=torch.float64), batch.input.double()
    for now in x:
        h = h @ w.T + now @ (0.5**0.5 * u.view(6, 6)).T
    torch.testing.assert_close(batch.target[:, 0], (h @ c + x[-1] @ d).float(), atol=1e-5, rtol=1e-5)


def test_a_response_fades_as_the_bound_says() -> None:
    response = impulse_response(0, length=40, inputs=32, bound=0.75)
    sizes = response.norm(dim=1)
    c, u = (gaussian(0, Stream.SYSTEM, i, torch.arange(n), dtype=torch.float64) for i, n in ((2, 32), (1, 1024)))
    limit = c.norm() * torch.linalg.matrix_norm(0.5**0.5 * u.view(32, 32), 2)
    lags = torch.arange(39, 0, -1)
    assert (sizes[:-1] <= limit * 0.75**lags * (1 + 1e-9)).all()


@pytest.mark.parametrize(
    ("name", "value"),
    [("length", 0), ("inputs", 0), ("train", 0), ("bound", 1.0), ("bound", -0.1), ("target", "gaussian")],
)
def test_a_wrong_setting_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ArgumentError, match=f"`{name}`"):
        StableSystem(StableSystemSettings(**{name: value}))  # type: ignore[arg-type]
