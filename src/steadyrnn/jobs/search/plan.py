"""What a sweep is to try: models, seeds, lists and ranges of settings; free of torch."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from steadyrnn.errors import RunError
from steadyrnn.models.registry import SYSTEMS
from steadyrnn.tasks.registry import TASKS

from .setting_types import applies, is_number

__all__ = ["MOST_TRIALS", "PRUNERS", "SAMPLERS", "Entry", "Range", "SweepPlan"]

MOST_TRIALS = 10_000
"""Of one sweep: each is a folder with a training of its own."""

SAMPLERS = {
    "tpe": "settings that were good so far are tried more often",
    "random": "every setting is drawn independently",
    "grid": "every combination of the lists and steps of `search`, once",
}
PRUNERS = {
    "none": "every trial is trained to its end",
    "median": "a trial ends early when it is worse than the median of the others at the same step",
    "halving": "at steps that grow by the factor 4, the best quarter goes on",
}


@dataclass(frozen=True)
class Range:
    """Numbers between two ends, which are among them.

    Args:
        low: The lower end.
        high: The upper end.
        log: Whether the logarithm is drawn evenly.
        step: Distance of the numbers from each other; None is any number between, or every whole one.
        whole: Whether they are whole numbers.
    """

    low: float
    high: float
    log: bool = False
    step: float | None = None
    whole: bool = False


@dataclass(frozen=True)
class Entry:
    """A trial as the plan has it.

    Args:
        number: Its number, from 0.
        model: Its model.
        fixed: Settings of the grid, by their dotted names.
    """

    number: int
    model: str
    fixed: Mapping[str, Any]


@dataclass(frozen=True)
class SweepPlan:
    """All that decides which settings are tried.

    Args:
        task: A task's name, ``series`` for a file of the user's.
        models: Names of systems.
        seeds: Of weights; a trial is trained with each of them.
        settings: Dotted settings that all trials have in common.
        grid: For each setting the values of which every combination is tried.
        search: For each setting a range, or a tuple of choices, that values are drawn from.
        trials: Settings drawn for each combination; 1 where nothing is drawn.
        sampler: Of :data:`SAMPLERS`.
        pruner: Of :data:`PRUNERS`.
        metric: The score on the validation part that is compared; None is the task's.
        direction: ``minimize`` or ``maximize``, for a metric that is neither the task's nor the loss.
        seed: Of the search.

    Example:
        >>> plan = SweepPlan("addition", ("gru", "lstm"), (0,), grid={"model.width": (8, 16)})
        >>> [(entry.number, entry.model, entry.fixed["model.width"]) for entry in plan.entries()]
        [(0, 'gru', 8), (1, 'lstm', 8), (2, 'gru', 16), (3, 'lstm', 16)]
    """

    task: str
    models: tuple[str, ...]
    seeds: tuple[int, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    search: Mapping[str, Range | tuple[Any, ...]] = field(default_factory=dict)
    trials: int = 1
    sampler: str = "tpe"
    pruner: str = "none"
    metric: str | None = None
    direction: str | None = None
    seed: int = 0

    def grid_of(self, model: str) -> dict[str, tuple[Any, ...]]:
        """Return the grid of the settings that a model has."""
        return {name: values for name, values in self.grid.items() if applies(name, model)}

    def search_of(self, model: str) -> dict[str, Range | tuple[Any, ...]]:
        """Return what is searched of the settings that a model has."""
        return {name: space for name, space in self.search.items() if applies(name, model)}

    def settings_of(self, model: str) -> dict[str, Any]:
        """Return the common settings that a model has."""
        return {name: value for name, value in self.settings.items() if applies(name, model)}

    def count(self) -> int:
        """Return how many trials there are, without listing them."""
        return sum(math.prod(map(len, self.grid_of(model).values())) * self._draws(model) for model in self.models)

    def entries(self) -> tuple[Entry, ...]:
        """Return all trials in the order in which they start: models and combinations take turns."""
        points = {
            model: [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
            for model in self.models
            for grid in [self.grid_of(model)]
        }
        turns = [
            (draw, place, self.models.index(model))
            for model in self.models
            for place in range(len(points[model]))
            for draw in range(self._draws(model))
        ]
        chosen = [(self.models[model], points[self.models[model]][place]) for _, place, model in sorted(turns)]
        return tuple(Entry(number, model, fixed) for number, (model, fixed) in enumerate(chosen))

    def _draws(self, model: str) -> int:
        return self.trials if self.search_of(model) else 1

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON."""
        search = {name: vars(space) if isinstance(space, Range) else [*space] for name, space in self.search.items()}
        grid = {name: [*values] for name, values in self.grid.items()}
        lists = {"models": [*self.models], "seeds": [*self.seeds], "settings": dict(self.settings)}
        return {**vars(self), **lists, "grid": grid, "search": search}

    @classmethod
    def from_dict(cls, stored: Any) -> "SweepPlan":
        """Return the plan of :meth:`to_dict`, also of one that went through JSON.

        Raises:
            RunError: It is none.
        """
        try:
            search = {
                name: Range(**space) if isinstance(space, dict) else tuple(space) for name, space in stored["search"].items()
            }
            grid = {name: tuple(values) for name, values in stored["grid"].items()}
            lists = {name: tuple(stored[name]) for name in ("models", "seeds")}
            plan = cls(**{**stored, **lists, "settings": dict(stored["settings"]), "grid": grid, "search": search})
            right = plan._is_right()
        except (TypeError, KeyError, AttributeError, ValueError) as error:
            raise RunError(f"The plan of the sweep is damaged, or of another release: {error}.") from error
        if not right:
            raise RunError("The plan of the sweep is damaged, or of another release: a value is not what a plan has there.")
        return plan

    def _is_right(self) -> bool:
        """Say whether every value is of the kind that a plan has; names of settings are checked where they are used."""
        numbers = [end for space in self.search.values() if isinstance(space, Range) for end in (space.low, space.high)]
        texts = [self.metric or "", self.direction or ""]
        return (
            self.task in TASKS
            and bool(self.models and self.seeds)
            and all(model in SYSTEMS for model in self.models)
            and all(type(seed) is int and 0 <= seed < 2**64 for seed in self.seeds)
            and type(self.trials) is int
            and 1 <= self.trials <= MOST_TRIALS
            and type(self.seed) is int
            and (self.sampler in SAMPLERS and self.pruner in PRUNERS)
            and isinstance(self.settings, dict)
            and all(isinstance(text, str) for text in texts)
            and all(map(is_number, numbers))
            and all([*self.grid.values()])
            and all(space != () for space in self.search.values())
            and all(isinstance(value, str | bool | int | float | None) for values in self.grid.values() for value in values)
        )
