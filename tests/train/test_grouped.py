"""Training a group: every member ends as it would have ended alone, whatever becomes of the others."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from steadyrnn.constraints import Spectral, SpectralBall
from steadyrnn.errors import ArgumentError, ArgumentTypeError, DataError, TrainingError
from steadyrnn.layers.gru import GRU
from steadyrnn.layers.lstm import LSTM
from steadyrnn.layers.rnn import RNN
from steadyrnn.models.group import group, ungroup
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.tasks.base import Task
from steadyrnn.tasks.registry import make_task
from steadyrnn.tasks.tensors import Part, TensorClassification, TensorRegression
from steadyrnn.train.grouped import evaluate_group, train_group
from steadyrnn.train.settings import (
    ClipSettings,
    OptimizerSettings,
    ProbeSettings,
    ScheduleSettings,
    StopSettings,
    TrainSettings,
)
from steadyrnn.train.trainer import Result, train
from tests.support.errors import distance, unit_roundoff
from tests.train.runs import RunningSum

MEMBERS = 4

LAYERS: dict[str, Callable[..., Any]] = {
    "rnn": lambda **own: RNN(2, 6, **own),
    "gru": lambda **own: GRU(2, 6, **own),
    "lstm": lambda **own: LSTM(2, 6, **own),
}
OPTIMIZERS = {
    "adam": OptimizerSettings("adam", lr=0.02, transition_lr=0.01),
    "adamw": OptimizerSettings("adamw", lr=0.02, weight_decay=0.1),
    "sgd": OptimizerSettings("sgd", lr=0.1, momentum=0.9, weight_decay=0.01),
    "rmsprop": OptimizerSettings("rmsprop", lr=0.002, momentum=0.5),
}


def make_models(dtype: torch.dtype, layer: str = "rnn", transition: Any = "free") -> list[SequenceModel]:
    """Return models that differ by their first weights, the same numbers in both dtypes."""
    models = []
    for seed in range(MEMBERS):
        torch.manual_seed(seed)
        model = SequenceModel(LAYERS[layer](transition=transition), 2, readout="each")
        models.append(model.to(dtype))
    return models


def make_tasks(dtype: torch.dtype) -> list[Task]:
    """Return tasks that differ by their data, the same numbers in both dtypes."""
    tasks: list[Task] = []
    for seed in range(MEMBERS):
        x = torch.randn(7, 12, 2, generator=torch.Generator().manual_seed(seed))
        part = Part(x.to(dtype), x.cumsum(0).tanh().to(dtype))
        tasks.append(TensorRegression(part, Part(part.input[:, :4], part.target[:, :4]), seed=seed))
    return tasks


def settings(**more: Any) -> TrainSettings:
    own: dict[str, Any] = {"steps": 12, "batch_size": 5, "validate_every": 4, "device": "cpu"}
    return TrainSettings(**own | more)


def weights(model: SequenceModel) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in model.state_dict().values()])


def alone(dtype: torch.dtype, chosen: TrainSettings, *form: Any) -> tuple[list[Tensor], list[Result]]:
    models = make_models(dtype, *form)
    results = [train(model, task, chosen) for model, task in zip(models, make_tasks(dtype), strict=True)]
    return [weights(model) for model in models], results


def together(dtype: torch.dtype, chosen: TrainSettings, *form: Any) -> tuple[list[Tensor], list[Result]]:
    many = group(make_models(dtype, *form))
    done = train_group(many, make_tasks(dtype), chosen)
    assert not done.failures
    return [weights(model) for model in ungroup(many)], [result for result in done.results if result is not None]


def scores(result: Result) -> tuple[int, str, int, list[str], list[str]]:
    """Return all of a result that must be the same apart from rounding and times."""
    return result.steps, result.reason, result.best_step, list(result.best), list(result.test)


def check_equal(chosen: TrainSettings, *form: Any) -> None:
    """Check that both ways to train end at the same weights and scores up to rounding.

    How much a run makes of its roundings is measured, not chosen: float32 against float64, both trained alone. In float64
    the two ways may then differ by twice as much, in units of u, or by 16 u per step.
    """
    narrow, _ = alone(torch.float32, chosen, *form)
    truth, expected = alone(torch.float64, chosen, *form)
    found, results = together(torch.float64, chosen, *form)
    for place in range(MEMBERS):
        grown = distance(narrow[place], truth[place]) / unit_roundoff(torch.float32)
        allowed = 2 * max(grown, 16.0 * results[place].steps) * unit_roundoff(torch.float64)
        assert distance(found[place], truth[place]) <= allowed
        assert scores(results[place]) == scores(expected[place])
        for name in ("last", "best", "test"):
            ours, theirs = getattr(results[place], name), getattr(expected[place], name)
            assert all(math.isclose(ours[key], theirs[key], rel_tol=4 * allowed) for key in theirs)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("transition", ["free", "polar", "ball"])
@pytest.mark.parametrize("layer", LAYERS)
def test_a_group_trains_as_its_members_do_alone(layer: str, transition: str, optimizer: str) -> None:
    check_equal(settings(optimizer=OPTIMIZERS[optimizer], clip=ClipSettings(norm=0.05)), layer, transition)


@pytest.mark.parametrize("transition", ["exp", "spectral", "exp-lie", Spectral(sigma="penalty")])
def test_maps_and_penalties_train_as_alone(transition: Any) -> None:
    check_equal(settings(optimizer=OPTIMIZERS["sgd"]), "rnn", transition)


CHOICES: dict[str, dict[str, Any]] = {
    "no clipping": {"clip": ClipSettings(norm=None)},
    "entries clipped": {"clip": ClipSettings(norm=0.05, recurrent=1e-3)},
    "cosine": {"schedule": ScheduleSettings("cosine", warmup=3)},
    "decay": {"schedule": ScheduleSettings("decay", factor=0.7)},
    "epochs": {"steps": None, "epochs": 3, "validate_every": None},
    "evaluation in small batches": {"evaluation_batch_size": 3},
}


@pytest.mark.parametrize("choice", CHOICES)
def test_settings_are_followed_as_alone(choice: str) -> None:
    check_equal(settings(**CHOICES[choice]), "rnn", "polar")


def test_norms_are_clipped_member_by_member() -> None:
    """One member with gradients 10^6 times as large must not shrink those of the others."""
    chosen, tasks = settings(optimizer=OptimizerSettings("sgd", lr=0.1), clip=ClipSettings(norm=0.5)), make_tasks(torch.float64)
    models = make_models(torch.float64)
    with torch.no_grad():
        models[0].readout.weight.mul_(1e6)
    many = group(models)
    train_group(many, tasks, chosen)
    lonely = make_models(torch.float64)[1]
    train(lonely, tasks[1], chosen)
    assert distance(weights(ungroup(many)[1]), weights(lonely)) <= 16 * 12 * unit_roundoff(torch.float64)


def test_members_stop_each_at_its_own_step() -> None:
    chosen = settings(steps=60, validate_every=1, optimizer=OptimizerSettings("sgd", lr=0.9), stop=StopSettings(patience=2))
    _, expected = alone(torch.float64, chosen)
    _, found = together(torch.float64, chosen)
    assert [result.steps for result in found] == [result.steps for result in expected]
    assert len({result.steps for result in found}) > 1
    check_equal(chosen)


def test_a_loss_below_the_limit_stops_a_member_alone() -> None:
    _, plain = together(torch.float64, settings(steps=60, validate_every=1))
    below = sorted(result.last["loss"] for result in plain)[1] * 1.001  # two of four get there
    _, found = together(torch.float64, settings(steps=60, validate_every=1, stop=StopSettings(below=below)))
    assert sorted(result.reason for result in found) == ["below", "below", "finished", "finished"]


def poisoned(place: int) -> list[Task]:
    """Return tasks of which one has a NaN in a single training target."""
    tasks = make_tasks(torch.float64)
    part = tasks[place].parts["train"]  # type: ignore[attr-defined]
    part.target[3, 8, 1] = torch.nan
    return tasks


@pytest.mark.parametrize("transition", ["free", "polar"])
def test_nan_in_one_member_does_not_touch_the_others(transition: str) -> None:
    chosen = settings(optimizer=OPTIMIZERS["adam"])
    fine, _ = together(torch.float64, chosen, "rnn", transition)
    many = group(make_models(torch.float64, "rnn", transition))
    done = train_group(many, poisoned(2), chosen)
    assert list(done.failures) == [2]
    assert done.results[2] is None
    models = ungroup(many)
    assert all(distance(weights(models[place]), fine[place]) <= 16 * 12 * unit_roundoff(torch.float64) for place in (0, 1, 3))

    lonely = make_models(torch.float64, "rnn", transition)[2]
    with pytest.raises(TrainingError) as raised:
        train(lonely, poisoned(2)[2], chosen)
    assert str(done.failures[2]).split(":")[0] == str(raised.value).split(":")[0]  # the same step
    assert distance(weights(models[2]), weights(lonely)) <= 16 * 12 * unit_roundoff(torch.float64)


def test_a_member_that_explodes_does_not_touch_the_others() -> None:
    chosen = settings(optimizer=OptimizerSettings("sgd", lr=0.1), clip=ClipSettings(norm=None))
    models = make_models(torch.float64, "rnn", SpectralBall(bound=0.9))
    fine = group(models)
    train_group(fine, make_tasks(torch.float64), chosen)
    with torch.no_grad():
        models[1].readout.weight.fill_(1e160)  # its loss overflows
    many = group(models)
    done = train_group(many, make_tasks(torch.float64), chosen)
    assert list(done.failures) == [1]
    for place in (0, 2, 3):
        assert torch.equal(weights(ungroup(many)[place]), weights(ungroup(fine)[place]))


def test_a_group_of_which_all_fail_ends() -> None:
    tasks = poisoned(0)
    many = group(make_models(torch.float64))
    done = train_group(many, tasks[0], settings())
    assert done.results == (None,) * MEMBERS
    assert sorted(done.failures) == [0, 1, 2, 3]
    assert many.running == (0, 1, 2, 3)


def test_one_task_serves_all_members() -> None:
    task, chosen = make_tasks(torch.float64)[0], settings()
    many = group(make_models(torch.float64))
    done = train_group(many, task, chosen)
    for model, found, result in zip(make_models(torch.float64), ungroup(many), done.results, strict=True):
        train(model, task, chosen)
        assert distance(weights(found), weights(model)) <= 16 * 12 * unit_roundoff(torch.float64)
        assert result is not None
        assert result.examples_per_second > 0


def test_classes_read_at_the_last_step_train_too() -> None:
    x = torch.randn(6, 9, 2, generator=torch.Generator().manual_seed(0))
    part = Part(x, torch.arange(9) % 3)
    task, chosen = TensorClassification(part, part), settings()
    torch.manual_seed(0)
    models = [SequenceModel(RNN(2, 5), 3) for _ in range(2)]
    done = train_group(group(models), task, chosen)
    for model, result in zip(models, done.results, strict=True):
        expected = train(model, task, chosen)
        assert result is not None
        assert result.test["accuracy"] == expected.test["accuracy"]


def test_a_group_can_be_trained_again() -> None:
    many, tasks = group(make_models(torch.float64)), make_tasks(torch.float64)
    first = train_group(many, tasks, settings())
    second = train_group(many, tasks, settings(steps=40))
    losses = [[result.best["loss"] for result in done.results if result is not None] for done in (first, second)]
    assert all(after < before for before, after in zip(*losses, strict=True))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "accumulate": ({"accumulate": 2}, "`accumulate` must be 1"),
    "autocast": ({"autocast": "bfloat16"}, "`autocast` must be None"),
    "compile": ({"compile": True}, "`compile` must be False"),
    "probes": ({"probe": ProbeSettings(every=3)}, r"`probe\.every` must be 0"),
    "plateau": ({"schedule": ScheduleSettings("plateau")}, "plateau"),
    "bad": ({"batch_size": 0}, "`batch_size`"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_settings_that_a_group_does_not_follow_are_refused(case: str) -> None:
    more, message = REFUSED[case]
    with pytest.raises(ArgumentError, match=message):
        train_group(group(make_models(torch.float64)), make_tasks(torch.float64), settings(**more))


def test_clipping_entries_of_a_computed_weight_is_refused() -> None:
    many = group(make_models(torch.float64, "rnn", "exp"))
    with pytest.raises(ArgumentError, match=r"`clip\.recurrent` of a group needs a recurrent weight that is a parameter"):
        train_group(many, make_tasks(torch.float64), settings(clip=ClipSettings(recurrent=0.1)))


def test_arguments_of_the_wrong_kind_are_refused() -> None:
    many, tasks = group(make_models(torch.float64)), make_tasks(torch.float64)
    with pytest.raises(ArgumentTypeError, match="`group` must be a Group"):
        train_group(make_models(torch.float64)[0], tasks, settings())  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="`settings` must be TrainSettings"):
        train_group(many, tasks, None)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="`progress` must be a Progress"):
        train_group(many, tasks, settings(), progress=1)  # type: ignore[arg-type]
    for wrong in (None, [*tasks[:3], 1]):
        with pytest.raises(ArgumentTypeError, match="`tasks` must be a Task or a list of them"):
            train_group(many, wrong, settings())  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="one task for each of 4 members, but holds 3"):
        train_group(many, tasks[:3], settings())
    with pytest.raises(ArgumentError, match="all are frozen"):
        train_group(group([model.requires_grad_(False) for model in make_models(torch.float64)]), tasks, settings())


def test_tasks_that_cannot_run_side_by_side_are_refused() -> None:
    many, tasks = group(make_models(torch.float64)), make_tasks(torch.float64)
    with pytest.raises(ArgumentError, match="must not carry states"):
        train_group(many, RunningSum(), settings())
    with pytest.raises(ArgumentError, match="same inputs, outputs and steps of an epoch, but those of number 3"):
        train_group(many, [*tasks[:3], make_task("addition", length=7)], settings())
    x = torch.randn(9, 12, 2, dtype=torch.float64)
    longer = TensorRegression(Part(x, x), Part(x, x))
    with pytest.raises(ArgumentError, match=r"of one shape, but task number 0 gives \(7, 5, 2\) and number 3 \(9, 5, 2\)"):
        train_group(many, [*tasks[:3], longer], settings())
    ragged = Part(x, x[0], torch.full((12,), 5))
    last = group([SequenceModel(RNN(2, 6, dtype=torch.float64), 2)])
    with pytest.raises(ArgumentError, match="equal lengths"):
        train_group(last, TensorRegression(ragged, ragged), settings())


class Shortened(TensorRegression):
    """A task with another part than its own for validation or test."""

    def __init__(self, like: TensorRegression, split: str, part: Part) -> None:
        super().__init__(like.parts["train"], like.parts["validation"])
        self.parts = {"test": self.parts["validation"], **self.parts, split: part}


@pytest.mark.parametrize("split", ["validation", "test"])
@pytest.mark.parametrize(("rows", "message"), [(12, "same number of batches in the split '{split}'"), (3, "of one shape")])
def test_splits_of_several_lengths_are_refused_before_a_step(split: str, rows: int, message: str) -> None:
    """Four rows of each task are one batch; twelve are three, and three are a smaller one."""
    many, tasks = group(make_models(torch.float64)), make_tasks(torch.float64)
    whole = tasks[3].parts["train"]  # type: ignore[attr-defined]
    other = Shortened(tasks[3], split, Part(whole.input[:, :rows], whole.target[:, :rows]))  # type: ignore[arg-type]
    before = [weights(model) for model in many.members]
    with pytest.raises(ArgumentError, match=message.format(split=split)):
        train_group(many, [*tasks[:3], other], settings(evaluation_batch_size=4))
    assert all(torch.equal(weights(model), kept) for model, kept in zip(many.members, before, strict=True))


def test_a_split_without_examples_is_refused_before_a_step() -> None:
    many, tasks = group(make_models(torch.float64)), make_tasks(torch.float64)
    part = tasks[0].parts["train"]  # type: ignore[attr-defined]
    before = [weights(model) for model in many.members]
    with pytest.raises(DataError, match="'validation' of the tasks has no examples"):
        train_group(many, _Empty(part, part), settings())
    assert all(torch.equal(weights(model), kept) for model, kept in zip(many.members, before, strict=True))


class _Empty(TensorRegression):
    """A task whose validation split has no batch."""

    def batches(self, split: str, batch_size: int) -> Any:
        return iter(())

    @property
    def baselines(self) -> Mapping[str, float]:
        return {}


def test_splits_that_cannot_be_scored_together_are_refused() -> None:
    many, tasks = group(make_models(torch.float64)), make_tasks(torch.float64)
    part = tasks[0].parts["train"]  # type: ignore[attr-defined]
    empty = _Empty(part, part)
    with pytest.raises(DataError, match="'validation' of the tasks has no examples"):
        evaluate_group(many, [empty] * MEMBERS, "validation", 3)
    with pytest.raises(ArgumentError, match="same number of batches in the split 'validation'"):
        evaluate_group(many, [*tasks[:3], empty], "validation", 3)
