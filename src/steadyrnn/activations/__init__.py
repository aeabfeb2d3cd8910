"""Activations: value, derivative and facts in one object, read by engines, certificates and conversions alike."""

from steadyrnn.errors import ArgumentError, ArgumentTypeError, not_among

from .adaptive_tanh import AdaptiveTanh
from .base import ACTIVATION_CLASSES, Activation, activation_class, activation_from_key
from .elementwise import Absolute, Identity, LeakyReLU, ReLU, Sigmoid, Tanh
from .modrelu import ModReLU
from .real_modrelu import RealModReLU

__all__ = [
    "ACTIVATIONS",
    "ACTIVATION_CLASSES",
    "NAMED_ACTIVATIONS",
    "Absolute",
    "Activation",
    "AdaptiveTanh",
    "Identity",
    "LeakyReLU",
    "ModReLU",
    "ReLU",
    "RealModReLU",
    "Sigmoid",
    "Tanh",
    "activation_class",
    "activation_from_key",
    "as_activation",
]

ACTIVATIONS: dict[str, type[Activation]] = {
    cls.name: cls for cls in (Tanh, ReLU, LeakyReLU, Absolute, Identity, Sigmoid, ModReLU, RealModReLU)
}
"""Those with a value of their own, by name: what an engine is given."""
NAMED_ACTIVATIONS: dict[str, type[Activation]] = {**ACTIVATIONS, AdaptiveTanh.name: AdaptiveTanh}
"""Those that a layer takes by name."""


def as_activation(nonlinearity: str | Activation, name: str = "nonlinearity") -> Activation:
    """Return the activation of this name, or the object itself; ``name`` is the argument's, for the error.

    Example:
        >>> as_activation("relu")
        ReLU()
    """
    if isinstance(nonlinearity, Activation):
        if activation_class(nonlinearity.name) is not type(nonlinearity):
            raise ArgumentError(
                f"`{name}` is a {type(nonlinearity).__qualname__}, but the name {nonlinearity.name!r} belongs to "
                "another class. Give every activation a `name` of its own."
            )
        return nonlinearity
    if not isinstance(nonlinearity, str):
        raise ArgumentTypeError(f"`{name}` must be a name or an `Activation`, but is of type {type(nonlinearity).__name__}.")
    if nonlinearity not in NAMED_ACTIVATIONS:
        raise ArgumentError(not_among(name, nonlinearity, NAMED_ACTIVATIONS))
    return NAMED_ACTIVATIONS[nonlinearity]()
