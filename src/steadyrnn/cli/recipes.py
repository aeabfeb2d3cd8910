"""Settings that work on each task: where training starts from when a user gives none; free of torch."""

from collections.abc import Mapping
from typing import Any

from steadyrnn.models.settings import ModelSettings

__all__ = ["RECIPES", "recipe"]

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

RECIPES: dict[tuple[str, str | None], dict[str, Any]] = {
    ("addition", None): _SYNTHETIC,
    ("copy", None): _SYNTHETIC,
    # a linear network of all reflectors remembers ten symbols exactly; fewer, or a kink, take far longer
    ("copy", "spectral"): {
        **{"model.nonlinearity": "identity", "model.reflectors": 128, "model.radius": 0.01, "train.stop.below": 1e-3},
        **{"train.optimizer.lr": 3e-3, "train.optimizer.transition_lr": 3e-4},
    },
    ("recall", None): {**_SYNTHETIC, "train.steps": 6000, "train.batch_size": 100, "train.stop.below": 0.01},
    # rectified, so that later numbers can be shut out; the learned state tells the first step from the others
    ("recall", "spectral"): {
        **{"model.nonlinearity": "relu", "model.learn_initial_state": True},
        **{"train.optimizer.lr": 1e-3, "train.optimizer.transition_lr": 1e-4},
    },
    ("largest", None): {**_SYNTHETIC, "train.steps": 10000},
    ("contractive", None): {
        "train.epochs": 30,
        "train.batch_size": 10,
        "train.optimizer.lr": 1e-2,
        "model.name": "contractive",
    },
    ("stable-system", None): {
        **{"train.steps": 200, "train.batch_size": 1, "train.validate_every": 50, "train.optimizer.name": "sgd"},
        **{"train.optimizer.lr": 0.01, "train.schedule.name": "inverse", "model.name": "lds", "model.bound": 0.75},
        **{"model.width": 32, "model.skip": True},
    },
    ("pixel-mnist", None): _IMAGES,
    ("permuted-mnist", None): _IMAGES,
    ("mnist-rows", None): {**_IMAGES, "train.epochs": 10},
    ("mnist", None): {**_IMAGES, "train.epochs": 10, "train.optimizer.lr": 1e-3, "model.name": "spectral-mlp"},
    ("ptb", None): _TEXT,
    ("wikitext-2", None): _TEXT,
    ("ucr", None): {
        **{"train.epochs": 100, "train.batch_size": 64, "train.optimizer.lr": 3e-3, "train.stop.patience": 20},
        **{"model.width": 32, "model.learn_initial_state": True},
    },
    ("bibtex", None): _LABELS,
    ("mediamill", None): _LABELS,
}
"""Dotted settings of each task, for any model (None) or one by name; a model's come on top of any's."""


def recipe(task: str, model: str | None, width: int | None = None) -> Mapping[str, Any]:
    """Return the settings a task starts from with a model; None is the task's own choice of model, or the default one.

    A model's options are left out where another model than the recipe's was asked for. Of a model of another width, all
    reflectors are as many as its units.

    Example:
        >>> recipe("mnist", None)["model.name"], "model.name" in recipe("mnist", "resnet")
        ('spectral-mlp', False)
        >>> recipe("copy", None, width=32)["model.reflectors"]
        32
    """
    start = dict(RECIPES.get((task, None), {}))
    own = start.get("model.name")
    if model is not None and own is not None and model != own:
        shared = ("model.width",)
        start = {name: value for name, value in start.items() if not name.startswith("model.") or name in shared}
    start.update(RECIPES.get((task, model or own or ModelSettings().name), {}))
    if width is not None and "model.reflectors" in start and start["model.reflectors"] > width > 0:
        start["model.reflectors"] = width
    return start
