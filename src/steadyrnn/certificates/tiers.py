"""Tiers of a certificate: a contraction with the size of states in its norm, and the contract of what looks for one."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from steadyrnn.bounds.memory import truncation_error
from steadyrnn.bounds.norms import Contraction, Norm, above

if TYPE_CHECKING:
    from .layer import Weights

__all__ = ["LeftOut", "Search", "Tier"]


@dataclass(frozen=True)
class Tier:
    """A contraction with what goes with it.

    Args:
        name: The tier's.
        contraction: Rate, norm, theorem.
        radius: Bound on N of every state reached.
        input_gain: Bound on N of what a step changes by for an input moved by 1 in the 2-norm.
    """

    name: str
    contraction: Contraction
    radius: float
    input_gain: float

    def truncation_error(self, steps: int) -> float:
        """Return a bound on the 2-norm of the error after ``steps`` steps from a zero state.

        Note [mathematics], section 4.1.
        """
        if not math.isfinite(self.radius) or not math.isfinite(self.contraction.rate):
            return math.inf
        return above(truncation_error(self.contraction.rate, self.radius, steps) / self.contraction.norm.lower)


@dataclass(frozen=True)
class LeftOut:
    """A tier that was not tried.

    Args:
        tier: Its name.
        reason: Why it was not.
        full: Whether ``effort="full"`` tries it.
    """

    tier: str
    reason: str
    full: bool = False

    def __str__(self) -> str:
        """Return a sentence."""
        return f"not tried: {self.tier}, since {self.reason}" + ("; effort='full' tries it" if self.full else "")


class Search(ABC):
    """One tier: the search for a norm of one kind in which a layer contracts."""

    name: ClassVar[str]

    @abstractmethod
    def find(self, weights: "Weights", known: Sequence[Contraction], effort: str) -> Contraction | LeftOut | None:
        """Return the best contraction in a norm of this kind, why it was not looked for, or None where it adds nothing.

        Args:
            weights: The layer's.
            known: What the cheaper tiers have found.
            effort: ``"auto"``, ``"full"`` or ``"fast"``, as :func:`~steadyrnn.certificates.certify.certify` has it.
        """

    @abstractmethod
    def renew(self, weights: "Weights", norm: Norm) -> Contraction | None:
        """Return the contraction of other weights in a norm found before; None for a norm of another kind."""
