"""Every task by name, one record per task; free of torch, which is imported when a task is made."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from steadyrnn.errors import ArgumentError, not_among

from .series.settings import SeriesSettings
from .settings import (
    AdditionSettings,
    BibtexSettings,
    ContractiveSettings,
    CopySettings,
    LargestSettings,
    MediamillSettings,
    MnistRowsSettings,
    MnistSettings,
    PermutedMnistSettings,
    PixelMnistSettings,
    PtbSettings,
    RecallSettings,
    StableSystemSettings,
    TaskSettings,
    UcrSettings,
    WikiText2Settings,
)

if TYPE_CHECKING:
    from .base import Task

__all__ = ["FORMER_SETTINGS", "TASKS", "LongRecipe", "TaskRecord", "make_task"]


@dataclass(frozen=True)
class LongRecipe:
    """What training on long sequences starts from: a curriculum, in place of the recipe of short ones.

    Args:
        setting: The setting of the task that is the length.
        above: The longest length of the other recipe.
        recipe: Dotted settings, with any model.
        model_recipes: More of them for a model by name.
    """

    setting: str
    above: int
    recipe: Mapping[str, Any]
    model_recipes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskRecord:
    """All that is said about a task in one place: help, recipes, completion and tests read it.

    Args:
        name: As the command line and configurations have it.
        settings: Its settings; the first line of their docstring describes the task.
        path: Where its class is, ``package.module:Class``; it is called with the settings.
        recipe: Dotted settings that training starts from, with any model: ``{"train.steps": 3000}``.
        model_recipes: More of them for a model by name, on top of ``recipe``.
        long: What replaces both where sequences are long; None where nothing does.
        reads: ``"time"`` where its inputs are sequences, ``"row"`` where they are vectors.
        data: The data set it reads, a name of ``DATA_SETS``, or ``"own"`` for a file of the user's; None where examples are
            drawn.
    """

    name: str
    settings: type[TaskSettings]
    path: str
    recipe: Mapping[str, Any]
    model_recipes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    long: LongRecipe | None = None
    reads: str = "time"
    data: str | None = None

    @property
    def description(self) -> str:
        """What the task is, in a line."""
        return (self.settings.__doc__ or "").strip().splitlines()[0]

    def make(self, settings: TaskSettings) -> "Task":
        """Return the task of some settings."""
        build: Callable[[TaskSettings], Task] = resolve_name(self.path)
        return build(settings)


_SYNTHETIC: dict[str, Any] = {
    "train.steps": 3000,
    "train.batch_size": 64,
    "train.validate_every": 200,
    "train.log_every": 50,
    "train.evaluation_batch_size": 500,
    "train.probe.every": 500,
    "train.optimizer.lr": 1e-3,
    "train.schedule.name": "cosine",
}
_IMAGES: dict[str, Any] = {
    "train.epochs": 25,
    "train.batch_size": 128,
    "train.evaluation_batch_size": 500,
    "train.probe.every": 1000,
    "train.optimizer.lr": 3e-3,
    "train.schedule.name": "cosine",
}
_LONG_SUMS = LongRecipe(
    "length", 100,
    {
        **{**_SYNTHETIC, "train.steps": 10000, "train.batch_size": 50, "train.optimizer.lr": 5e-3},
        **{"task.curriculum": "auto", "task.shortest": 0.5},
    },
    {"spectral": {"model.width": 64, "model.nonlinearity": "relu", "model.radius": 0.01}},
)  # fmt: skip
_TEXT: dict[str, Any] = {
    "train.epochs": 20,
    "train.batch_size": 20,
    "train.probe.every": 2000,
    "train.log_every": 200,
    "train.optimizer.lr": 2e-3,
    "train.schedule.name": "plateau",
    "train.schedule.factor": 0.25,
    "train.schedule.patience": 1,
    "train.clip.norm": 0.25,
}
_LABELS: dict[str, Any] = {"train.epochs": 30, "train.batch_size": 128, "model.name": "spectral-mlp", "model.depth": 8}
_COPY_SPECTRAL: dict[str, Any] = {  # a linear network with all reflectors remembers ten symbols exactly; others learn slower
    **{"model.nonlinearity": "identity", "model.reflectors": 128, "model.radius": 0.01, "train.stop.below": 1e-3},
    **{"train.optimizer.lr": 3e-3, "train.optimizer.transition_lr": 3e-4},
}
_RECALL_SPECTRAL: dict[str, Any] = {  # ReLU can shut later numbers out; the learned state tells the first step from the others
    **{"model.nonlinearity": "relu", "model.learn_initial_state": True},
    **{"train.optimizer.lr": 1e-3, "train.optimizer.transition_lr": 1e-4},
}
_RECALL: dict[str, Any] = {**_SYNTHETIC, "train.steps": 6000, "train.batch_size": 100, "train.stop.below": 0.01}
_CONTRACTIVE: dict[str, Any] = {
    **{"train.epochs": 30, "train.batch_size": 10, "train.optimizer.lr": 1e-2, "model.name": "contractive"},
}
_STABLE_SYSTEM: dict[str, Any] = {
    **{"train.steps": 200, "train.batch_size": 1, "train.validate_every": 50, "train.optimizer.name": "sgd"},
    **{"train.optimizer.lr": 0.01, "train.schedule.name": "inverse", "model.name": "lds", "model.bound": 0.75},
    **{"model.width": 32, "model.skip": True},
}
_FLAT_IMAGES: dict[str, Any] = {
    **{**_IMAGES, "train.epochs": 10, "train.optimizer.lr": 1e-3, "model.name": "spectral-mlp"},
}
_SERIES: dict[str, Any] = {
    **{"train.epochs": 100, "train.batch_size": 64, "train.optimizer.lr": 3e-3, "train.stop.patience": 20},
    **{"model.width": 32, "model.learn_initial_state": True},
}
_OWN_SERIES: dict[str, Any] = {
    **{"train.epochs": 200, "train.batch_size": 32, "train.evaluation_batch_size": 256, "train.stop.patience": 30},
    "train.schedule.name": "cosine",
}

_HERE = "steadyrnn.tasks"
_RECORDS = (
    TaskRecord("addition", AdditionSettings, f"{_HERE}.addition:Addition", _SYNTHETIC, long=_LONG_SUMS),
    TaskRecord("copy", CopySettings, f"{_HERE}.copying:Copying", _SYNTHETIC, {"spectral": _COPY_SPECTRAL}),
    TaskRecord("recall", RecallSettings, f"{_HERE}.recall:Recall", _RECALL, {"spectral": _RECALL_SPECTRAL}),
    TaskRecord("largest", LargestSettings, f"{_HERE}.largest:Largest", {**_SYNTHETIC, "train.steps": 10000}),
    TaskRecord("contractive", ContractiveSettings, f"{_HERE}.contractive:Contractive", _CONTRACTIVE),
    TaskRecord("stable-system", StableSystemSettings, f"{_HERE}.stable_system:StableSystem", _STABLE_SYSTEM),
    TaskRecord("mnist", MnistSettings, f"{_HERE}.mnist:Mnist", _FLAT_IMAGES, reads="row", data="mnist"),
    TaskRecord("mnist-rows", MnistRowsSettings, f"{_HERE}.mnist:Mnist", {**_IMAGES, "train.epochs": 10}, data="mnist"),
    TaskRecord("pixel-mnist", PixelMnistSettings, f"{_HERE}.mnist:Mnist", _IMAGES, data="mnist"),
    TaskRecord("permuted-mnist", PermutedMnistSettings, f"{_HERE}.mnist:Mnist", _IMAGES, data="mnist"),
    TaskRecord("ptb", PtbSettings, f"{_HERE}.text:Language", _TEXT, data="ptb"),
    TaskRecord("wikitext-2", WikiText2Settings, f"{_HERE}.text:Language", _TEXT, data="wikitext-2"),
    TaskRecord("ucr", UcrSettings, f"{_HERE}.ucr:Ucr", _SERIES, data="ucr"),
    TaskRecord("series", SeriesSettings, f"{_HERE}.series.task:make_series_task", _OWN_SERIES, data="own"),
    TaskRecord("bibtex", BibtexSettings, f"{_HERE}.multilabel:MultiLabel", _LABELS, reads="row", data="bibtex"),
    TaskRecord("mediamill", MediamillSettings, f"{_HERE}.multilabel:MultiLabel", _LABELS, reads="row", data="mediamill"),
)

TASKS: dict[str, TaskRecord] = {record.name: record for record in _RECORDS}
"""Every task by name. A new one is its file, its settings and one record here."""

FORMER_SETTINGS: dict[str, dict[str, Any]] = {"addition": {"curriculum": "none"}}
"""Settings that recipes of an earlier release did not have: a stored configuration without them was made with these."""


def make_task(name: str, **settings: Any) -> "Task":
    """Return a task by its name.

    Args:
        name: A key of :data:`TASKS`.
        settings: Fields of its settings class; the others have defaults.

    Example:
        >>> make_task("addition", length=50).train_batch(0, 8).input.shape
        torch.Size([50, 8, 2])
    """
    if name not in TASKS:
        raise ArgumentError(not_among("name", name, TASKS))
    record = TASKS[name]
    known = [one.name for one in fields(record.settings)]
    unknown = [key for key in settings if key not in known]
    if unknown:
        raise ArgumentError(f"The task {name!r} has no setting `{unknown[0]}`; it has {', '.join(known)}.")
    return record.make(record.settings(**settings))
