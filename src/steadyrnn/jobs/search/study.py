"""Where optuna chooses: one study per model, all in one journal, and what a worker tells it on the way."""

import hashlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from steadyrnn.errors import RunError

from .folder import TrialRecord
from .journal import JOURNAL, open_journal
from .plan import Entry, Range, SweepPlan

__all__ = ["Known", "Observer", "Studies"]

_NUMBER, _REASON, _VOID, _KILLS = "number", "reason", "void", "kills"
"""What is noted of a trial: its number in the sweep; why it failed; that it was cut off while it was drawn; lost processes."""

_FEWEST = 5
"""Finished trials from which on something is said of importance."""

_STATES = {
    TrialState.COMPLETE: "finished", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed", TrialState.RUNNING: "running",
}  # fmt: skip


@dataclass(frozen=True)
class Known:
    """A trial as the journal has it.

    Args:
        number: In the sweep.
        model: Its model, which is the name of its study.
        place: Its number in the study.
        state: ``finished``, ``pruned``, ``failed`` or ``running``.
        settings: What optuna chose or was given.
        value: Of a finished one.
        reason: Why it failed.
        kills: Processes that were lost with it.
    """

    number: int
    model: str
    place: int
    state: str
    settings: Mapping[str, Any]
    value: float | None = None
    reason: str = ""
    kills: int = 0


class Studies:
    """The studies of a sweep.

    Args:
        folder: The sweep's folder.
        plan: What is tried.
        higher: Whether more of the metric is better.
    """

    def __init__(self, folder: Path, plan: SweepPlan, higher: bool) -> None:
        self.folder, self.plan = folder, plan
        self._cut_off: list[tuple[str, int]] = []
        self._storage = open_journal(folder)
        direction: Literal["maximize", "minimize"] = "maximize" if higher else "minimize"
        try:
            there = set(optuna.get_all_study_names(self._storage))
            if there - {*plan.models}:
                raise RunError(f"`{folder / JOURNAL}` is of another sweep: it has the study {min(there - {*plan.models})!r}.")
            self._studies = {
                model: optuna.load_study(study_name=model, storage=self._storage)
                if model in there
                else optuna.create_study(study_name=model, storage=self._storage, direction=direction)
                for model in plan.models
            }
            wrong = [model for model, study in self._studies.items() if study.direction.name.lower() != direction]
        except RunError:
            raise
        except Exception as error:  # whatever a journal of another release or another program leads to
            raise RunError(f"`{folder / JOURNAL}` cannot be read: {type(error).__name__}: {error}.") from error
        if wrong:
            raise RunError(f"`{folder / JOURNAL}` does not {direction} the metric: it is of another sweep, or was altered.")

    def known(self) -> dict[int, Known]:
        """Return the trials of the journal by number; those cut off while they were drawn are left out.

        Raises:
            RunError: A trial is none of the plan's.
        """
        try:
            return self._read_all()
        except RunError:
            raise
        except Exception as error:  # optuna replays any value without a look at it
            raise RunError(f"`{self.folder / JOURNAL}` cannot be read: {type(error).__name__}: {error}.") from error

    def _read_all(self) -> dict[int, Known]:
        found: dict[int, Known] = {}
        entries = {entry.number: entry for entry in self.plan.entries()}
        for model, study in self._studies.items():
            for trial in study.get_trials(deepcopy=False):
                number = trial.user_attrs.get(_NUMBER)
                if trial.state is TrialState.WAITING or _VOID in trial.user_attrs:
                    continue
                entry = entries.get(number) if isinstance(number, int) else None
                whole = trial.params.keys() == self._distributions(model).keys()
                if not whole and trial.state is TrialState.RUNNING:
                    self._cut_off.append((model, trial.number))
                    continue
                right = entry is not None and entry.model == model and entry.fixed.items() <= trial.params.items()
                if not right or not whole or number in found:
                    raise RunError(
                        f"`{self.folder / JOURNAL}` has the trial {str(number)[:20]} of {model}, which does not fit the "
                        "plan of the sweep: it was altered, or is another sweep's."
                    )
                found[int(str(number))] = self._read(model, trial)
        return found

    def close_cut_off(self) -> None:
        """Close the trials that :meth:`known` left out: they are drawn anew."""
        for model, place in self._cut_off:
            self._note(model, place, _VOID, True)
            self._studies[model].tell(place, state=TrialState.FAIL)
        self._cut_off.clear()

    def ask(self, entry: Entry) -> Known:
        """Return a new trial: with the settings of the grid, and what the sampler chooses of the others.

        What it draws depends on the seed of the search, the trial's number and, except at random, on the trials that have
        ended: so a sweep that goes on draws as one that was never interrupted.
        """
        study = self._studies[entry.model]
        study.sampler = _sampler(self.plan, entry.number)
        waiting = [trial.user_attrs.get(_NUMBER) for trial in study.get_trials(False, states=(TrialState.WAITING,))]
        if entry.number not in waiting:
            study.enqueue_trial(dict(entry.fixed), user_attrs={_NUMBER: entry.number})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trial = study.ask(self._distributions(entry.model))
        if trial.user_attrs.get(_NUMBER) != entry.number:
            raise RunError(f"`{self.folder / JOURNAL}` has another trial waiting than {entry.number}: it was altered.")
        return Known(entry.number, entry.model, trial.number, "running", dict(trial.params))

    def tell(self, known: Known, record: TrialRecord) -> None:
        """Note in the journal what a trial came to."""
        study = self._studies[known.model]
        if record.state == "finished":
            study.tell(known.place, record.value)
            return
        self._note(known.model, known.place, _REASON, record.reason)
        study.tell(known.place, state=TrialState.PRUNED if record.state == "pruned" else TrialState.FAIL)

    def note_kill(self, known: Known) -> int:
        """Note that a process was lost with a trial, and return how many there are now."""
        trial = self._studies[known.model].get_trials(deepcopy=False)[known.place]
        count = int(trial.user_attrs.get(_KILLS, 0)) + 1
        self._note(known.model, known.place, _KILLS, count)
        return count

    def importance(self) -> dict[str, dict[str, float]]:
        """Return for each model the share of each varied setting in how scores differ, by PED-ANOVA; empty where unknown."""
        found: dict[str, dict[str, float]] = {}
        for model, study in self._studies.items():
            if len(study.get_trials(False, states=(TrialState.COMPLETE,))) < _FEWEST:
                continue
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    shares = optuna.importance.get_param_importances(study)
            except (ValueError, RuntimeError, IndexError, ZeroDivisionError):  # too few trials, or all alike
                shares = {}
            found[model] = {name: float(share) for name, share in shares.items() if share == share}
        return found

    def _read(self, model: str, trial: FrozenTrial) -> Known:
        attributes = trial.user_attrs
        return Known(
            int(attributes[_NUMBER]), model, trial.number, _STATES[trial.state], dict(trial.params),
            trial.value if trial.state is TrialState.COMPLETE else None, str(attributes.get(_REASON, "")),
            int(attributes.get(_KILLS, 0)),
        )  # fmt: skip

    def _note(self, model: str, place: int, key: str, value: Any) -> None:
        study_id = self._storage.get_study_id_from_name(model)
        self._storage.set_trial_user_attr(
            self._storage.get_trial_id_from_study_id_trial_number(study_id, place), key, value
        )  # fmt: skip

    def _distributions(self, model: str) -> dict[str, BaseDistribution]:
        found: dict[str, BaseDistribution] = {
            name: CategoricalDistribution(values) for name, values in self.plan.grid_of(model).items()
        }
        return found | {name: _distribution(space) for name, space in self.plan.search_of(model).items()}


class Observer:
    """Tells optuna the validations of a trial from the process that trains it, and hears whether to end it.

    Args:
        folder: The sweep's folder.
        study: The name of the study.
        place: The trial's number in it.
        kind: Of :data:`~steadyrnn.jobs.search.plan.PRUNERS`.
    """

    def __init__(self, folder: str, study: str, place: int, kind: str) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        storage = open_journal(Path(folder))
        sampler = optuna.samplers.RandomSampler(seed=0)  # it chooses nothing here
        loaded = optuna.load_study(study_name=study, storage=storage, sampler=sampler, pruner=_pruner(kind))
        identity = storage.get_trial_id_from_study_id_trial_number(storage.get_study_id_from_name(study), place)
        self._trial = optuna.trial.Trial(loaded, identity)
        self._told = set(loaded.get_trials(deepcopy=False)[place].intermediate_values)

    def tell(self, step: int, value: float) -> bool:
        """Tell a value, unless that of this step is known; say whether to end the trial."""
        if step in self._told:
            return False
        self._told.add(step)
        self._trial.report(value, step)
        return self._trial.should_prune()


def _distribution(space: Range | tuple[Any, ...]) -> BaseDistribution:
    if isinstance(space, tuple):
        return CategoricalDistribution(space)
    if space.whole:
        return IntDistribution(int(space.low), int(space.high), space.log, int(space.step or 1))
    return FloatDistribution(space.low, space.high, space.log, space.step)


def _sampler(plan: SweepPlan, number: int) -> optuna.samplers.BaseSampler:
    """Return a fresh sampler for a trial, seeded by the search's seed and the trial's number."""
    seed = int.from_bytes(hashlib.sha256(f"{plan.seed}/{number}".encode()).digest()[:4], "big")
    if plan.sampler == "tpe":
        return optuna.samplers.TPESampler(seed=seed)
    return optuna.samplers.RandomSampler(seed=seed)


def _pruner(kind: str) -> optuna.pruners.BasePruner:
    if kind == "median":
        return optuna.pruners.MedianPruner()
    return optuna.pruners.SuccessiveHalvingPruner() if kind == "halving" else optuna.pruners.NopPruner()
