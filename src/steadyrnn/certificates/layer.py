"""What is proven of one layer in one direction, and the contract of a theory that proves it."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from steadyrnn.bounds.norms import Contraction, Norm
from steadyrnn.cells.base import State

from .reading import Weights
from .tiers import LeftOut, Tier

__all__ = ["LayerCertificate", "Theory"]


@dataclass(frozen=True)
class LayerCertificate:
    """One layer in one direction.

    Args:
        weights: What the claims are about.
        tiers: Every contraction that was computed, cheapest first; at least one.
        state_bound: Bound on the 2-norm of every output h_t; infinite where none is proven.
        entry_bound: Bound on every entry of it.
        input_bound: What was assumed of the 2-norm of every x_t, None if nothing.
        left_out: The tiers that were not tried, each with the reason.
        input_entries: What was assumed of every entry of it.
    """

    weights: Weights
    tiers: tuple[Tier, ...]
    state_bound: float
    entry_bound: float
    input_bound: float | None
    left_out: tuple[LeftOut, ...] = ()
    input_entries: float | None = None

    @property
    def name(self) -> str:
        """The end of the names of its weights."""
        return self.weights.name

    @property
    def tier(self) -> Tier:
        """The tier of the smallest rate."""
        return min(self.tiers, key=lambda tier: tier.contraction.rate)

    def using(self, tier: Tier) -> "LayerCertificate":
        """Return the certificate without the other tiers; the first, an Elman layer's spectral norm, stays beside it."""
        return replace(self, tiers=(self.tiers[0], tier) if tier is not self.tiers[0] else (tier,))

    @property
    def best(self) -> Contraction:
        """The contraction of the smallest rate."""
        return self.tier.contraction

    @property
    def smoothness(self) -> float | None:
        """The activation's second derivative, of an RNN."""
        activation = self.weights.cell.record.activation
        return None if activation is None else activation.smoothness

    @property
    def spectral_rate(self) -> float | None:
        """The rate in the 2-norm, of an RNN."""
        return None if self.weights.cell.record.activation is None else self.tiers[0].contraction.rate

    def truncation_error(self, steps: int) -> float:
        """Return a bound on the 2-norm of what a start from zero ``steps`` steps ago changes, by the best tier for it.

        Never more than two states can be apart, as the run from zero is one of those the bound on states is about.
        """
        most = self.state_bound if steps == 0 else 2 * self.state_bound
        return min(most, *(tier.truncation_error(steps) for tier in self.tiers))


class Theory(ABC):
    """What is proven of all steps of one kind, as ``CellRecord.theorem`` names it."""

    needs_inputs: ClassVar[bool]
    """Whether a contraction is proven for inputs of bounded entries only."""
    states_theorem: ClassVar[str | None] = None
    """The theorem that bounds the states; None where it is that of the contraction."""

    @abstractmethod
    def certify(
        self, weights: Weights, input_bound: float | None, entry_bound: float | None, effort: str, keep: Sequence[Norm] = ()
    ) -> LayerCertificate:
        """Return every tier of a layer, cheapest first, and bounds on its outputs.

        Args:
            weights: The layer's.
            input_bound: Bound on the 2-norm of every x_t, or None.
            entry_bound: Bound on every entry of every x_t, or None.
            effort: How far to look for a norm: ``"auto"``, ``"full"``, ``"fast"``, or ``"keep"`` for none beyond ``keep``.
            keep: Norms found before.
        """

    @abstractmethod
    def advise(self, layer: LayerCertificate) -> str:
        """Return in a sentence what makes a contraction of a layer that is not proven to be one."""

    @abstractmethod
    def box(self, weights: Weights, entry_bound: float) -> State | None:
        """Return bounds on the entries of every h (and c), each (H,), in which the contraction holds; None for everywhere."""

    @abstractmethod
    def weight_gain(self, weights: Weights, box: State | None) -> float:
        """Return by how much a step moves, in the 2-norm, for a recurrent weight moved by 1 at a state of norm 1."""
