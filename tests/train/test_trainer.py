"""The trainer: what it does to a model, what it writes, when it ends."""

import itertools
import math
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from steadyrnn.constraints import Spectral
from steadyrnn.constraints.optimizer import penalty
from steadyrnn.errors import ArgumentError, TrainingError
from steadyrnn.layers.rnn import RNN
from steadyrnn.models.mlp import MLP
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.tasks.addition import Addition
from steadyrnn.tasks.base import Batch, Interface
from steadyrnn.tasks.settings import AdditionSettings
from steadyrnn.train.evaluation import evaluate
from steadyrnn.train.guard import Guard
from steadyrnn.train.settings import (
    ClipSettings,
    OptimizerSettings,
    ProbeSettings,
    ScheduleSettings,
    TrainSettings,
)
from steadyrnn.train.step import Stepper
from steadyrnn.train.trainer import train
from steadyrnn.train.weights import clones, weights_of
from tests.train.runs import (
    BreakAt,
    RunningSum,
    addition,
    carrying_model,
    lines,
    new_run,
    noisy_probe,
    plain_model,
    spectral_model,
    tiny,
)


def trained(settings: TrainSettings, build: Callable[[], nn.Module] = plain_model) -> nn.Module:
    model = build()
    train(model, addition(), settings)
    return model


def assert_close(a: nn.Module, b: nn.Module, **tolerance: float) -> None:
    for (name, x), y in zip(a.named_parameters(), b.parameters(), strict=True):
        torch.testing.assert_close(x, y, msg=lambda text, name=name: f"{name}: {text}", **tolerance)


def test_a_run_is_the_loop_a_user_would_write() -> None:
    settings = tiny(steps=6, clip=ClipSettings(norm=0.1), optimizer=OptimizerSettings(lr=0.05), validate_every=6)
    model, task = plain_model(), addition()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for step in range(6):
        batch = task.train_batch(step, 8)
        optimizer.zero_grad()
        task.loss(model(batch.input)[0], batch).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
    assert_close(trained(settings), model)


def test_it_learns() -> None:
    torch.manual_seed(0)
    model = SequenceModel(RNN(2, 16, transition=Spectral(radius=0.1), nonlinearity="relu"), 1)
    result = train(
        model, addition(), TrainSettings(steps=300, batch_size=32, optimizer=OptimizerSettings(lr=1e-2), device="cpu")
    )
    assert result.test["loss"] < 0.05 < 1 / 6


def test_the_model_ends_with_its_best_weights() -> None:
    model = plain_model()
    settings = tiny(validate_every=1, optimizer=OptimizerSettings("sgd", lr=0.5), clip=ClipSettings(norm=None))
    result = train(model, addition(), settings)
    assert result.best["loss"] < result.last["loss"]
    assert evaluate(model, addition(), "validation", 8) == result.best
    assert evaluate(model, addition(), "test", 8) == result.test


@pytest.mark.parametrize("accumulate", [2, 3, 8])
def test_a_batch_in_parts_is_the_batch_up_to_rounding(accumulate: int) -> None:
    whole, parts = trained(tiny()), trained(tiny(accumulate=accumulate))
    assert_close(whole, parts, rtol=1e-3, atol=1e-5)


def test_states_in_parts_are_carried_along_with_their_rows() -> None:
    torch.manual_seed(0)
    models = [carrying_model() for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    for model, accumulate in zip(models, (1, 3), strict=True):
        model.dropout_state.p = 0.0  # type: ignore[union-attr]
        train(model, RunningSum(), tiny(accumulate=accumulate))
    assert_close(*models, rtol=1e-3, atol=1e-5)


class Carried(nn.Module):
    """Remembers which states it was handed."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.seen = SequenceModel(RNN(1, 3), 1, readout="each"), []

    def forward(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
        if self.training:
            self.seen.append(None if hx is None else (hx.requires_grad, hx.shape[1]))
        output, state = self.inner(input, hx)
        return output, state


def test_states_are_carried_without_their_graph_and_dropped_where_a_sequence_starts() -> None:
    model = Carried()
    train(model, RunningSum(), tiny(steps=5))
    assert model.seen == [None, (False, 8), (False, 8), (False, 8), None]


def test_the_penalty_is_part_of_what_is_minimized() -> None:
    settings = tiny(steps=40, optimizer=OptimizerSettings("sgd", lr=0.05))
    free = trained(settings, lambda: _stretched(plain_model(Spectral(sigma="penalty"))))
    start = _stretched(plain_model(Spectral(sigma="penalty")))
    assert float(penalty(free).detach()) < 0.1 * float(penalty(start).detach())


def test_the_penalty_counts_by_its_weight() -> None:
    task, gradients = addition(), {}
    for weight in (0.0, 1.0, 3.0):
        model = _stretched(plain_model(Spectral(sigma="penalty"))).double()
        settings = tiny(penalty=weight, clip=ClipSettings(norm=None), optimizer=OptimizerSettings(lr=0.0))
        batch = task.train_batch(0, 8)
        Stepper(model, task, settings, model).step(1, Batch(batch.input.double(), batch.target.double()), 1.0)
        gradients[weight] = model.rnn.transition_l0.h.raw2.grad  # type: ignore[union-attr]
    alone = torch.autograd.grad(penalty(model), model.rnn.transition_l0.h.raw2)[0]  # type: ignore[union-attr, arg-type]
    for weight in (1.0, 3.0):
        torch.testing.assert_close(gradients[weight] - gradients[0.0], weight * alone, rtol=1e-9, atol=1e-12)  # type: ignore[operator]


def _stretched(model: nn.Module) -> nn.Module:
    with torch.no_grad():
        for raw in model.rnn.transition_l0.parameters():  # type: ignore[union-attr]
            raw.mul_(1.5)
    return model


def test_transitions_may_have_a_rate_of_zero() -> None:
    model = trained(tiny(optimizer=OptimizerSettings(transition_lr=0.0)), lambda: plain_model("ornn"))
    start = plain_model("ornn")
    moved = {name for name, x in model.named_parameters() if not torch.equal(x, dict(start.named_parameters())[name])}
    assert moved == {name for name, _ in start.named_parameters() if "transition" not in name}


def test_rates_of_reflectors_are_scaled_and_logged(tmp_path: Path) -> None:
    settings = tiny(optimizer=OptimizerSettings(lr=1e-2, transition_scale="sqrt"), schedule=ScheduleSettings("inverse"))
    model = SequenceModel(RNN(2, 4, transition="spectral"), 1)
    with new_run(tmp_path, settings) as run:
        train(model, addition(), settings, run=run)
    line = next(record for record in run.metrics() if record["kind"] == "train")
    assert line["step"] == 4
    assert line["rates"] == pytest.approx({"reflectors_4": 1.25e-3, "transition": 2.5e-3, "other": 2.5e-3}, rel=1e-9)


def test_a_scale_for_reflectors_needs_some() -> None:
    with pytest.raises(ArgumentError, match=r"`optimizer.transition_scale` is 'sqrt', but `model` has no reflectors"):
        train(plain_model("exp"), addition(), tiny(optimizer=OptimizerSettings(transition_scale="sqrt")))


def test_clipping_recurrent_weights_needs_one() -> None:
    class Rows(Addition):
        @property
        def interface(self) -> Interface:
            return Interface(20, 1, reads="row")

        def train_batch(self, step: int, batch_size: int) -> Batch:
            batch = super().train_batch(step, batch_size)
            return Batch(batch.input.transpose(0, 1).flatten(1), batch.target)

    task = Rows(AdditionSettings(length=10))
    with pytest.raises(ArgumentError, match=r"`clip.recurrent` needs a recurrent weight"):
        train(MLP(20, 8, 1, 1), task, tiny(clip=ClipSettings(recurrent=1.0)))


@pytest.mark.parametrize("autocast", ["bfloat16", "float16"])
def test_half_precision_trains_full_precision_weights(autocast: str) -> None:
    model = trained(tiny(autocast=autocast))
    assert all(parameter.dtype == torch.float32 and bool(parameter.isfinite().all()) for parameter in model.parameters())
    assert not torch.equal(model.readout.weight, plain_model().readout.weight)  # type: ignore[union-attr, arg-type]


def test_a_compiled_model_is_called_and_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, real = [], torch.compile

    def light(model: nn.Module) -> Any:
        compiled.append(model)
        return real(model, backend="aot_eager")

    monkeypatch.setattr(torch, "compile", light)
    model = trained(tiny(compile=True))
    assert compiled == [model]
    assert_close(model, trained(tiny()), rtol=1e-3, atol=1e-5)


def record(tmp_path: Path, settings: TrainSettings, **more: Any) -> list[dict[str, Any]]:
    with new_run(tmp_path, settings) as run:
        train(plain_model(), addition(), settings, run=run, **more)
    return run.metrics()


def test_lines_come_in_a_fixed_order_with_their_fields(tmp_path: Path) -> None:
    settings = tiny(steps=8, probe=ProbeSettings(every=5))
    found = record(tmp_path, settings, callbacks={"noise": noisy_probe})
    assert [(line["kind"], line["step"]) for line in found] == [
        ("probe", 0),
        ("train", 4),
        ("validation", 5),
        ("probe", 5),
        ("train", 8),
        ("validation", 8),
        ("probe", 8),
        ("test", 8),
        ("end", 8),
    ]
    fields = {line["kind"]: set(line) for line in found}
    assert fields["train"] == {
        *("kind", "step", "epoch", "time", "loss", "lr", "gradient_norm", "examples_per_second"),
    }
    assert fields["validation"] == {"kind", "step", "epoch", "time", "loss"}
    assert fields["test"] == {"kind", "step", "epoch", "time", "loss", "checkpoint"}
    assert fields["probe"] == {"kind", "step", "name", "value"}
    assert fields["end"] == {"kind", "step", "reason"}
    assert found[1]["epoch"] == 0.04


def test_the_training_line_holds_means_over_its_steps(tmp_path: Path) -> None:
    each = record(tmp_path / "each", tiny(steps=8, log_every=1, validate_every=8))
    some = record(tmp_path / "some", tiny(steps=8, log_every=4, validate_every=8))
    losses, norms = ([line[key] for line in each if line["kind"] == "train"] for key in ("loss", "gradient_norm"))
    lines = [line for line in some if line["kind"] == "train"]
    assert [line["loss"] for line in lines] == pytest.approx([sum(losses[:4]) / 4, sum(losses[4:]) / 4])
    assert [line["gradient_norm"] for line in lines] == pytest.approx([sum(norms[:4]) / 4, sum(norms[4:]) / 4])


def test_the_rate_is_the_schedules(tmp_path: Path) -> None:
    settings = tiny(steps=4, log_every=1, schedule=ScheduleSettings("inverse"), optimizer=OptimizerSettings(lr=0.5))
    rates = [line["lr"] for line in record(tmp_path, settings) if line["kind"] == "train"]
    assert rates == pytest.approx([0.5, 0.25, 0.5 / 3, 0.125])


def test_callbacks_do_not_change_the_run(tmp_path: Path) -> None:
    settings = tiny(probe=ProbeSettings(every=1))
    found = []
    for callbacks in ({}, {"noise": noisy_probe}):
        torch.manual_seed(0)
        with new_run(tmp_path, settings) as run:
            train(spectral_model(), addition(), settings, run=run, callbacks=callbacks)
        found.append([line for line in lines(run) if line["kind"] != "probe"])
    assert found[0] == found[1]


def test_callbacks_are_not_called_unless_requested() -> None:
    def refuse(step: int, model: nn.Module) -> dict[str, Any]:
        raise AssertionError

    train(plain_model(), addition(), tiny(), callbacks={"never": refuse})


def test_epochs_count_where_steps_are_not_given() -> None:
    result = train(carrying_model(), RunningSum(), TrainSettings(epochs=2, batch_size=4, device="cpu"))
    assert result.steps == 8


class Poisoned(Addition):
    """Has NaN in one training batch."""

    def train_batch(self, step: int, batch_size: int) -> Batch:
        batch = super().train_batch(step, batch_size)
        return Batch(batch.input * math.nan, batch.target) if step == 4 else batch


def test_nan_ends_a_run_with_the_weights_before_it(tmp_path: Path) -> None:
    model, task = plain_model("ball"), Poisoned(AdditionSettings(length=10, validation=24, test=24))
    with (
        new_run(tmp_path, tiny()) as run,
        pytest.raises(TrainingError, match=r"Step 5 is not finite: its loss is nan and .*`optimizer.lr`"),
    ):
        train(model, task, tiny(), run=run)
    short = plain_model("ball")
    train(short, addition(), tiny(steps=4, validate_every=4))
    assert_close(model, short, rtol=0, atol=0)
    assert run.load("last").facts["step"] == 3


@pytest.mark.parametrize("due", ["save_every", "validate_every"])
def test_nothing_is_saved_behind_a_bad_step_that_was_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, due: str
) -> None:
    monkeypatch.setattr("steadyrnn.train.step.Guard", lambda device, waits: Guard(device, waits=False))  # as on a GPU
    settings = tiny(**{"log_every": 14, "validate_every": 14, "save_every": 14} | {due: 6})
    task = Poisoned(AdditionSettings(length=10, validation=24, test=24))
    with new_run(tmp_path, settings) as run, pytest.raises(TrainingError, match="Step 5 is not finite"):
        train(plain_model(), task, settings, run=run)
    assert (run.checkpoints(), run.load("last").facts["step"], run.metrics()) == (["last"], 0, [])


def test_an_interruption_saves_nothing_behind_a_bad_step_that_was_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("steadyrnn.train.step.Guard", lambda device, waits: Guard(device, waits=False))  # as on a GPU
    settings = tiny(log_every=14, validate_every=14, save_every=14)
    task = Poisoned(AdditionSettings(length=10, validation=24, test=24))
    struck = BreakAt(6, lambda: os.kill(os.getpid(), signal.SIGINT))
    with new_run(tmp_path, settings) as run, pytest.raises(TrainingError, match="Step 5 is not finite"):
        train(plain_model(), task, settings, run=run, progress=struck)
    assert (run.checkpoints(), run.load("last").facts["step"], run.metrics()) == (["last"], 0, [])


def test_the_last_checkpoint_has_the_last_weights_and_the_best_one_the_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = itertools.count()  # the first validation is the best
    monkeypatch.setattr("steadyrnn.train.trainer.evaluate", lambda *_, **__: {"loss": float(next(losses))})
    seen: dict[int, dict[str, Tensor]] = {}

    def look(step: int, model: nn.Module) -> dict[str, Any]:
        seen[step] = clones(weights_of(model))
        return {}

    model, settings = plain_model(), tiny(probe=ProbeSettings(every=5))
    with new_run(tmp_path, settings) as run:
        result = train(model, addition(), settings, run=run, callbacks={"look": look})
    assert (result.best_step, result.steps) == (5, 14)
    for name, step in (("last", 14), ("best", 5)):
        stored = run.load(name).tensors
        assert all(torch.equal(stored[key], tensor) for key, tensor in seen[step].items())
    assert not torch.equal(seen[5]["model.readout.weight"], seen[14]["model.readout.weight"])
    assert all(torch.equal(weights_of(model)[key], tensor) for key, tensor in seen[5].items())


class Vertical(nn.Module):
    """Has a finite output whose gradient is not finite."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = plain_model()

    def forward(self, input: Tensor) -> Tensor:
        output, _ = self.inner(input)
        return output + (0 * output).sqrt()


def test_gradients_that_no_scale_makes_finite_end_a_run_in_float16() -> None:
    model = Vertical()
    with pytest.raises(TrainingError, match=r"Step 3\d is not finite: its loss is \d.* and the norm of its gradients nan"):
        train(model, addition(), tiny(steps=60, autocast="float16"))
    assert_close(model.inner, plain_model(), rtol=0, atol=0)


def test_a_run_is_a_function_of_weights_task_and_settings() -> None:
    results = []
    for noise in range(2):
        torch.manual_seed(0)
        model = spectral_model()
        torch.manual_seed(noise)
        results.append(train(model, addition(), tiny()).test)
    assert results[0] == results[1]
    other = spectral_model()
    assert train(other, addition(), replace(tiny(), seed=1)).test != results[0]


def test_the_result_counts_time_and_speed() -> None:
    result = train(plain_model(), addition(), tiny())
    assert 0 < result.seconds < 60
    assert result.examples_per_second >= 14 * 8 / result.seconds
