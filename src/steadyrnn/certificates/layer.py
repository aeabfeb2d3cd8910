"""What is proven of one layer in one direction: every tier's contraction, with the state's radius in its norm."""

import math
from dataclasses import dataclass, replace

from torch import nn

from steadyrnn.bounds.norms import Contraction
from steadyrnn.cells.rnn import RNNStep
from steadyrnn.errors import CertificateError

from .gated import gated_tiers
from .reading import Weights, read_weights
from .rnn import rnn_tiers
from .tiers import LeftOut, Tier

__all__ = ["LayerCertificate", "certify_layer", "read_layers", "refresh"]


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
    def radius(self) -> float:
        """Bound on the norm of every state, in the norm of :attr:`best`."""
        return self.tier.radius

    @property
    def start(self) -> float:
        """Bound on the norm of a step from the zero state, in the norm of :attr:`best`."""
        return self.tier.start

    @property
    def input_gain(self) -> float:
        """By how much a step moves at most, in the norm of :attr:`best`, for an input moved by 1 in the 2-norm."""
        return self.tier.input_gain

    @property
    def smoothness(self) -> float | None:
        """The activation's second derivative, of an RNN."""
        return self.weights.cell.activation.smoothness if isinstance(self.weights.cell, RNNStep) else None

    @property
    def spectral_rate(self) -> float | None:
        """The rate in the 2-norm, of an RNN."""
        return self.tiers[0].contraction.rate if isinstance(self.weights.cell, RNNStep) else None

    def truncation_error(self, steps: int) -> float:
        """Return a bound on the 2-norm of what a start from zero ``steps`` steps ago changes, by the best tier for it.

        Never more than two states can be apart, as the run from zero is one of those the bound on states is about.
        """
        most = self.state_bound if steps == 0 else 2 * self.state_bound
        return min(most, *(tier.truncation_error(steps) for tier in self.tiers))


def certify_layer(weights: Weights, input_bound: float | None, entry_bound: float | None, effort: str) -> LayerCertificate:
    """Return everything proven of one layer.

    Args:
        weights: The layer's.
        input_bound: Bound on the 2-norm of every x_t, or None.
        entry_bound: Bound on every entry of x_t; None is ``input_bound``.
        effort: ``"auto"``, ``"full"`` for every tier, or ``"fast"`` for the cheapest one that contracts.
    """
    entry_bound = input_bound if entry_bound is None else entry_bound
    elman = isinstance(weights.cell, RNNStep)
    found = rnn_tiers(weights, input_bound, effort) if elman else gated_tiers(weights, entry_bound)
    bounds = (found.state_bound, found.entry_bound, input_bound)
    return LayerCertificate(weights, found.tiers, *bounds, found.left_out, entry_bound)


def read_layers(module: nn.Module, input_bound: float | None = None, effort: str = "auto") -> list[LayerCertificate]:
    """Return what is proven of each layer of a stack in one direction; the input of each is the output below.

    Example:
        >>> rnn = sr.RNN(2, 3, num_layers=2, transition=sr.SpectralBall(0.5))
        >>> [layer.best.stable for layer in read_layers(rnn, input_bound=1.0)]
        [True, True]
    """
    found: list[LayerCertificate] = []
    bound, entries = input_bound, input_bound
    for ways in read_weights(module):
        if len(ways) > 1:
            raise CertificateError("A bidirectional layer has no certificate of a stack; certify each direction by itself.")
        layer = certify_layer(ways[0], bound, entries, effort)
        found.append(layer)
        scale = dropout_scale(module)
        bound = finite_or_none(scale * layer.state_bound)
        entries = finite_or_none(scale * layer.entry_bound)
    return found


def dropout_scale(module: nn.Module) -> float:
    """Return what dropout multiplies kept entries by, between layers, in the mode the module is in."""
    rate = float(getattr(module, "dropout", 0.0) or 0.0)
    return 1 / (1 - rate) if module.training and 0 < rate < 1 else 1.0


def finite_or_none(bound: float) -> float | None:
    """Return a bound, or None where it says nothing."""
    return bound if math.isfinite(bound) else None


def refresh(layer: LayerCertificate, module: nn.Module) -> LayerCertificate:
    """Return the certificate for the weights as they are now, in the same norms where one still contracts.

    Norms are kept and the rates proven anew, which costs far less than a search for a norm; where no old norm contracts any
    more, the search is made again.
    """
    weights = next(w for ways in read_weights(module) for w in ways if w.name == layer.name)
    if isinstance(weights.cell, RNNStep):
        found = rnn_tiers(weights, layer.input_bound, "keep", keep=[tier.contraction.norm for tier in layer.tiers])
    else:
        found = gated_tiers(weights, layer.input_bound)
    fresh = LayerCertificate(weights, found.tiers, found.state_bound, found.entry_bound, layer.input_bound)
    return fresh if fresh.best.stable else certify_layer(weights, layer.input_bound, None, "auto")
