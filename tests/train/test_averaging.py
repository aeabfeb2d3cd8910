"""Averaged weights: what they are, that they are evaluated and kept, and that they stay in their sets."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from steadyrnn.constraints import ExpOrthogonal, Spectral, SpectralBall
from steadyrnn.constraints.averaging import averaged
from steadyrnn.constraints.sites import sites
from steadyrnn.errors import CheckpointError
from steadyrnn.runs.folder import Run
from steadyrnn.train.evaluation import evaluate
from steadyrnn.train.settings import AverageSettings, OptimizerSettings, TrainSettings
from steadyrnn.train.step import Stepper
from steadyrnn.train.trainer import train
from steadyrnn.train.weights import load_weights, section
from tests.constraints.cases import rounding
from tests.train.runs import addition, lines, new_run, plain_model, sequence_model, tiny

FAST = OptimizerSettings(lr=0.05)


def steps(settings: TrainSettings, model: nn.Module, count: int) -> tuple[Stepper, list[nn.Module]]:
    """Take some steps; return the stepper and a copy of the model after each."""
    stepper, seen = Stepper(model, addition(), settings, model), []
    for number in range(1, count + 1):
        stepper.step(number, addition().train_batch(number, 8), 1.0)
        seen.append(copy.deepcopy(model))
    return stepper, seen


def evaluated(stepper: Stepper) -> nn.Module:
    return stepper.weight_average.evaluated(stepper.model, stepper.model)[0]


@pytest.mark.parametrize(
    ("own", "taken"),
    [
        (AverageSettings("mean"), [0, 1, 2, 3, 4, 5, 6]),
        (AverageSettings("mean", start=3), [3, 4, 5, 6]),
        (AverageSettings("mean", start=1, every=3), [1, 4]),
        (AverageSettings("ema", decay=0.7, start=2), [2, 3, 4, 5, 6]),
    ],
)
def test_the_average_is_that_of_the_weights_after_the_steps_asked_for(own: AverageSettings, taken: list[int]) -> None:
    model = plain_model()
    stepper, seen = steps(tiny(average=own, optimizer=FAST), model, 7)
    weights = [seen[place].readout.weight.detach() for place in taken]  # type: ignore[union-attr]
    expected: Tensor = weights[0]  # type: ignore[assignment]
    for count, weight in enumerate(weights[1:], start=2):
        share = 1 / count if own.name == "mean" else 1 - own.decay
        expected = (1 - share) * expected + share * weight  # type: ignore[operator]
    torch.testing.assert_close(evaluated(stepper).readout.weight, expected, rtol=1e-5, atol=1e-6)  # type: ignore[union-attr]
    assert stepper.weight_average.count == len(taken)
    assert not torch.equal(model.readout.weight, expected)  # type: ignore[union-attr, arg-type]


@pytest.mark.parametrize("transition", [Spectral(), ExpOrthogonal(), ExpOrthogonal("lie"), SpectralBall(0.9), "ornn", "polar"])
def test_averaged_weights_are_in_their_sets(transition: Any) -> None:
    settings = tiny(average=AverageSettings("mean"), optimizer=FAST)
    stepper, _ = steps(settings, sequence_model(transition), 6)
    found = list(sites(evaluated(stepper)))
    assert len(found) == 2  # layers
    assert max(float(site.constraint.violation(site.weight())) for site in found) <= rounding(8, torch.float32)


def test_the_average_is_validated_kept_and_tested(tmp_path: Path) -> None:
    settings = tiny(average=AverageSettings("ema", decay=0.9), optimizer=FAST, steps=5, validate_every=5, save_every=5)
    torch.manual_seed(0)
    model = sequence_model(Spectral())
    twin = copy.deepcopy(model)
    with new_run(tmp_path, settings) as run:
        result = train(model, addition(), settings, run=run)
    plain = replace(settings, average=AverageSettings())
    torch.manual_seed(0)
    average = averaged(twin, 0.9)
    stepper = Stepper(twin, addition(), plain, twin)
    for number in range(1, 6):
        stepper.step(number, addition().train_batch(number - 1, 8), 1.0)
        average.update_parameters(twin)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), average.module.parameters(), strict=True))
    assert result.best == evaluate(average.module, addition(), "validation", 8)
    assert result.test == evaluate(average.module, addition(), "test", 8)
    assert result.best != evaluate(twin, addition(), "validation", 8)
    last, best = run.load("last").tensors, run.load("best").tensors
    assert torch.equal(best["model.readout.weight"], average.module.readout.weight)  # type: ignore[arg-type, union-attr]
    assert torch.equal(last["model.readout.weight"], twin.readout.weight)  # type: ignore[arg-type]
    assert torch.equal(last["average.module.readout.weight"], best["model.readout.weight"])
    assert [line["averaged"] for line in lines(run) if line["kind"] == "validation"] == [5]


def test_before_the_average_starts_the_model_itself_is_evaluated() -> None:
    settings = tiny(average=AverageSettings("mean", start=4), optimizer=FAST)
    model = plain_model()
    stepper, _ = steps(settings, model, 4)
    assert evaluated(stepper) is model


def test_averaging_does_not_change_the_training() -> None:
    models = []
    for own in (AverageSettings(), AverageSettings("ema")):
        torch.manual_seed(0)
        model = sequence_model(Spectral())
        steps(tiny(average=own), model, 5)
        models.append(model)
    assert all(torch.equal(a, b) for a, b in zip(*(model.parameters() for model in models), strict=True))


def test_a_run_without_an_average_cannot_go_on_with_one(tmp_path: Path) -> None:
    settings = tiny(steps=4, validate_every=2, save_every=2)
    model = plain_model()
    with new_run(tmp_path, settings) as run:
        train(model, addition(), settings, run=run)
        stored = run.load("last")
    stepper = Stepper(model, addition(), replace(settings, average=AverageSettings("ema")), model)
    with pytest.raises(CheckpointError, match=r"does not fit the average of weights: it lacks"):
        stepper.weight_average.load(section(stored.tensors, "average"))


def test_a_run_of_an_older_release_goes_on_without_an_average(tmp_path: Path) -> None:
    settings = tiny(steps=4, validate_every=2, save_every=2)
    model = plain_model()
    with new_run(tmp_path, settings) as run:
        train(model, addition(), settings, run=run)
        for name in run.checkpoints():
            stored = run.load(name)
            for new in ("average", "penalty"):
                del stored.facts["settings"]["train"][new]
            run.save(name, stored.tensors, stored.facts)
    with Run.open(run.folder, write=True) as run:
        assert train(model, addition(), settings, run=run, resume=True).steps == 4
    other = plain_model()
    load_weights(other, run.load("best").tensors)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
