"""A file that says what a sweep is to try, read and checked as far as a file can be; free of torch."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from steadyrnn.errors import ArgumentError, suggestion
from steadyrnn.models.registry import SYSTEMS
from steadyrnn.models.settings import ModelSettings
from steadyrnn.tasks.registry import TASKS

from ..open_settings import TASK
from ..recipes import recipe
from ..seeds_file import MOST_SEEDS, parse_seeds
from ..settings_file import parse_mapping, read_file
from .plan import MOST_TRIALS, PRUNERS, SAMPLERS, SweepPlan
from .setting_types import applies, read_value, setting_types
from .space import enumerate_space, read_choices, read_space

__all__ = ["SweepFile", "make_plan", "read_sweep_file", "task_of_file"]

_KEYS = (
    *("task", "data", "models", "seeds", "settings", "grid", "search", "trials", "sampler", "pruner", "metric", "direction"),
    "seed",
)
_DATA = "task.data"
_DIRECTIONS = {"minimize": "", "maximize": ""}
_MOST_SETTINGS = 50
_TRIALS = 20
"""Settings drawn unless the file says how many."""


class SweepFile:
    """The file of a sweep as it was read.

    Args:
        path: Where it was.
        data: Its bytes.
    """

    def __init__(self, path: Path, data: bytes) -> None:
        self.path, self.data = path, data
        self.stored = parse_mapping(data, path, "`task` or `data`, and what to try", dotted=True)

    @property
    def sha256(self) -> str:
        """The checksum of its bytes."""
        return hashlib.sha256(self.data).hexdigest()


def read_sweep_file(path: Path) -> SweepFile:
    """Return the file of a sweep.

    Raises:
        ArgumentError: There is none, or it is too large, or neither YAML nor JSON.
    """
    data = read_file(path)
    if data is None:
        raise ArgumentError(f"There is no file {str(path)!r}.")
    return SweepFile(path, data)


def make_plan(file: SweepFile, given: Mapping[str, Any] | None = None, **replaced: Any) -> SweepPlan:
    """Return the plan that a file asks for.

    Args:
        file: The file.
        given: Dotted settings that take the place of those in the file.
        replaced: Values in place of top-level keys of the file, such as ``trials``; None leaves that of the file.

    Raises:
        ArgumentError: The file asks for what cannot be; the message names file and key.

    Example:
        >>> text = b'{"task": "addition", "seeds": "0..2", "search": {"train.optimizer.lr": {"low": 1e-4, "high": 1e-2}}}'
        >>> plan = make_plan(SweepFile(Path("sweep.yaml"), text), {"train.steps": 5}, trials=7)
        >>> plan.seeds, plan.count(), plan.search["train.optimizer.lr"].low
        ((0, 1, 2), 7, 0.0001)
    """
    return _Reader(file, given or {}, {key: value for key, value in replaced.items() if value is not None}).plan()


def task_of_file(file: SweepFile) -> str:
    """Return the task's name of a file; refuse one that has none."""
    return _Reader(file, {}, {}).task


class _Reader:
    """Reads one key after another."""

    def __init__(self, file: SweepFile, given: Mapping[str, Any], replaced: Mapping[str, Any]) -> None:
        self.path, self.given, self.stored = file.path, given, {**file.stored, **replaced}
        for key in self.stored:
            if key not in _KEYS:
                raise self.refusal(str(key)[:60], f"is not a key of a sweep. {suggestion(key, _KEYS)}")
        self.task = self.read_task()
        self.types = setting_types(self.task)

    def refusal(self, key: str, text: str) -> ArgumentError:
        """Return the error for a key of the file."""
        return ArgumentError(f"{self.path}: `{key}` {text}")

    def plan(self) -> SweepPlan:
        """Return the plan."""
        settings = self.read_settings()
        models = self.read_models(settings)
        grid = {
            name: read_choices(self.refusal, f"grid.{name}", values, self.types[name])
            for name, values in self.named("grid", lambda value: not isinstance(value, Mapping)).items()
        }
        search = {
            name: read_space(self.refusal, f"search.{name}", space, self.types[name])
            for name, space in self.named("search", _is_space).items()
        }
        self.check_once(settings, grid, search)
        self.check_models({"settings": settings, "grid": grid, "search": search}, models)
        sampler = self.read_choice("sampler", SAMPLERS, "tpe")
        if sampler == "grid":
            for name, space in search.items():
                grid[name] = enumerate_space(self.refusal, f"search.{name}", space)
            search = {}
        if search and sampler != "grid":
            trials = self.read_integer("trials", _TRIALS, 1, MOST_TRIALS)
        elif "trials" in self.stored:
            raise self.refusal("trials", "belongs to `search` with another sampler than `grid`: here nothing is drawn.")
        else:
            trials = 1
        plan = SweepPlan(
            self.task, models, self.read_seeds(), settings, grid, search, trials, sampler,
            self.read_choice("pruner", PRUNERS, "none"), *self.read_metric(), self.read_integer("seed", 0, 0, 2**32 - 1),
        )  # fmt: skip
        if plan.count() > MOST_TRIALS:
            raise ArgumentError(
                f"{self.path} asks for {plan.count():,} trials, but a sweep has at most {MOST_TRIALS:,}. Try fewer values, or "
                "draw some of the combinations: `search` with `sampler: random`."
            )
        return replace(plan, settings={**settings, **self.read_data()})

    def read_task(self) -> str:
        """Return the task's name."""
        task, data = self.stored.get("task"), self.stored.get("data")
        if (task is None) == (data is None):
            raise ArgumentError(f"{self.path} must have either `task`, a task's name, or `data`, a file of yours.")
        if data is not None:
            if not isinstance(data, str) or not data:
                raise self.refusal("data", f"must be the path of a file or folder, but is {_brief(data)}.")
            return TASK
        if not isinstance(task, str) or task not in TASKS:
            raise self.refusal("task", f"must be a task's name, but is {_brief(task)}. {suggestion(task, TASKS)}")
        return task

    def read_data(self) -> dict[str, Any]:
        """Return the setting that names the user's file, unless the command line names another one."""
        return {} if self.stored.get("data") is None or _DATA in self.given else {_DATA: self.stored["data"]}

    def read_settings(self) -> dict[str, Any]:
        """Return the common settings, with those of the command line in their place."""
        own = dict(self.named("settings", lambda value: not isinstance(value, Mapping), also=("model.name",)))
        for name in self.given:
            if name not in (*self.types, "model.name"):
                raise ArgumentError(f"There is no setting `{name}` to sweep with. {suggestion(name, self.types)}")
        merged = {**own, **self.given}
        return {name: read_value(value, self.types.get(name, str)) for name, value in merged.items()}

    def read_models(self, settings: dict[str, Any]) -> tuple[str, ...]:
        """Return the models: those listed, or that of the settings, or that of the task's recipe."""
        one, several = settings.pop("model.name", None), self.stored.get("models")
        if one is not None and several is not None:
            raise self.refusal("models", "and the setting `model.name` cannot both be given.")
        if several is None:
            several = [one or recipe(self.task).get("model.name") or ModelSettings().name]
        names = several.split(",") if isinstance(several, str) else several
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise self.refusal("models", f"must be a list of names of models, but is {_brief(several)}.")
        found = tuple(name.strip() for name in names)
        for name in found:
            if name not in SYSTEMS:
                raise self.refusal("models", f"has {name[:60]!r}, which is not a model. {suggestion(name, SYSTEMS)}")
        if len({*found}) < len(found):
            raise self.refusal("models", "must name each model once.")
        return found

    def read_seeds(self) -> tuple[int, ...]:
        """Return the seeds of weights."""
        value = self.stored.get("seeds", [0])
        seeds = parse_seeds(value, MOST_SEEDS) if isinstance(value, str) else value
        right = isinstance(seeds, list) and 1 <= len(seeds) <= MOST_SEEDS and all(type(seed) is int for seed in seeds)
        if not right or len({*seeds}) < len(seeds) or not all(0 <= seed < 2**64 for seed in seeds):
            raise self.refusal(
                "seeds", f"must be different numbers, as 0..4 or [0, 2, 5], at most {MOST_SEEDS}, but is {_brief(value)}."
            )
        return tuple(seeds)

    def read_metric(self) -> tuple[str | None, str | None]:
        """Return the metric and its direction."""
        metric = self.stored.get("metric")
        if metric is not None and (not isinstance(metric, str) or not metric):
            raise self.refusal("metric", f"must be the name of a score, but is {_brief(metric)}.")
        if metric is not None and metric.lower().startswith("test"):
            raise self.refusal("metric", "must be a score on the validation part: the test part chooses nothing.")
        direction = self.stored.get("direction")
        return metric, None if direction is None else self.read_choice("direction", _DIRECTIONS, "")

    def read_choice(self, key: str, known: Mapping[str, str], default: str) -> str:
        """Return one of some names."""
        value = self.stored.get(key, default)
        if not isinstance(value, str) or value not in known:
            raise self.refusal(key, f"must be one of {', '.join(known)}, but is {_brief(value)}. {suggestion(value, known)}")
        return value

    def read_integer(self, key: str, default: int, least: int, most: int) -> int:
        """Return a whole number."""
        value = self.stored.get(key, default)
        if type(value) is not int or not least <= value <= most:
            raise self.refusal(key, f"must be a whole number from {least:,} to {most:,}, but is {_brief(value)}.")
        return value

    def named(self, key: str, is_leaf: Callable[[Any], bool], also: Sequence[str] = ()) -> dict[str, Any]:
        """Return a mapping of the file by dotted names, each of which is a setting."""
        stored = self.stored.get(key)
        if stored is None and key in self.stored:
            raise self.refusal(key, "must be a mapping from settings to values, but is empty.")
        if not isinstance(stored, Mapping | None):
            raise self.refusal(key, f"must be a mapping from settings to values, but is {_brief(stored)}.")
        found: dict[str, Any] = {}
        self.flatten(key, "", stored or {}, is_leaf, found)
        for name in found:
            if name not in self.types and name not in also:
                hint = {"model.name": "List models under `models`.", "train.seed": "List seeds under `seeds`."}.get(name)
                raise self.refusal(f"{key}.{name[:60]}", f"is not a setting. {hint or suggestion(name, self.types)}")
        if len(found) > _MOST_SETTINGS:
            raise self.refusal(key, f"must have at most {_MOST_SETTINGS} settings, but has {len(found):,}.")
        return found

    def flatten(
        self, key: str, prefix: str, stored: Mapping[str, Any], is_leaf: Callable[[Any], bool], found: dict[str, Any]
    ) -> None:
        """Collect the values of nested or dotted names."""
        for name, value in stored.items():
            path = f"{prefix}{name}"
            if isinstance(value, Mapping) and not is_leaf(value) and path not in self.types:
                self.flatten(key, f"{path}.", value, is_leaf, found)
            elif path in found:
                raise self.refusal(f"{key}.{path}", "is there twice.")
            else:
                found[path] = value

    def check_once(self, settings: Mapping[str, Any], grid: Mapping[str, Any], search: Mapping[str, Any]) -> None:
        """Refuse a setting that has two values at once."""
        for key, part in (("grid", grid), ("search", search)):
            if self.task == TASK and _DATA in part:
                raise self.refusal(f"{key}.{_DATA}", "cannot be varied: scores on different data cannot be compared.")
        if _DATA in settings and _DATA not in self.given and self.stored.get("data") is not None:
            raise self.refusal(f"settings.{_DATA}", "is named by `data`, too. A setting has one place.")
        for name in {**grid, **search}:
            places = [key for key, part in (("grid", grid), ("search", search), ("settings", settings)) if name in part]
            if name in self.given:
                raise self.refusal(f"{places[0]}.{name}", "is varied by the sweep, and cannot be given on the command line.")
            if len(places) > 1:
                raise self.refusal(f"{places[0]}.{name}", f"is under `{places[1]}`, too. A setting has one place.")

    def check_models(self, parts: Mapping[str, Mapping[str, Any]], models: Sequence[str]) -> None:
        """Refuse an option that none of the models has."""
        for key, part in parts.items():
            for name in part:
                if not any(applies(name, model) for model in models):
                    raise self.refusal(f"{key}.{name}", f"is an option that none of the models has: {', '.join(models)}.")


def _is_space(value: Any) -> bool:
    return not isinstance(value, Mapping) or not {"low", "high", "log", "step"}.isdisjoint(value)


def _brief(value: Any) -> str:
    """Return a value for a message; never a long one."""
    if isinstance(value, Mapping | list):
        return f"a {'mapping' if isinstance(value, Mapping) else 'list'} of {len(value)}"
    return "empty" if value is None else repr(value)[:60]
