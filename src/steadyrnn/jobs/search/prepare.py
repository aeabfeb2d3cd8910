"""From a plan to configurations: every value is tried on a task and a model before anything is trained."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from steadyrnn.errors import ArgumentError, DataError, MissingExtraError, RunError, SteadyError, not_among
from steadyrnn.models.systems import build_model
from steadyrnn.tasks.base import Task
from steadyrnn.train.arguments import check_settings
from steadyrnn.train.device import choose_device
from steadyrnn.train.effects import check_effects
from steadyrnn.train.evaluation import evaluation_mode
from steadyrnn.train.model_call import call_model
from steadyrnn.train.randomness import keep_random_state

from ..configuration import Configuration, put_setting
from ..loading import build_task, data_checksums
from ..measurements import check_probes
from ..open_settings import TASK
from ..own_data import settle
from ..recipes import configure
from .plan import Range, SweepPlan
from .plan_checks import check_plan

__all__ = ["Prepared", "prepare"]

_MOST_MODELS = 100
"""Models of different forms that are built to see whether they can be."""


@dataclass(frozen=True)
class Prepared:
    """What is known of a sweep before it starts.

    Args:
        plan: What is tried; its metric is named.
        label: The name of its folder below that of all runs.
        higher: Whether more of the metric is better.
        device: The kind of device, ``cpu`` or ``cuda``.
        bases: Of data of one's own, the configuration that trials of a model start from, by model.
        facts: What is noted of runs beside, by model.
        notes: How that was chosen, a sentence each.
        data: Checksums of data files by path; None where the task has none.
    """

    plan: SweepPlan
    label: str
    higher: bool
    device: str
    bases: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    data: Mapping[str, str] | None = None

    def configuration(self, model: str, settings: Mapping[str, Any]) -> Configuration:
        """Return the configuration of a trial: the common settings, with those of the trial in their place."""
        if model not in self.bases:
            return configure(self.plan.task, model, {**self.plan.settings_of(model), **settings})
        stored: Any = {name: _copy(part) for name, part in self.bases[model].items()}
        for path, value in settings.items():
            put_setting(stored, path, value)
        return Configuration.from_dict(stored)

    def to_dict(self) -> dict[str, Any]:
        """Return what a later start needs, as JSON."""
        return {
            **{"label": self.label, "higher": self.higher, "bases": dict(self.bases), "facts": dict(self.facts)},
            "data": None if self.data is None else dict(self.data),
        }


def prepare(plan: SweepPlan, stored: Mapping[str, Any] | None = None) -> Prepared:
    """Build the task, and a model for each value of each setting that shapes one; choose the metric.

    Args:
        plan: What is to be tried.
        stored: What :meth:`Prepared.to_dict` said at the first start, of a sweep that goes on.

    Raises:
        ArgumentError: A setting cannot be; the message names it and its value.
        DataError: The task's data is missing or damaged.
    """
    check_plan(plan)
    prepared = Prepared(plan, "", higher=False, device="cpu")
    if stored is not None:
        prepared = _take_stored(prepared, stored)
    elif plan.task == TASK:
        prepared = _settle_all(prepared)
    configuration, task, network = _try_all(prepared)
    if configuration.scored_part != "validation":
        raise ArgumentError(
            "A sweep compares scores on the validation part, but so few series leave none for it. Name a larger part with the "
            "setting `task.validation`, or give more series."
        )
    metric, higher = _choose_metric(plan, task, network)
    data = data_checksums(task.data_facts())
    if stored is not None and data != stored.get("data"):
        raise DataError("The data has changed since the sweep began. Restore it, or start a new sweep.")
    if stored is not None and (stored.get("higher"), stored.get("label")) != (higher, configuration.label):
        raise RunError("`sweep.json` was altered: what it says of its task or metric is not so. Restore it.")
    named = replace(plan, metric=metric)
    device = choose_device(configuration.train.device).type
    return replace(prepared, plan=named, label=configuration.label, higher=higher, device=device, data=data)


def _take_stored(prepared: Prepared, stored: Mapping[str, Any]) -> Prepared:
    """Return what was chosen at the first start."""
    bases: Any = stored.get("bases")
    facts: Any = stored.get("facts")
    whole = isinstance(bases, dict) and isinstance(facts, dict) and all(isinstance(one, dict) for one in bases.values())
    if not whole or (prepared.plan.task == TASK and set(bases) != {*prepared.plan.models}):
        raise RunError("`sweep.json` is damaged: it does not say what was chosen for each model at the first start.")
    return replace(prepared, bases=bases, facts=facts)


def _try_all(prepared: Prepared) -> tuple[Configuration, Task, torch.nn.Module]:
    """Build what each value of each setting shapes; return the first configuration, with its task and model."""
    built: list[tuple[Any, Any]] = []
    latest: tuple[Any, Task] | None = None
    first: tuple[Configuration, Task, torch.nn.Module] | None = None
    for model in prepared.plan.models:
        for settings, varied in _variations(prepared.plan, model):
            try:
                configuration = prepared.configuration(model, settings)
                check_settings(configuration.train)
                check_probes(configuration.train.probe)
                choose_device(configuration.train.device)
                shape = configuration.model, configuration.task
                if shape in built or len(built) >= _MOST_MODELS:
                    continue
                built.append(shape)
                if latest is None or latest[0] != configuration.task:
                    latest = configuration.task, build_task(configuration)
                network = _build(configuration, latest[1])
                check_effects(configuration.train, network, latest[1])
            except (DataError, MissingExtraError):
                raise
            except SteadyError as error:
                raise ArgumentError(f"{model}{varied}: {error}") from error
            first = (configuration, latest[1], network) if first is None else first
    if first is None:
        raise ArgumentError("A sweep needs at least one model.")
    return first


def _build(configuration: Configuration, task: Task) -> torch.nn.Module:
    """Return a model; random numbers stay as they are."""
    with keep_random_state():
        return build_model(configuration.model, task.interface)


def _settle_all(prepared: Prepared) -> Prepared:
    """Choose for each model what the user of own data left open, as ``train`` does: once, for all trials of the model."""
    plan, bases, facts, notes, task = prepared.plan, dict[str, Any](), dict[str, Any](), list[str](), None
    for model in plan.models:
        start = next(_variations(plan, model))[0]
        settled = settle({**plan.settings_of(model), **start, "model.name": model}, None, task)
        varied = any(name.startswith("task.") for name in start)
        task = None if varied else settled.task
        bases[model], facts[model] = settled.configuration.to_dict(), settled.facts
        notes += [f"{model}: {line}" for line in settled.notes]
    return replace(prepared, bases=bases, facts=facts, notes=tuple(notes))


def _variations(plan: SweepPlan, model: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield settings in which each value of the grid, each choice and both ends of each range are there once, with words."""
    values: dict[str, tuple[Any, ...]] = dict(plan.grid_of(model))
    for name, space in plan.search_of(model).items():
        values[name] = (space.low, space.high) if isinstance(space, Range) else space
    base = {name: listed[0] for name, listed in values.items()}
    yield base, "".join(f", {name} {value!r}" for name, value in base.items())
    for name, listed in values.items():
        for value in listed[1:]:
            yield {**base, name: value}, f", {name} {value!r}"


def _choose_metric(plan: SweepPlan, task: Task, network: torch.nn.Module) -> tuple[str, bool]:
    """Return the score that is compared, and whether more of it is better."""
    if plan.metric in (None, task.metric):
        higher = task.higher_is_better
        if plan.direction not in (None, "maximize" if higher else "minimize"):
            raise ArgumentError(f"`direction` of {task.metric} is {'maximize' if higher else 'minimize'}: leave it out.")
        return task.metric, higher
    name = str(plan.metric)
    known = _scores(task, network)
    if name not in known:
        raise ArgumentError(not_among("metric", name, known))
    if name == "loss":
        if plan.direction == "maximize":
            raise ArgumentError("`direction` of loss is minimize: leave it out.")
        return name, False
    if plan.direction is None:
        raise ArgumentError(f"`direction` must say whether {name} is to be minimized or maximized: minimize, maximize.")
    return name, plan.direction == "maximize"


def _scores(task: Task, network: torch.nn.Module) -> list[str]:
    """Return the names of the scores of a validation."""
    batch = next(iter(task.batches("validation", 2)))
    with evaluation_mode(network), torch.no_grad(), keep_random_state():
        output, _ = call_model(network, batch, None, task.interface)
    sums = {name: float(value) for name, value in task.scores(output, batch).items()}
    return [*task.summary(sums)]


def _copy(value: Any) -> Any:
    return {name: _copy(item) for name, item in value.items()} if isinstance(value, Mapping) else value
