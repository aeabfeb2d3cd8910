"""One tier of a certificate: a contraction, and how large states are in its norm."""

import math
from dataclasses import dataclass

from steadyrnn.bounds.memory import state_radius, truncation_error
from steadyrnn.bounds.norms import Contraction, above

__all__ = ["Found", "LeftOut", "Tier"]


@dataclass(frozen=True)
class Tier:
    """A contraction with what goes with it.

    Args:
        name: The tier's.
        contraction: Rate, norm, theorem.
        start: Bound on N of a step from the zero state; infinite where the input is not bounded.
        radius: Bound on N of every state reached.
        input_gain: Bound on N of what a step changes by for an input moved by 1 in the 2-norm.
    """

    name: str
    contraction: Contraction
    start: float
    radius: float
    input_gain: float

    def truncation_error(self, steps: int) -> float:
        """Return a bound on the 2-norm of the error after ``steps`` steps from a zero state (MATH 4.1)."""
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


@dataclass(frozen=True)
class Found:
    """All tiers of a layer, bounds on its output, and the tiers that were not tried."""

    tiers: tuple[Tier, ...]
    state_bound: float
    entry_bound: float
    left_out: tuple[LeftOut, ...] = ()


def radius_of(rate: float, start: float, initial: float, most: float) -> float:
    """Return a bound on the norm of every state: of the recursion, or ``most`` where the activation saturates."""
    reached = state_radius(rate, start, initial) if rate < 1 else math.inf
    return min(reached, max(initial, most))
