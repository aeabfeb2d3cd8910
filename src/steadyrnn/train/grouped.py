"""The trainer of a group: many small networks in one pass, each as if it were trained alone."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from steadyrnn.constraints.group import Group
from steadyrnn.constraints.slot import cached
from steadyrnn.errors import ArgumentError, ArgumentTypeError, DataError, TrainingError
from steadyrnn.tasks.base import Batch, Task

from .arguments import check_settings
from .device import choose_device, device_context
from .effects import check_effects
from .group_runs import GroupRuns
from .group_step import GroupStepper, check_stackable, stack_inputs
from .progress import Progress, Silent
from .randomness import keep_random_state
from .ranks import refuse_ranks
from .result import Result, make_result
from .schedules import Moment, rate_factor
from .settings import ProbeSettings, TrainSettings
from .signals import Interrupted, Signals
from .state import Position
from .stopping import reason_to_stop
from .weights import clones, load_weights, weights_of

__all__ = ["GroupResult", "evaluate_group", "find_group_refusal", "train_group"]

_USED = frozenset(
    {"steps", "epochs", "batch_size", "evaluation_batch_size", "validate_every", "log_every", "save_every", "seed", "device"}
    | {"threads", "deterministic", "graph", "schedule.name", "schedule.factor", "schedule.patience", "schedule.warmup"}
    | {"stop.patience", "stop.below", "clip.norm", "clip.recurrent", "probe.names", "probe.against"}
    | {f"optimizer.{name}" for name in ("name", "lr", "transition_lr", "weight_decay", "momentum", "betas", "alpha", "eps")}
)
"""Settings that a group follows, or that say nothing where nothing is written; any other must have its default."""


@dataclass(frozen=True)
class GroupResult:
    """What came out of training a group.

    Attributes:
        results: The result of each member, as :func:`~steadyrnn.train.trainer.train` would give it; None for one that
            failed. ``seconds`` and ``examples_per_second`` are the group's, all members together.
        failures: Why members failed, by their places: a loss or gradient was not finite.
    """

    results: tuple[Result | None, ...]
    failures: Mapping[int, TrainingError]


def train_group(
    group: Group,
    tasks: Task | Sequence[Task],
    settings: TrainSettings,
    *,
    progress: Progress | None = None,
    runs: GroupRuns | None = None,
) -> GroupResult:
    """Train every member of a group on its own task; in the end each has the weights that were best on its validation split.

    Each member gets what :func:`~steadyrnn.train.trainer.train` would have given it, up to rounding: its own batches, its
    own clipping by norm, its own projections, its own best weights and its own early stop. A member that stops, or whose
    loss or gradient is not finite, rests; the others go on without it.

    Nothing is drawn at random (a group has no dropout), so ``settings.seed`` has no effect: members differ by the first
    weights and by the tasks they are given. Not supported, and refused: ``accumulate``, ``autocast``, ``compile``, probes
    without ``runs``, and the schedule ``plateau``, whose learning rate would differ between members.

    Args:
        group: Such as ``steadyrnn.models.group.group(models)``; moved to the settings' device. Take the trained models out
            with ``ungroup``.
        tasks: One for each member, or one for all. All with the same sizes, so that batches can be stacked.
        settings: How to train.
        progress: What a person sees; None is nothing.
        runs: The run folders that metrics and checkpoints of the members go to; None writes nothing. With folders, a group
            that was cut off goes on from its last checkpoint, bit for bit, and Ctrl-C and SIGTERM end it after the step in
            hand, with everything saved.

    Returns:
        The result of each member, and the failures. A member that failed has the weights before the failing step.

    Raises:
        ArgumentError: Settings or tasks that a group cannot follow.
        Interrupted: A signal came; the group can be resumed.
        RunError: A folder has other settings, or has lost a part.
        CheckpointError: A checkpoint is damaged, or does not fit.

    Example:
        >>> from steadyrnn.models.group import group, ungroup
        >>> from steadyrnn.tasks.registry import make_task
        >>> many = group([sr.SequenceModel(sr.RNN(2, 8), 1) for _ in range(3)])
        >>> done = train_group(many, make_task("addition", length=10), TrainSettings(steps=20, batch_size=16, device="cpu"))
        >>> [result.steps for result in done.results], len(done.failures), len(ungroup(many))
        ([20, 20, 20], 0, 3)
    """
    refuse_ranks("A group of networks", "Start it without torchrun.")
    each = _check_arguments(group, tasks, settings, progress, probes=runs is not None)
    with device_context(settings):
        return _GroupTrainer(group, each, settings, Silent() if progress is None else progress, runs).run_to_the_end()


def find_group_refusal(group: Group, tasks: Task | Sequence[Task], settings: TrainSettings) -> str | None:
    """Return why :func:`train_group` with run folders would refuse, None where it would not; nothing is trained.

    Example:
        >>> from steadyrnn.models.group import group
        >>> from steadyrnn.tasks.registry import make_task
        >>> many, task = group([sr.SequenceModel(sr.RNN(2, 4), 1)]), make_task("addition", length=10)
        >>> find_group_refusal(many, task, TrainSettings(accumulate=2))
        '`accumulate` must be 1, its default, for a group, but is 2. Train the members one by one.'
    """
    try:
        GroupStepper(group, _check_arguments(group, tasks, settings, None, probes=True), settings)
    except ArgumentError as error:
        return str(error)
    return None


def evaluate_group(group: Group, tasks: Sequence[Task], split: str, batch_size: int) -> list[dict[str, float]]:
    """Return the scores of every running member on a split of its own task; ``tasks`` has one for each of them.

    Example:
        >>> from steadyrnn.models.group import group
        >>> from steadyrnn.tasks.registry import make_task
        >>> many, task = group([sr.SequenceModel(sr.RNN(2, 4), 1) for _ in range(3)]), make_task("addition", length=10)
        >>> [list(scores) for scores in evaluate_group(many, [task] * 3, "test", 100)]
        [['loss'], ['loss'], ['loss']]
    """
    sums: list[dict[str, Tensor]] = [{} for _ in tasks]
    with torch.no_grad(), cached(), keep_random_state():
        for batches in _together(tasks, split, batch_size):
            output, _ = group(stack_inputs(batches))
            for own, task, part, batch in zip(sums, tasks, output.unbind(-3), batches, strict=True):
                for name, value in task.scores(part, batch).items():
                    own[name] = own[name] + value.double() if name in own else value.double()
    if not sums[0]:
        raise DataError(f"The split {split!r} of the tasks has no examples, so there is nothing to score.")
    return [
        task.summary(dict(zip(own, torch.stack(list(own.values())).tolist(), strict=True)))
        for own, task in zip(sums, tasks, strict=True)
    ]


def _together(tasks: Sequence[Task], split: str, batch_size: int) -> Iterator[list[Batch]]:
    """Yield a batch of each task at a time; a shared task is asked once."""
    distinct = {id(task): task for task in tasks}
    for batches in zip_longest(*(task.batches(split, batch_size) for task in distinct.values())):
        if any(batch is None for batch in batches):
            raise ArgumentError(
                f"`tasks` must have the same number of batches in the split {split!r}, but have several numbers."
            )
        found: dict[int, Batch] = dict(zip(distinct, batches, strict=True))
        yield [found[id(task)] for task in tasks]


class _GroupTrainer:
    """One run of a group."""

    def __init__(
        self, group: Group, tasks: list[Task], settings: TrainSettings, progress: Progress, runs: GroupRuns | None
    ) -> None:
        self.settings, self.progress, self.runs = settings, progress, runs
        device = choose_device(settings.device)
        if len(group.running) < len(group.members):
            group.wake()
        self.group, self.tasks = group.to(device), [task.to(device) for task in tasks]
        self.stepper = GroupStepper(group, tasks, settings)
        self.epoch_steps = tasks[0].epoch_steps(settings.batch_size)
        self.total = settings.steps or settings.epochs * self.epoch_steps
        self.validate_every = settings.validate_every or self.epoch_steps
        self.save_every = settings.save_every or self.validate_every
        count = len(group.members)
        self.positions = [Position() for _ in range(count)]
        self.weights: list[dict[str, Tensor]] = [{} for _ in range(count)]
        self.training, self.rows, self.done = 0.0, 0, 0

    def run_to_the_end(self) -> GroupResult:
        """Step until no member runs, test the best weights of each."""
        started = time.perf_counter()
        self.group.train()
        with Signals(active=self.runs is not None) as signals:
            if self.runs is not None:
                self._take_up(self.runs)
            self._loop(signals)
            self._finish()
        if self.runs is not None:
            self.runs.finish()
        seconds = time.perf_counter() - started
        return GroupResult(tuple(self._result(place, seconds) for place in range(len(self.tasks))), dict(self.stepper.failures))

    def _take_up(self, runs: GroupRuns) -> None:
        """Start the folders, or go on from where they were left."""
        course = runs.begin(self.group, self.tasks, self.settings, self.stepper)
        self.done, self.positions = course.done, course.positions
        self.weights, self.stepper = course.weights, course.stepper

    def _loop(self, signals: Signals) -> None:
        self.progress.begin(self.total, self.done)
        try:
            while self.group.running and self.done < self.total:
                self.done += 1
                self._step(self.done)
                if self.done % self.validate_every == 0 or self.done == self.total:
                    self._validate(self.done)
                if self.runs is not None:
                    self.runs.probe(self.done)
                    self._save(self.runs, signals)
        finally:
            self.progress.end()

    def _save(self, runs: GroupRuns, signals: Signals) -> None:
        """Write a checkpoint where one is due: every so many steps, at the end of training, and when a signal came."""
        over = not self.group.running
        if self.done % self.save_every == 0 or over or signals.received is not None:
            runs.save(self.done)
        if signals.received is not None and not over:
            runs.note_interruption()
            raise Interrupted(signals.received, self.done)

    def _step(self, number: int) -> None:
        before = time.perf_counter()
        factor = rate_factor(self.settings.schedule, Moment(number - 1, self.epoch_steps, self.total))
        losses, norms = self.stepper.step(number, factor)
        seconds = time.perf_counter() - before
        self.training += seconds
        self.rows += self.settings.batch_size * len(losses)
        for place in self.stepper.moved:
            self.positions[place].step = number
        if self.runs is not None:
            logged = number % self.settings.log_every == 0 or number == self.total
            self.runs.note_step(losses, norms, seconds, self.settings.optimizer.lr * factor if logged else None)
        shown = {"loss": float(losses.mean())} if number % self.settings.log_every == 0 and len(losses) else {}
        self.progress.update(number, shown | {"networks": len(self.group.running)})

    def _validate(self, step: int) -> None:
        """Score each running member; keep weights that are its best, and let it rest where it has a reason to stop."""
        running = self.group.running
        if not running:
            return
        ended = []
        for place, scores in zip(running, self._evaluate("validation"), strict=True):
            task, position = self.tasks[place], self.positions[place]
            metric, higher = scores[task.metric], task.higher_is_better
            position.standing = position.standing.after(
                step, loss=scores["loss"], metric=metric, higher=higher, schedule=self.settings.schedule
            )
            position.validation = scores
            better = position.standing.best_step == step
            if better:
                position.best, self.weights[place] = scores, clones(weights_of(self.group.members[place]))
            if self.runs is not None:
                self.runs.note_validation(place, self.weights[place] if better else None)
            reason = reason_to_stop(self.settings.stop, position.standing, scores["loss"])
            if reason is not None or step == self.total:
                position.reason = reason or "finished"
                ended.append(place)
        if ended:
            if self.runs is not None:
                self.runs.keep(ended)
            self.stepper.rest(ended)

    def _evaluate(self, split: str) -> list[dict[str, float]]:
        size = self.settings.evaluation_batch_size or self.settings.batch_size
        self.group.eval()
        scores = evaluate_group(self.group, [self.tasks[place] for place in self.group.running], split, size)
        self.group.train()
        return scores

    def _finish(self) -> None:
        """Give every member that did not fail its best weights, and test these."""
        ended = [place for place, position in enumerate(self.positions) if position.reason is not None]
        for place in ended:
            load_weights(self.group.members[place], self.weights[place])
        self.group.wake()
        if not ended:
            return
        failed = list(self.stepper.failures)
        if failed:
            self.group.rest(failed)
        for place, scores in zip(self.group.running, self._evaluate("test"), strict=True):
            self.positions[place].test = scores
            if self.runs is not None:
                self.runs.note_test(place)
        if failed:
            self.group.wake()

    def _result(self, place: int, seconds: float) -> Result | None:
        """Return the result of a member, with the rows and times of the group."""
        if place in self.stepper.failures:
            return None
        return make_result(replace(self.positions[place], elapsed=seconds, rows=self.rows, training=self.training))


def _check_arguments(group: object, tasks: object, settings: object, progress: object, probes: bool) -> list[Task]:
    """Refuse arguments that a group cannot follow; return a task for each member."""
    if not isinstance(group, Group):
        raise ArgumentTypeError(
            f"`group` must be a Group, such as `steadyrnn.models.group.group(models)`, but is of type {type(group).__name__}."
        )
    if not isinstance(settings, TrainSettings):
        raise ArgumentTypeError(f"`settings` must be TrainSettings, but is of type {type(settings).__name__}.")
    if progress is not None and not isinstance(progress, Progress):
        raise ArgumentTypeError(f"`progress` must be a Progress, but is of type {type(progress).__name__}.")
    check_settings(settings)
    _check_supported(replace(settings, probe=ProbeSettings()) if probes else settings)
    count = len(group.members)
    each = [tasks] * count if isinstance(tasks, Task) else list(tasks) if isinstance(tasks, Sequence) else []
    wrong = next((type(task).__name__ for task in each if not isinstance(task, Task)), None)
    if wrong is not None or not isinstance(tasks, Task | Sequence):
        raise ArgumentTypeError(f"`tasks` must be a Task or a list of them, but has type {wrong or type(tasks).__name__}.")
    if len(each) != count:
        raise ArgumentError(f"`tasks` must hold one task for each of {count} members, but holds {len(each)}.")
    _check_tasks(each, settings)
    _check_splits(each, settings)
    check_effects(settings, group, each[0])
    return each


def _check_tasks(tasks: list[Task], settings: TrainSettings) -> None:
    """Refuse tasks that cannot be run side by side."""
    first = tasks[0]
    if any(task.stages or task.varies for task in tasks):
        raise ArgumentError(
            "`tasks` must not have a curriculum or training batches of many lengths for a group. Train the members one by one."
        )
    if first.interface.carries_state:
        raise ArgumentError("`tasks` must not carry states from batch to batch for a group. Train the members one by one.")
    for place, task in enumerate(tasks):
        same = task.interface == first.interface
        if not same or task.epoch_steps(settings.batch_size) != first.epoch_steps(settings.batch_size):
            raise ArgumentError(
                f"`tasks` must have the same inputs, outputs and steps of an epoch, but those of number {place} differ from "
                "those of number 0. Make one group for each."
            )


def _check_splits(tasks: list[Task], settings: TrainSettings) -> None:
    """Refuse tasks whose batches cannot be stacked, in training, validation or test, before any step is made."""
    size = settings.evaluation_batch_size or settings.batch_size
    with keep_random_state():
        check_stackable([task.train_batch(0, settings.batch_size) for task in tasks])
        for split in ("validation", "test"):
            count = 0
            for batches in _together(tasks, split, size):
                check_stackable(batches)
                count += 1
            if not count:
                raise DataError(f"The split {split!r} of the tasks has no examples, so there is nothing to score.")


def _check_supported(settings: Any, path: str = "") -> None:
    """Refuse a setting that a group does not follow, unless it has its default."""
    if not path and settings.schedule.name == "plateau":
        raise ArgumentError("`schedule.name` 'plateau' gives each member its own learning rate, which a group does not have.")
    if not path and settings.graph == "on":
        raise ArgumentError("`graph` is 'on', but the steps of a group are not captured. Train the members one by one.")
    for field in fields(settings):
        name, value = f"{path}{field.name}", getattr(settings, field.name)
        if is_dataclass(value):
            _check_supported(value, f"{name}.")
            continue
        default = field.default if field.default is not MISSING else None
        if name not in _USED and value != default:
            raise ArgumentError(
                f"`{name}` must be {default!r}, its default, for a group, but is {value!r}. Train the members one by one."
            )
