"""Numbers that are not finite: found at once, or by a flag that the optimizer's kernel reads."""

import math

import pytest
import torch
from torch import nn

from steadyrnn.errors import TrainingError
from steadyrnn.train.guard import Guard
from steadyrnn.train.optimizers import make_optimizer
from steadyrnn.train.settings import OptimizerSettings

CPU = torch.device("cpu")
BAD = [(math.nan, 1.0), (math.inf, 1.0), (1.0, math.nan), (1.0, math.inf)]


def tensors(*values: float) -> list[torch.Tensor]:
    return [torch.tensor(value) for value in values]


@pytest.mark.parametrize(("loss", "norm"), BAD)
def test_a_guard_that_waits_raises_at_once_and_names_step_and_loss(loss: float, norm: float) -> None:
    guard = Guard(CPU, waits=True)
    guard.begin(3)
    with pytest.raises(TrainingError, match=rf"Step 3 is not finite: its loss is {loss:.6g} and .* {norm:.6g}\."):
        guard.watch(*tensors(loss, norm))


@pytest.mark.parametrize(("loss", "norm"), BAD)
def test_a_guard_that_does_not_wait_names_the_first_bad_step_later(loss: float, norm: float) -> None:
    guard = Guard(CPU, waits=False)
    guard.begin(1)
    guard.watch(*tensors(1.0, 1.0))
    guard.check()
    for step, values in ((2, (loss, norm)), (3, (1.0, 1.0)), (4, (math.nan, math.nan))):
        guard.begin(step)
        guard.watch(*tensors(*values))
    with pytest.raises(TrainingError, match=rf"Step 2 is not finite: its loss is {loss:.6g}"):
        guard.check()


@pytest.mark.parametrize("waits", [True, False])
def test_finite_steps_pass(waits: bool) -> None:
    guard = Guard(CPU, waits)
    guard.begin(1)
    guard.watch(*tensors(1e30, 0.0))
    guard.check()


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
def test_a_fused_optimizer_moves_nothing_once_the_flag_is_up(name: str) -> None:
    torch.manual_seed(0)
    model, guard = nn.Linear(2, 1), Guard(CPU, waits=False)
    optimizer = make_optimizer(model, OptimizerSettings(name, lr=0.1, momentum=0.9), fused=True)
    optimizer.found_inf = guard.flag  # type: ignore[attr-defined]
    weights = []
    for step, scale in enumerate([1.0, math.nan, 1.0], start=1):
        optimizer.zero_grad()
        loss = scale * model(torch.ones(2)).sum()
        loss.backward()
        guard.begin(step)
        guard.watch(loss.detach(), torch.ones(()))
        optimizer.step()
        weights.append(model.weight.detach().clone())
    assert bool(weights[0].isfinite().all())
    assert torch.equal(weights[0], weights[1])
    assert torch.equal(weights[0], weights[2])
