"""Constraints by name, and what a user may write where one is wanted."""

import copy
from collections.abc import Callable

from steadyrnn.errors import ArgumentError, ArgumentTypeError, not_among

from .ball import SpectralBall
from .base import Constraint
from .cayley import CayleyOrthogonal
from .cayley_spectral import CayleySpectral
from .exponential import ExpOrthogonal
from .free import Free
from .householder import HouseholderOrthogonal
from .polar import PolarOrthogonal
from .spectral import Spectral
from .stable_lstm import StableLSTM
from .unitary import FullUnitary, RestrictedUnitary

__all__ = ["CONSTRAINTS", "JOINT", "as_constraint"]

CONSTRAINTS: dict[str, Callable[[], Constraint]] = {
    "free": Free,
    "irnn": lambda: Free(init="identity"),
    "ornn": HouseholderOrthogonal,
    "spectral": Spectral,
    "exp": ExpOrthogonal,
    "exp-lie": lambda: ExpOrthogonal(gradient="lie"),
    "exp-printed": lambda: ExpOrthogonal(gradient="printed"),
    "cayley": CayleyOrthogonal,
    "factorized": CayleySpectral,
    "unitary": RestrictedUnitary,
    "unitary-full": FullUnitary,
    "ball": SpectralBall,
    "polar": PolarOrthogonal,
}
"""How to make the constraint of each name; the contract tests run over all of them."""

JOINT: dict[str, Callable[[], StableLSTM]] = {"stable-lstm": StableLSTM}
"""Constraints on all weights of a layer together."""


def as_constraint(name: str, constraint: str | Constraint) -> Constraint:
    """Return the constraint of this name, or a copy of the object; ``name`` is the argument's, for the error.

    Example:
        >>> as_constraint("weight", "irnn")
        Free(init='identity')
    """
    if isinstance(constraint, Constraint):
        return copy.deepcopy(constraint)
    if isinstance(constraint, StableLSTM) or (isinstance(constraint, str) and constraint in JOINT):
        raise ArgumentError(
            f"`{name}` is a constraint on one matrix, but StableLSTM constrains all weights of an LSTM layer together. "
            "Pass it to the layer: `sr.LSTM(..., transition='stable-lstm')`."
        )
    if not isinstance(constraint, str):
        raise ArgumentTypeError(
            f"`{name}` must be a constraint or the name of one, but is of type {type(constraint).__name__}."
        )
    if constraint not in CONSTRAINTS:
        raise ArgumentError(not_among(name, constraint, CONSTRAINTS))
    return CONSTRAINTS[constraint]()
