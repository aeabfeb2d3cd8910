"""Parameters of estimators, checked when `fit` is called, and as settings of the program."""

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

from sklearn.utils import check_random_state

from steadyrnn.checks import check_positive_int
from steadyrnn.errors import ArgumentError, ArgumentTypeError, not_among
from steadyrnn.jobs.open_settings import AUTO, WANTS

__all__ = ["check_parameters", "dotted_settings", "draw_seed", "positive_int"]

_LARGEST_SEED = 2**31 - 1
_COUNTS = ("width", "epochs", "batch_size", "patience", "patch", "threads")
_OPTIONAL = ("width", "patience", "patch", "threads")


def check_parameters(given: Mapping[str, Any]) -> None:
    """Refuse parameters that are out of range; those of the model and of the data are checked where they are used.

    Args:
        given: What ``get_params`` of an estimator returns.

    Raises:
        ArgumentError: The message names the parameter.
        ArgumentTypeError: One has the wrong type.
    """
    for name in _COUNTS:
        if not (given[name] is None and name in _OPTIONAL):
            positive_int(name, given[name])
    _check_number("validation_fraction", given["validation_fraction"], 0.0, below=1.0)
    if given["learning_rate"] is not None:
        _check_number("learning_rate", given["learning_rate"], 0.0, below=math.inf)
    for name in ("model", "missing", "scale", "device"):
        if not isinstance(given[name], str):
            raise ArgumentTypeError(f"`{name}` must be text, but is of type {type(given[name]).__name__}.")
    if given["want"] is not None and given["want"] not in WANTS:
        raise ArgumentError(not_among("want", given["want"], WANTS))
    if given["want"] is not None and given["model"] != AUTO:
        raise ArgumentError(f"`want` chooses a model, but `model` is {given['model']!r}. Give one of them.")
    if given["model_options"] is not None and not isinstance(given["model_options"], Mapping):
        raise ArgumentTypeError(
            f"`model_options` must be a mapping from names to values, but is of type {type(given['model_options']).__name__}."
        )


def positive_int(name: str, value: Any) -> int:
    """Return an integer above zero, of Python or of numpy.

    Example:
        >>> positive_int("width", 8)
        8
    """
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    return check_positive_int(name, int(value) if whole else value)


def dotted_settings(given: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return the settings of the program that some parameters stand for; what is open is left out."""
    chosen = {
        "model.name": given["model"],
        "model.width": _whole(given["width"]),
        "train.epochs": _whole(given["epochs"]),
        "train.batch_size": _whole(given["batch_size"]),
        "train.stop.patience": _whole(given["patience"]),
        "train.threads": _whole(given["threads"]),
        "train.optimizer.lr": None if given["learning_rate"] is None else float(given["learning_rate"]),
    }
    settings: dict[str, Any] = {name: value for name, value in chosen.items() if value is not None}
    settings |= {"train.seed": seed, "train.device": given["device"], "train.stop.patience": _whole(given["patience"])}
    return settings | {f"model.{name}": value for name, value in (given["model_options"] or {}).items()}


def draw_seed(random_state: Any) -> int:
    """Return a seed, as scikit-learn understands ``random_state``.

    Example:
        >>> draw_seed(0) == draw_seed(0)
        True
    """
    return int(check_random_state(random_state).randint(_LARGEST_SEED))


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


def _check_number(name: str, value: Any, low: float, below: float) -> None:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ArgumentTypeError(f"`{name}` must be a number, but is of type {type(value).__name__}.")
    if not low <= float(value) < below:
        raise ArgumentError(f"`{name}` must be a finite number, {low:g} or above{_and_below(below)}, but is {value}.")


def _and_below(below: float) -> str:
    return "" if math.isinf(below) else f" and below {below:g}"
