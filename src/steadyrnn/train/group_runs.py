"""The run folders of a group: lines and checkpoints of each member, and one checkpoint of all of them together."""

import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from steadyrnn.constraints.group import Group
from steadyrnn.errors import ArgumentError, CheckpointError, RunError, SteadyError, TrainingError
from steadyrnn.runs.checkpoint import DOCUMENT, Checkpoint, load_checkpoint, save_checkpoint
from steadyrnn.runs.folder import Run
from steadyrnn.runs.regular import check_writable
from steadyrnn.tasks.base import Task

from .group_step import GroupStepper
from .lines import make_line, training_values
from .moving_average import MovingAverage
from .optimizer_state import load_optimizer_state, optimizer_state
from .probing import Callback, probe
from .randomness import keep_random_state, seed_everything
from .resuming import load_best
from .settings import TrainSettings
from .state import Position, capture_plain, describe, read_position, refuse_differences, restore_window
from .weights import check_weights, clones, load_weights, section

__all__ = ["Course", "GroupRuns"]

_BY_TRAINER = "The checkpoint of the group was not written by the trainer, or by another release"


@dataclass
class Course:
    """Where the training of a group stands.

    Attributes:
        done: Optimizer steps done.
        positions: Where each member stands.
        weights: The best weights of each member so far, as a checkpoint has them; empty before the first validation.
        stepper: What moves the members on.
    """

    done: int
    positions: list[Position]
    weights: list[dict[str, Tensor]]
    stepper: GroupStepper


class GroupRuns:
    """Writes what a group does to the run folders of its members, and takes up what was left there.

    Every folder gets the files that training its member alone would have written, at the same steps. A group goes on as a
    whole, or its last bits would differ: so the state of all members is also kept in one checkpoint, which is replaced
    atomically, before the members' own are. It is removed once every member has ended well.

    Args:
        runs: The folder of each member, held for writing.
        seeds: The seed that each member's first weights were drawn from; its ``config.json`` has it too.
        folder: Where the checkpoint of all members is kept.
        callbacks: Measurements of each member, by name; they are called as :func:`~steadyrnn.train.trainer.train` calls them.
    """

    def __init__(
        self, runs: Sequence[Run], seeds: Sequence[int], folder: Path, callbacks: Sequence[Mapping[str, Callback]] = ()
    ) -> None:
        for name, given in (("seeds", seeds), ("callbacks", callbacks or runs)):
            if len(given) != len(runs):
                raise ArgumentError(f"`{name}` must hold one for each of {len(runs)} runs, but holds {len(given)}.")
        self.callbacks = list(callbacks) or [{}] * len(runs)
        self.runs, self.seeds, self.folder = list(runs), list(seeds), folder
        self.ended: dict[int, dict[str, Tensor]] = {}  # tensors of the last checkpoint, of members that rest
        self.closed: set[int] = set()  # places of members whose folders are complete
        self.started, self.before = time.perf_counter(), 0.0

    def begin(self, group: Group, tasks: Sequence[Task], settings: TrainSettings, stepper: GroupStepper) -> Course:
        """Start the runs, or go on from the checkpoint of the group; nothing is written before all was read and agrees.

        Raises:
            RunError: A folder has other settings, or has lost a part, or was continued alone.
            CheckpointError: A checkpoint is damaged, or does not fit.
        """
        self.group, self.tasks, self.settings = group, tasks, settings
        self.epoch_steps = tasks[0].epoch_steps(settings.batch_size)
        self.descriptions = [describe(task, replace(settings, seed=seed)) for task, seed in zip(tasks, self.seeds, strict=True)]
        self.windows = [MovingAverage(tasks[0].device) for _ in self.runs]
        for run, description in zip(self.runs, self.descriptions, strict=True):
            refuse_differences({"train": run.config.get("train", {})}, description)
        check_writable(self.folder.parent, self.folder.name, last="a folder")
        if (self.folder / DOCUMENT).is_file():  # a folder without it was made by a call that was killed before a step
            self.course = self._take_up(load_checkpoint(self.folder))
            self._rewind()
            return self.course
        self._refuse_lost()
        count = len(self.runs)
        self.course = Course(0, [Position() for _ in range(count)], [{} for _ in range(count)], stepper)
        self._rewind()
        self._probe(range(count))
        self.save(0)
        return self.course

    # What the trainer tells

    def note_step(self, losses: Tensor, norms: Tensor, seconds: float, rate: float | None) -> None:
        """Add a step to what the next lines will say; with a learning rate, write them."""
        stepper = self.course.stepper
        for place, loss, norm in zip(stepper.moved, losses, norms, strict=True):
            window = self.windows[place]
            window.add(loss, norm, stepper.seen[place][1].input.shape[1])
            window.seconds += seconds
        if rate is None:
            return
        for place in stepper.moved:
            task, window, position = self.tasks[place], self.windows[place], self.course.positions[place]
            sums, speed = task.scores(*stepper.seen[place]), window.rows / window.seconds if window.seconds > 0 else 0.0
            self._log(place, "train", training_values(task, sums, window.means(), rate, speed))
            position.rows, position.training = position.rows + window.rows, position.training + window.seconds
            window.clear()

    def note_validation(self, place: int, weights: Mapping[str, Tensor] | None) -> None:
        """Write the scores of a validation; and the weights, where they are the best so far."""
        position = self.course.positions[place]
        self._log(place, "validation", position.validation)
        if weights is not None:
            facts = {"step": position.step, "validation": position.best, "settings": self.descriptions[place]}
            self.runs[place].save("best", weights, facts)

    def probe(self, step: int) -> None:
        """Measure the members that took a step and are due: every so many steps, and at their end."""
        every, course = self.settings.probe.every, self.course
        moved = [place for place in course.stepper.moved if place not in course.stepper.failures]
        regular = every > 0 and step % every == 0
        self._probe(place for place in moved if regular or course.positions[place].reason is not None)

    def _probe(self, places: Iterable[int]) -> None:
        if self.settings.probe.every > 0:
            for place in places:
                step = self.course.positions[place].step
                probe(self.callbacks[place], step, self.group.members[place], self.runs[place])

    def keep(self, places: Sequence[int]) -> None:
        """Keep what the last checkpoints of members will hold that are about to rest."""
        held = self._optimizer()
        self.ended |= {place: clones(self._capture(place, held)[0]) for place in places}

    def save(self, done: int) -> None:
        """Write the checkpoint of the group, then those of the members that go on."""
        self.course.done = done
        failures, held = self.course.stepper.failures, self._optimizer()
        tensors: dict[str, Tensor] = {}
        members: list[Any] = []
        last: dict[int, tuple[dict[str, Tensor], dict[str, Any]]] = {}
        for place, position in enumerate(self.course.positions):
            if place in failures:
                members.append({"failed": str(failures[place])})
                continue
            own, facts = last[place] = self._capture(place, held)
            if position.reason is not None:
                own = self.ended[place]
            tensors |= {f"{place}.{name}": tensor for name, tensor in own.items()}
            members.append(facts)
        marks = [run.mark() for run in self.runs]
        save_checkpoint(self.folder, tensors, {"step": done, "seeds": self.seeds, "members": members}, {"members": marks})
        for place in self.group.running:
            self.runs[place].save("last", *last[place])

    def note_interruption(self) -> None:
        """Write to the folders of members that go on that they were interrupted."""
        for place in self.group.running:
            self.runs[place].log({"kind": "end", "step": self.course.done, "reason": "interrupted"})

    def note_test(self, place: int) -> None:
        """Write the scores of a test and the end; the last checkpoint comes behind the last line."""
        if place in self.closed:
            return
        run, position = self.runs[place], self.course.positions[place]
        best = load_best(run)
        position.best = best.facts["validation"]
        position.standing = replace(position.standing, best_step=best.facts["step"])
        self._log(place, "test", position.test | {"checkpoint": "best"})
        run.log({"kind": "end", "step": position.step, "reason": position.reason})
        run.save("last", self.ended[place], self._capture(place, ({}, {}))[1] | self._optimizer_keys(place))

    def finish(self) -> None:
        """Remove the checkpoint of the group, unless a member failed: then it says so."""
        if not self.course.stepper.failures:
            self.remove()

    def remove(self) -> None:
        """Remove the checkpoint of the group."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _log(self, place: int, kind: str, values: Mapping[str, Any]) -> None:
        step = self.course.positions[place].step
        self.runs[place].log(make_line(kind, step, self.epoch_steps, self._elapsed(), values))

    def _elapsed(self) -> float:
        return self.before + time.perf_counter() - self.started

    # States of members

    def _optimizer(self) -> tuple[dict[str, Tensor], dict[str, list[str]]]:
        """Return the optimizer's tensors of all running members, by name."""
        return optimizer_state(self.group, self.course.stepper.optimizer)

    def _capture(
        self, place: int, held: tuple[dict[str, Tensor], dict[str, list[str]]]
    ) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the tensors and facts of a member's checkpoint, as if it were trained alone."""
        tensors, keys = held
        running, position = self.group.running, self.course.positions[place]
        position.elapsed = self._elapsed()
        if place in running:
            row, count = running.index(place), len(running)
            tensors = {name: _row(tensor, row, count) for name, tensor in tensors.items()}
        with keep_random_state():
            seed_everything(self.seeds[place])  # nothing is drawn in training
            model = self.group.members[place]
            return capture_plain(model, (tensors, keys), self.windows[place], position, self.descriptions[place])

    def _optimizer_keys(self, place: int) -> dict[str, Any]:
        """Return the part of a checkpoint's facts that names the optimizer's tensors, of a member that rests."""
        keys: dict[str, list[str]] = {name: [] for name, _ in self.group.named_parameters()}
        for name in section(self.ended[place], "optimizer"):
            parameter, key = name.rsplit(".", 1)
            keys[parameter].append(key)
        return {"optimizer": keys}

    # Taking up

    def _take_up(self, stored: Checkpoint) -> Course:
        """Return the course that a checkpoint of the group was taken of; the folders are only read."""
        try:
            done, members, marks = stored.facts["step"], stored.facts["members"], stored.run["members"]
            if type(done) is not int or not 0 <= done <= (self.settings.steps or self.settings.epochs * self.epoch_steps):
                raise CheckpointError(f"{_BY_TRAINER}: `step` is {done!r}.")
            if stored.facts["seeds"] != self.seeds or len(members) != len(self.seeds):
                raise RunError(f"The checkpoint of the group has the seeds {stored.facts['seeds']}, not {self.seeds}.")
            for place, (member, mark) in enumerate(zip(members, marks, strict=True)):
                self._check_member(place, member, mark, done)
            return self._restore(done, members, stored.tensors)
        except SteadyError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError) as error:
            raise CheckpointError(f"{_BY_TRAINER}: {error!r}.") from error

    def _check_member(self, place: int, member: Mapping[str, Any], mark: Mapping[str, Any], done: int) -> None:
        """Refuse a folder that does not go with the checkpoint of the group."""
        run = self.runs[place]
        run.check_mark(mark)
        if "failed" in member:
            if not isinstance(member["failed"], str):
                raise TypeError(f"`failed` of member {place} is {member['failed']!r}")
            return
        if member["reason"] is None and member["step"] != done:
            raise ValueError(f"member {place} is at step {member['step']!r}, the group at {done}")
        refuse_differences(member["settings"], self.descriptions[place])
        if member["standing"]["best_step"] > 0:
            check_weights(self.group.members[place], load_best(run).tensors)
        last = read_position(run.load("last").facts) if "last" in run.checkpoints() else Position()
        if member["reason"] is not None and last.reason is not None:
            self.closed.add(place)
        elif last.step > done:
            raise RunError(
                f"`{run.folder}` stands at step {last.step}, but the group at {done}: it was continued alone. Resume the other "
                "folders one by one."
            )

    def _restore(self, done: int, members: Sequence[Mapping[str, Any]], tensors: Mapping[str, Tensor]) -> Course:
        """Put weights, optimizer and positions back."""
        positions = [Position() if "failed" in member else read_position(member) for member in members]
        own = [section(tensors, str(place)) for place in range(len(members))]
        for place, member in enumerate(members):
            if "failed" not in member:
                load_weights(self.group.members[place], own[place])
                restore_window(self.windows[place], own[place], member)
        self.group.wake()
        stepper = GroupStepper(self.group, self.tasks, self.settings)
        failed = {place: member["failed"] for place, member in enumerate(members) if "failed" in member}
        stepper.failures |= {place: TrainingError(why) for place, why in failed.items()}
        self.ended = {place: own[place] for place, position in enumerate(positions) if position.reason is not None}
        if failed or self.ended:
            stepper.rest([*failed, *self.ended])
        running = self.group.running
        if running:
            rows = [section(own[place], "optimizer") for place in running]
            stacked = {
                name: torch.stack([row[name] for row in rows]) if first.dim() else first for name, first in rows[0].items()
            }
            load_optimizer_state(self.group, stepper.optimizer, stacked, members[running[0]]["optimizer"])
        self.before = max((position.elapsed for position in positions), default=0.0)
        has_best = [position.standing.best_step > 0 for position in positions]
        weights = [load_best(run).tensors if has else {} for run, has in zip(self.runs, has_best, strict=True)]
        return Course(done, positions, weights, stepper)

    def _refuse_lost(self) -> None:
        """Refuse folders that were trained, but whose group has no checkpoint any more."""
        for run in self.runs:
            if run.checkpoints() or any(record["step"] > 0 for record in run.metrics()):
                raise RunError(
                    f"`{self.folder}` is missing, the checkpoint of the group, but `{run.folder}` was trained. Restore it, or "
                    "start anew."
                )

    def _rewind(self) -> None:
        """Drop lines that come after the checkpoint; those of complete folders, and of members that failed, stay."""
        for place, (run, position) in enumerate(zip(self.runs, self.course.positions, strict=True)):
            if place not in self.closed and place not in self.course.stepper.failures:
                run.rewind(position.step)


def _row(tensor: Tensor, row: int, count: int) -> Tensor:
    """Return a member's part of an optimizer's tensor; counts of steps are shared."""
    return tensor[row] if tensor.dim() > 0 and tensor.shape[0] == count else tensor
