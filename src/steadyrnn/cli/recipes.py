"""Settings that work on each task: where training starts from when a user gives none; free of torch."""

from collections.abc import Mapping
from typing import Any

__all__ = ["RECIPES", "recipe"]

_SYNTHETIC: dict[str, Any] = {
    "train.steps": 4000,
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
    ("copy", None): {**_SYNTHETIC, "train.batch_size": 128},
    ("recall", None): {**_SYNTHETIC, "train.stop.below": 0.01},
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


def recipe(task: str, model: str | None) -> Mapping[str, Any]:
    """Return the settings a task starts from with a model; None is the task's own choice of model.

    A model's options are left out where another model than the recipe's was asked for.

    Example:
        >>> recipe("mnist", None)["model.name"], "model.name" in recipe("mnist", "resnet")
        ('spectral-mlp', False)
    """
    start = dict(RECIPES.get((task, None), {}))
    own = start.get("model.name")
    if model is not None and own is not None and model != own:
        shared = ("model.width",)
        start = {name: value for name, value in start.items() if not name.startswith("model.") or name in shared}
    if model is not None:
        start.update(RECIPES.get((task, model), {}))
    return start
