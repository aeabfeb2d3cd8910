"""The option that trains the recurrent weight alone."""

import pytest
import torch
from torch import nn

from steadyrnn.errors import ArgumentError
from steadyrnn.models.registry import SYSTEMS
from steadyrnn.models.settings import ModelSettings, complete
from steadyrnn.models.systems import build_model
from steadyrnn.tasks.registry import make_task
from steadyrnn.train.settings import ClipSettings, OptimizerSettings, TrainSettings
from steadyrnn.train.trainer import train
from tests.constraints.cases import rounding
from tests.models.draws import assert_deviation
from tests.models.test_systems import INTERFACES, example, logits_of, small

FROZEN = [name for name, system in SYSTEMS.items() if "frozen" in system.options]
LEARNED = ("weight_hh", "transition", "initial_", "activation")


def is_recurrent(name: str) -> bool:
    return any(f"rnn.{part}" in name for part in LEARNED)


def values(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("kind", ["each", "tokens-each"])
@pytest.mark.parametrize("name", FROZEN)
def test_gradients_reach_the_recurrent_weight_alone(name: str, kind: str) -> None:
    model = build_model(small(name, frozen=True, skip=True, learn_initial_state=True, layers=2), INTERFACES[kind])
    logits_of(model, example(kind)).square().sum().backward()
    assert {name for name, p in model.named_parameters() if p.grad is not None} == {
        name for name, _ in model.named_parameters() if is_recurrent(name)
    }
    assert {name for name, _ in model.named_parameters() if not is_recurrent(name)} >= {"readout.weight", "readout.bias"}


def test_nothing_is_frozen_without_the_option() -> None:
    assert all(p.requires_grad for p in build_model(small("stable-rnn"), INTERFACES["each"]).parameters())


@pytest.mark.parametrize("deviation", [0.5, 0.5**0.5])
def test_both_readings_of_the_study_of_miller_and_hardt_can_be_built(deviation: float) -> None:
    torch.manual_seed(0)
    task = make_task("stable-system")
    settings = ModelSettings(
        "stable-rnn", width=32, bound=0.75, init="gaussian", recurrent_std=deviation, init_std=deviation, output_std=1.0,
        skip=True, frozen=True,
    )  # fmt: skip
    model = build_model(settings, task.interface)
    assert_deviation(model.rnn.weight_ih_l0, deviation)
    norm = float(torch.linalg.matrix_norm(model.rnn.weight_hh_l0.detach().double(), 2))
    assert norm == pytest.approx(0.75, rel=rounding(32, torch.float32))
    assert model.rnn.bias_ih_l0.abs().sum() == 0


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd", "rmsprop"])
def test_training_moves_the_recurrent_weight_alone(optimizer: str) -> None:
    torch.manual_seed(0)
    task = make_task("addition", length=5, validation=10, test=10)
    model = build_model(ModelSettings("contractive", width=6, frozen=True), task.interface)
    before = values(model)
    own = OptimizerSettings(name=optimizer, weight_decay=0.1)
    train(model, task, TrainSettings(steps=3, batch_size=4, optimizer=own, clip=ClipSettings(norm=1.0)))
    moved = {name for name, value in values(model).items() if not torch.equal(value, before[name])}
    assert moved == {name for name in before if is_recurrent(name)}


def test_a_set_that_holds_the_input_weights_cannot_freeze_them() -> None:
    with pytest.raises(ArgumentError, match="`frozen` is no option of the model 'stable-lstm'"):
        complete(ModelSettings("stable-lstm", frozen=True))
