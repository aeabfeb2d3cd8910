"""What the values of a system's options must be, where the option exists; free of torch."""

import math
from collections.abc import Mapping
from typing import Any

from steadyrnn.errors import ArgumentError, not_among

from .gates import read_gates
from .registry import Blueprint

__all__ = ["OF_NONLINEARITY", "check_values"]

OF_NONLINEARITY = {"slope": "leaky_relu", "saturation_basis": "adaptive_tanh", "saturation_start": "adaptive_tanh"}
"""Options that one nonlinearity has, with its name."""
_BASES, _SCALES = ("full", "diagonal"), (1e-6, 1e6)
"""What `AdaptiveTanh` takes; its own file needs torch."""

_COUNTS = ("width", "layers", "embedding", "depth", "blocks", "context")
_PROBABILITIES = ("dropout", "dropout_input", "dropout_layers", "dropout_output", "dropout_logits")
_SIZES = ("init_std", "output_std", "recurrent_std", "init_uniform")
_NUMBERS = ("input_scale", "gate_bias", "forget_bias")


def check_values(values: Mapping[str, Any], blueprint: Blueprint | None) -> None:
    """Refuse values that cannot work, by the option's name.

    Args:
        values: Every option that the system has; None where it is left open.
        blueprint: Of the system, or of the one that it wraps.

    Raises:
        ArgumentError: A value is out of its range, or two do not go together.

    Example:
        >>> check_values({"width": 0}, None)
        Traceback (most recent call last):
            ...
        steadyrnn.errors.ArgumentError: `width` must be greater than zero, but is 0.
    """
    for name in _COUNTS:
        if values.get(name) is not None and values[name] < 1:
            raise ArgumentError(f"`{name}` must be greater than zero, but is {values[name]}.")
    for name in _PROBABILITIES:
        if values.get(name) is not None and not 0 <= values[name] <= 1:
            raise ArgumentError(f"`{name}` must be a number from 0 to 1, but is {values[name]}.")
    if values.get("dropout_layers") and values["layers"] == 1:
        raise ArgumentError(f"`dropout_layers` acts between layers, but is {values['dropout_layers']} and `layers` is 1.")
    for name in _SIZES:
        if values.get(name) is not None and not 0 <= values[name] < math.inf:
            raise ArgumentError(f"`{name}` must be a finite number that is not negative, but is {values[name]}.")
    for name in _NUMBERS:
        if values.get(name) is not None and not math.isfinite(values[name]):
            raise ArgumentError(f"`{name}` must be a finite number, but is {values[name]}.")
    if blueprint is not None and values.get("gates") is not None:
        read_gates(values["gates"], blueprint.gates)
    if blueprint is not None and values.get("init") is not None and values["init"] not in blueprint.starts:
        raise ArgumentError(not_among("init", values["init"], blueprint.starts))
    if values.get("saturation_basis") is not None and values["saturation_basis"] not in _BASES:
        raise ArgumentError(not_among("saturation_basis", values["saturation_basis"], _BASES))
    low, high = _SCALES
    if values.get("saturation_start") is not None and not low <= values["saturation_start"] <= high:
        raise ArgumentError(f"`saturation_start` must be from {low:g} to {high:g}, but is {values['saturation_start']}.")
    _check_starts(values)


def _check_starts(values: Mapping[str, Any]) -> None:
    """Refuse options of the first weights that do not go together."""
    if values.get("recurrent_std") is not None and values.get("init") != "gaussian":
        raise ArgumentError(f"`recurrent_std` belongs to `init` gaussian, but that is {values.get('init')!r}.")
    for name in ("init_std", "output_std"):
        if values.get("init_uniform") is not None and values.get(name) is not None:
            raise ArgumentError(f"`init_uniform` and `{name}` both draw the readout, but both are given. Leave one out.")
