"""The trainer: any module on any task, with validation, probes, checkpoints and an end."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from steadyrnn.errors import ArgumentError
from steadyrnn.runs.folder import Run
from steadyrnn.tasks.base import Task

from .arguments import check_arguments, check_settings
from .device import device_context, join_on
from .effects import check_effects
from .evaluation import evaluate
from .graph_notes import GraphNotes
from .lines import make_line, training_values
from .probing import Callback, probe
from .progress import Progress, Silent
from .randomness import seed_everything, seed_of_rank
from .ranks import Ranks
from .result import Result, make_result
from .resuming import load_best, load_to_go_on
from .same_weights import check_for_ranks, check_same_batch, check_same_weights, take_weights_of_first
from .schedules import Moment, rate_factor
from .settings import TrainSettings
from .shared_run import SharedRun
from .sharing import OverRanks, check_time_sharing, shares_time
from .signals import Interrupted, Signals
from .stages import PlannedStage, plan_stages
from .state import Position, capture, describe, restore
from .step import Stepper
from .stopping import reason_to_stop
from .weights import clones, load_weights, weights_of

__all__ = ["Callback", "Result", "train"]


def train(
    model: nn.Module,
    task: Task,
    settings: TrainSettings,
    *,
    run: Run | None = None,
    resume: bool = False,
    callbacks: Mapping[str, Callback] = MappingProxyType({}),
    progress: Progress | None = None,
    over_ranks: OverRanks | None = None,
) -> Result:
    """Train a model on a task; in the end the model has the weights that were best on the validation split.

    A run is a function of the model's weights, the task and the settings: the trainer seeds all random numbers, batches are
    numbered by step, and neither validation nor callbacks touch a random state. So a run that was cut off and is resumed from
    its last checkpoint gives, bit for bit, what it would have given (on the same machine, with deterministic algorithms).

    A task with stages is trained stage by stage, each with a new optimizer and a schedule over its own steps. Validation, test
    and the choice of the best weights are those of the task itself.

    Ctrl-C, SIGTERM and SIGUSR1 end a run that has a folder after the step in hand, with everything saved.

    Started by torchrun, all processes call it, with the same arguments but ``run``, which is that of rank 0 alone. They share
    each batch, and give what one process would give, up to rounding (and up to dropout).

    Args:
        model: Any module that takes the task's batches; moved to the settings' device.
        task: The task; moved likewise.
        settings: How to train.
        run: The folder that metrics and checkpoints go to; None writes nothing.
        resume: Whether to go on from the run's last checkpoint. A run that was cut off before its first one starts; a finished
            one returns its result. Nothing in the folder changes before all of it has been read and fits.
        callbacks: Measurements by name, called as ``callback(step, model)`` before the first step, every ``probe.every`` steps
            and in the end (on rank 0); what they return is logged as a probe. ``probe.every`` of 0 calls none.
        progress: What a person sees; None is nothing.
        over_ranks: Returns what every process calls with its steps in place of a model, where several share time
            (:attr:`~steadyrnn.tasks.base.Task.ranks_share`).

    Returns:
        Scores, steps, times.

    Raises:
        TrainingError: A loss or gradient was not finite; the weights are those before that step.
        Interrupted: A signal came, to any process; the run can be resumed.
        RanksError: Another process has failed or ended, or weights of two processes differ.
        RunError: The run's ``config.json`` or its checkpoint has other settings, a run to start has a checkpoint, or a run to
            resume has lost its checkpoint or lines of its metrics.
        CheckpointError: A checkpoint is damaged, or does not fit the model.

    Example:
        >>> from steadyrnn.tasks.registry import make_task
        >>> model = sr.SequenceModel(sr.RNN(2, 8, transition="spectral"), 1)
        >>> result = train(model, make_task("addition", length=10), TrainSettings(steps=20, batch_size=16, device="cpu"))
        >>> result.steps, result.reason, list(result.test)
        (20, 'finished', ['loss'])
    """
    check_arguments(model, task, settings, run, progress)
    check_settings(settings)
    ranks, device = join_on(settings.device)
    shared = SharedRun(run, ranks)
    if resume and not shared.exists:
        raise ArgumentError("`resume` needs a run to go on with, but `run` is None.")

    def check() -> None:
        check_for_ranks(model, settings, ranks, task.ranks_share)
        check_time_sharing(task, settings, ranks, over_ranks)
        if not resume:
            check_effects(settings, model, task)

    ranks.agree(check)
    shown = progress if progress is not None and ranks.first else Silent()
    with device_context(settings):
        return _Trainer(model, task, settings, shared, callbacks, shown, device, over_ranks).run_to_the_end(resume)


class _Trainer:
    """One run, from where it stands to its end."""

    def __init__(
        self, model: nn.Module, task: Task, settings: TrainSettings, run: SharedRun, callbacks: Mapping[str, Callback],
        progress: Progress, device: torch.device, over_ranks: OverRanks | None,
    ) -> None:  # fmt: skip
        self.settings, self.run, self.callbacks, self.progress = settings, run, callbacks, progress
        self.ranks: Ranks = run.ranks
        self.measured = bool(run.ranks.share(bool(callbacks))[0])  # other ranks have no callbacks
        self.model, self.task = model.to(device), task.to(device)
        self.over_ranks = over_ranks if shares_time(task, self.ranks) else None
        self.call: Callable[..., Any] = torch.compile(model) if settings.compile else model
        self.graph_notes = GraphNotes()
        self.stepper = self._make_stepper()
        self.epoch_steps = task.epoch_steps(settings.batch_size)
        self.plan = plan_stages(self.task, settings.steps or settings.epochs * self.epoch_steps)
        self.validate_every = settings.validate_every or self.epoch_steps
        self.save_every = settings.save_every or self.validate_every
        self.description = describe(task, settings)
        self.position = Position()
        self.best: dict[str, Tensor] = {}  # the best weights, where no folder keeps them
        self.shown: dict[str, Any] = {}
        self.started = time.perf_counter()

    @property
    def stage(self) -> PlannedStage:
        """The stage that the run is in."""
        return self.plan[self.position.stage]

    @property
    def total(self) -> int:
        """Steps of the run, if the stages to come take all of theirs."""
        return self.position.stage_start + sum(stage.steps for stage in self.plan[self.position.stage :])

    def _make_stepper(self) -> Stepper:
        return Stepper(self.model, self.task, self.settings, self.call, self.graph_notes.add, self.ranks)

    def run_to_the_end(self, resume: bool) -> Result:
        """Start or resume, step until there is a reason to end, test."""
        self._begin(resume)
        self._spread()
        if self.position.reason is None:
            with Signals(active=self.run.exists, patient=self.ranks.joined) as signals:
                self._loop(signals)
                self._finish()
        self._take_best()
        return self._result()

    # Beginning

    def _spread(self) -> None:
        """Make anew what ranks call that share time: as a run does that is resumed here, so that its proofs are the same."""
        if self.over_ranks is not None:
            self.call = self.stepper.call = self.over_ranks(self.model)

    def _begin(self, resume: bool) -> None:
        self.model.train()
        seed_everything(seed_of_rank(self.settings.seed, self.ranks.rank))
        take_weights_of_first(self.model, self.ranks)
        if not self.run.exists:
            self._probe()
            return
        run = self.run.run
        read = self.ranks.agree(lambda: None if run is None else load_to_go_on(run, self.model, self.description, resume))
        stored, tensors = self.ranks.share(*((None, {}) if read is None else (read.facts, read.tensors)))
        if stored is not None:
            self.position = self.ranks.agree(lambda: restore(self.stepper, tensors, stored))
            if self.position.reason is None:
                self.run.rewind(self.position.step)
            return
        self.run.rewind(0)  # a run that was killed before its first checkpoint may have left some lines
        self._probe()
        self._save()

    # Stepping

    def _loop(self, signals: Signals) -> None:
        position = self.position
        self.progress.begin(self.total, position.step)
        self.stepper.average.resume()
        try:
            while position.reason is None:
                self._step()
                self.graph_notes.say(self._log, self.progress)
                self._between_steps()
                self.progress.update(position.step, self.shown)
                if (received := self._received(signals)) is not None and position.reason is None:
                    self._interrupt(received)
        finally:
            self.progress.end()

    def _received(self, signals: Signals) -> int | None:
        """Return a signal to end, the same on all ranks: what one was sent goes round with the gradients of a step."""
        exchange = self.stepper.exchange
        if exchange is None:
            return signals.received
        found = exchange.signal_to_end()
        if signals.received is not None:
            exchange.ask_to_end(signals.received)
        return found

    def _step(self) -> None:
        settings, position, stage = self.settings, self.position, self.stage
        done = position.step - position.stage_start
        moment = Moment(done, self.epoch_steps, stage.steps, position.standing.reductions)
        factor, number = stage.rate * rate_factor(settings.schedule, moment), position.step + 1
        logged = number % settings.log_every == 0 or done + 1 == stage.steps
        batch = stage.task.train_batch(number - 1, settings.batch_size)
        if (checks := number % settings.check_ranks == 0) or self.stepper.unchecked:
            check_same_batch(batch, self.ranks, number)
        sums = self.stepper.step(number, batch, factor, scored=logged)
        position.step = number
        if checks:
            check_same_weights(self.model, self.ranks, number)
        if logged:
            self._log_training(sums, factor)

    def _between_steps(self) -> None:
        """Do what is due after a step; the checkpoint comes last, so that it lies behind all lines of its step."""
        step, position = self.position.step, self.position
        over = step - position.stage_start == self.stage.steps
        validates, saves = over or step % self.validate_every == 0, step % self.save_every == 0
        if not (validates or saves or self._probes(step)):
            return
        self.stepper.guard.check()
        self.stepper.average.pause()
        learned = validates and self._validate()
        if (over or learned) and position.reason is None:
            self._end_stage("below" if learned else "finished")
        if self._probes(step) or position.reason is not None:
            self._probe()
        if saves and position.reason is None:
            self._save()
        self.stepper.average.resume()

    def _end_stage(self, reason: str) -> None:
        """Go on to the next stage, with a new optimizer; after the last one the run is finished."""
        position, ended = self.position, self.stage
        if ended is self.plan[-1]:
            position.reason = "finished"
            return
        self._log("stage", {"reason": reason, "steps": position.step - position.stage_start})
        position.stage, position.stage_start = position.stage + 1, position.step
        position.standing = position.standing.in_new_stage()
        window, self.stepper = self.stepper.average, self._make_stepper()
        self.stepper.average = window
        self.progress.note(f"step {position.step}: {ended.name} is over ({reason}), {self.stage.name} begins")
        self.progress.set_total(self.total)

    def _validate(self) -> bool:
        """Score the model, keep it if it is the best, and return whether its stage is learned."""
        position, task, settings, last = self.position, self.task, self.settings, self.stage is self.plan[-1]
        scores = self._evaluate(task, "validation", *self._evaluated())
        own = {} if last else {"stage_loss": self._evaluate(self.stage.task, "validation", *self._evaluated())["loss"]}
        position.validation = scores
        position.standing = position.standing.after(
            position.step,
            loss=scores["loss"],
            metric=scores[task.metric],
            higher=task.higher_is_better,
            schedule=settings.schedule,
        )
        averaged = {} if settings.average.name == "none" else {"averaged": self.stepper.weight_average.count}
        self._log("validation", scores | own | averaged)
        self.shown[f"validation {task.metric}"] = scores[task.metric]
        if position.standing.best_step == position.step:
            position.best = scores
            self._keep_best()
        stop = settings.stop if last else replace(settings.stop, patience=None)
        position.reason = reason_to_stop(stop, position.standing, scores["loss"])
        return bool(own) and self.stage.below is not None and own["stage_loss"] < self.stage.below

    def _evaluated(self) -> tuple[nn.Module, Callable[..., Any]]:
        """Return what is validated and kept as the best: the averaged weights once there are some."""
        return self.stepper.weight_average.evaluated(self.model, self.call)

    def _evaluate(self, task: Task, split: str, model: nn.Module, call: Callable[..., Any]) -> dict[str, float]:
        size = self.settings.evaluation_batch_size or self.settings.batch_size
        if self.over_ranks is not None and model is not self.model:
            call = self.over_ranks(model)
        return evaluate(model, task, split, size, autocast=self.settings.autocast, call=call, ranks=self.ranks)

    # Probes

    def _probes(self, step: int) -> bool:
        every = self.settings.probe.every
        return self.measured and every > 0 and step % every == 0

    def _probe(self) -> None:
        if self.settings.probe.every > 0:
            self.ranks.lead(lambda: probe(self.callbacks, self.position.step, self.model, self.run.run))

    # Ending

    def _interrupt(self, number: int) -> None:
        self.stepper.guard.check()
        self.stepper.average.pause()
        self._save()
        self._log_end("interrupted")
        raise Interrupted(number, self.position.step)

    def _finish(self) -> None:
        """Test the best weights. The last checkpoint is written behind the last line: a run killed before does it again."""
        check_same_weights(self.model, self.ranks, self.position.step)
        tensors: dict[str, Tensor] = {}
        if self.run.exists:
            tensors = clones(capture(self.stepper, self.position, self.description)[0])
        self._take_best()
        self.position.test = self._evaluate(self.task, "test", self.model, self.call)
        self._log("test", self.position.test | {"checkpoint": "best"})
        self._log_end(self.position.reason or "finished")
        if self.run.exists:
            self.position.elapsed, self.started = self._elapsed(), time.perf_counter()
            self.run.save("last", tensors, capture(self.stepper, self.position, self.description)[1])

    def _result(self) -> Result:
        position, average = self.position, self.stepper.average
        window = average.rows, average.seconds
        return make_result(replace(position, elapsed=self._elapsed()), window)

    # Checkpoints

    def _save(self) -> None:
        if self.run.exists:
            check_same_weights(self.model, self.ranks, self.position.step)
            self.position.elapsed, self.started = self._elapsed(), time.perf_counter()
            self.run.save("last", *capture(self.stepper, self.position, self.description))
            self._spread()

    def _keep_best(self) -> None:
        weights = weights_of(self._evaluated()[0])
        if not self.run.exists:
            self.best = clones(weights)
            return
        facts = {"step": self.position.step, "validation": self.position.best, "settings": self.description}
        self.run.save("best", weights, facts)

    def _take_best(self) -> None:
        """Load the best weights, and take over what their checkpoint says of them.

        A run killed between its two saves and resumed where the last bits come out differently (a GPU, another machine) may
        have its best weights from a course it did not take again: their scores must be theirs.
        """
        if not self.run.exists:
            return load_weights(self.model, self.best)
        run = self.run.run
        best = self.ranks.agree(lambda: None if run is None else load_best(run))
        facts, tensors = self.ranks.share(*((None, {}) if best is None else (best.facts, best.tensors)))
        load_weights(self.model, tensors)
        self.position.best = facts["validation"]
        self.position.standing = replace(self.position.standing, best_step=facts["step"])

    # Lines of metrics

    def _log_training(self, sums: Mapping[str, Tensor], factor: float) -> None:
        average, position = self.stepper.average, self.position
        self.stepper.guard.check()
        loss, norm = average.means()
        average.pause()
        speed = average.rows / average.seconds if average.seconds > 0 else 0.0
        whole = self.ranks.add_values({name: float(value) for name, value in sums.items()})
        values = training_values(self.task, whole, (loss, norm), self.settings.optimizer.lr * factor, speed)
        groups = zip(self.stepper.optimizer.param_groups, self.stepper.rates, strict=True)
        named = {group["name"]: rate * factor for group, rate in groups if "name" in group}
        self._log("train", values | ({"rates": named} if named else {}))
        self.shown = {"loss": loss} | {name: value for name, value in self.shown.items() if name.startswith("validation")}
        self.shown |= {"examples/s": round(speed)}
        position.rows, position.training = position.rows + average.rows, position.training + average.seconds
        average.clear()
        average.resume()

    def _log(self, kind: str, values: Mapping[str, Any], alone: bool = False) -> None:
        named = {"stage": self.stage.name} if self.stage.name and kind != "test" else {}
        self.run.log(make_line(kind, self.position.step, self.epoch_steps, self._elapsed(), named | dict(values)), alone)

    def _log_end(self, reason: str) -> None:
        self.run.log({"kind": "end", "step": self.position.step, "reason": reason})

    def _elapsed(self) -> float:
        return self.position.elapsed + time.perf_counter() - self.started
