"""Identification of a contractive system, against Emami et al. and Note [mathematics], section 1.7."""

import math
from functools import cache

import pytest
import torch
from torch import Tensor

from steadyrnn.errors import ArgumentError
from steadyrnn.tasks.base import Interface
from steadyrnn.tasks.contractive import Contractive
from steadyrnn.tasks.contractive_system import ContractiveSystem, calibrate, random_system
from steadyrnn.tasks.settings import ContractiveSettings


@cache
def paper(snr: float = 20.0, seed: int = 0) -> Contractive:
    """The paper's system and length, with fewer records."""
    return Contractive(ContractiveSettings(seed=seed, snr=snr, train=40, validation=10, test=60))


def test_the_paper_s_setting_is_the_default() -> None:
    settings = ContractiveSettings()
    assert (settings.units, settings.epsilon, settings.active, settings.length) == (4, 0.01, 0.6, 1000)
    assert settings.test / (settings.train + settings.test) == pytest.approx(0.3)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("units", [1, 4, 9])
def test_the_transition_has_the_eigenvalues_of_the_recipe(seed: int, units: int) -> None:
    w = random_system(seed, 2, units, 2, epsilon=0.01).transition
    values = torch.linalg.eigvalsh(w)
    torch.testing.assert_close(w, w.T)
    assert values.min().item() == pytest.approx(1 - 0.01, abs=1e-12)  # the mode of the largest singular value of A
    assert values.max() < 1


def test_slow_modes_take_as_long_as_the_notes_say() -> None:
    slowness = [1 / (1 - torch.linalg.matrix_norm(random_system(s, 2, 4, 2, 0.01).transition, 2).item()) for s in range(400)]
    median = sorted(slowness)[200]
    assert 7_000 < median < 17_000  # 11,204 in Note [mathematics], section 1.7


def test_weights_are_standard_normal_and_differ_by_seed() -> None:
    drawn = [random_system(seed, 2, 4, 2, 0.01) for seed in range(300)]
    for part in ("input_weight", "bias", "readout"):
        values = torch.stack([getattr(system, part) for system in drawn])
        assert abs(values.mean()) < 0.15
        assert values.std().item() == pytest.approx(1, abs=0.1)
    first, second = drawn[0], drawn[1]
    assert not torch.equal(first.readout, second.readout)


def test_states_follow_the_recurrence() -> None:
    system, x = random_system(1, 3, 4, 2, 0.3), torch.randn(6, 5, 3, dtype=torch.float64)
    h, states = torch.zeros(5, 4, dtype=torch.float64), []
    for now in x:
        h = (h @ system.transition.T + now @ system.input_weight.T + system.bias).clamp(min=0)
        states.append(h)
    torch.testing.assert_close(system.states(x), torch.stack(states))
    torch.testing.assert_close(system.outputs(x), torch.stack(states) @ system.readout.T)


@pytest.mark.parametrize("seed", range(4))
def test_units_are_on_at_sixty_percent_of_the_steps(seed: int) -> None:
    task = paper(seed=seed)

    def shares(split: str, count: int) -> Tensor:
        (batch,) = task.batches(split, 1000)
        return (task.system.states(batch.input[:, :count].double()) > 0).double().mean((0, 1))

    assert (shares("train", 20) - 0.6).abs().max() < 0.0101  # inputs were rounded to float32 since
    assert (shares("test", 60) - 0.6).abs().max() < 0.05


def test_a_share_that_cannot_be_reached_is_refused() -> None:
    system = random_system(0, 2, 4, 2, 0.01)
    with pytest.raises(ArgumentError, match=r"`active`.*on 1 records of 1 steps.*`length`"):
        calibrate(system, torch.ones(1, 1, 2, dtype=torch.float64), active=0.6)


@pytest.mark.parametrize(("snr", "ceiling"), [(20.0, 0.9901), (15.0, 0.9693)])
def test_the_system_itself_reaches_the_ceiling(snr: float, ceiling: float) -> None:
    task = paper(snr)
    sums: dict[str, float] = {}
    for batch in task.batches("test", 7):
        for key, value in task.scores(task.system.outputs(batch.input.double()).float(), batch).items():
            sums[key] = sums.get(key, 0.0) + value.item()
    assert task.ceiling == pytest.approx(ceiling, abs=5e-5)
    assert task.summary(sums)["r2"] == pytest.approx(ceiling, abs=0.003)


@pytest.mark.parametrize("snr", [15.0, 20.0])
def test_noise_has_the_ratio_requested_in_every_channel(snr: float) -> None:
    task = paper(snr)
    (batch,) = task.batches("train", 1000)
    clean = task.system.outputs(batch.input.double())
    noise = batch.target.double() - clean
    decibels = 10 * torch.log10(clean.var((0, 1)) / noise.var((0, 1)))
    assert (decibels - snr).abs().max() < 0.15
    assert noise.mean((0, 1)).abs().max() < 0.02 * clean.std((0, 1)).max()


def test_a_constant_has_no_share_of_the_variance() -> None:
    task = paper()
    (batch,) = task.batches("test", 1000)
    output = batch.target.mean((0, 1)).expand_as(batch.target)
    sums = {key: value.item() for key, value in task.scores(output, batch).items()}
    assert task.summary(sums) == pytest.approx(dict(task.baselines), rel=1e-4, abs=1e-5)


def test_r2_is_the_share_of_the_squared_deviations_explained() -> None:
    task = paper()
    (batch,) = task.batches("validation", 100)
    output = 0.7 * batch.target + 0.1
    y, guess = batch.target.double(), output.double()
    expected = 1 - (y - guess).square().sum() / (y - y.mean((0, 1))).square().sum()
    sums = {key: value.item() for key, value in task.scores(output, batch).items()}
    assert task.summary(sums)["r2"] == pytest.approx(expected.item(), rel=1e-5)


def test_r2_of_outputs_that_do_not_vary_is_no_number() -> None:
    sums = {"squared_error": 1.0, "count": 4.0, "sum_0": 2.0, "squares_0": 2.0, "sum_1": 0.0, "squares_1": 0.0}
    assert math.isnan(paper().summary(sums)["r2"])


def test_inputs_are_standard_normal_and_single_precision() -> None:
    (batch,) = paper().batches("train", 1000)
    assert batch.input.dtype == batch.target.dtype == torch.float32
    assert abs(batch.input.mean()) < 0.02
    assert batch.input.std().item() == pytest.approx(1, abs=0.01)


def test_the_interface_is_every_channel_at_every_step() -> None:
    settings = ContractiveSettings(inputs=3, outputs=1, length=100, train=20, validation=1, test=1)
    task = Contractive(settings)
    assert task.interface == Interface(inputs=3, outputs=1, reads="each")
    assert task.train_batch(0, 4).target.shape == (100, 4, 1)
    assert (task.metric, task.higher_is_better) == ("r2", True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("length", 0), ("inputs", 0), ("units", 0), ("outputs", 0), ("train", 0), ("epsilon", 0.0), ("epsilon", 1.5)),
        *(("active", 0.0), ("active", 1.0), ("snr", math.nan), ("snr", math.inf)),
    ],
)
def test_a_wrong_setting_is_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(ArgumentError, match=f"`{name}`"):
        Contractive(ContractiveSettings(**{name: value}))  # type: ignore[arg-type]


def test_the_system_is_the_one_its_parts_say() -> None:
    eye = torch.eye(2, dtype=torch.float64)
    system = ContractiveSystem(0.5 * eye, eye, torch.tensor([0.0, -1.0], dtype=torch.float64), torch.ones(1, 2).double())
    x = torch.ones(2, 1, 2, dtype=torch.float64)
    assert system.states(x).flatten().tolist() == [1.0, 0.0, 1.5, 0.0]
    assert system.outputs(x).flatten().tolist() == [1.0, 1.5]
