"""What is proven of an Elman layer: in the spectral norm, with a diagonal scaling, in a quadratic norm."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from steadyrnn.activations import Activation
from steadyrnn.bounds.norms import Contraction, Ellipsoid, Norm, TwoNorm, above, spectral_norm_bound, state_radius
from steadyrnn.bounds.quadratic import COMPLETE, QUADRATIC_NORM, STAGES, quadratic_contraction, quadratic_rate
from steadyrnn.bounds.scaling import DIAGONAL_SCALING, diagonal_contraction, scaled_rate, spectral_contraction
from steadyrnn.cells.base import State
from steadyrnn.errors import CertificateError

from .layer import LayerCertificate, Theory, Weights
from .tiers import LeftOut, Search, Tier

__all__ = ["TIERS", "ElmanTheory", "activation_of"]

DIAGONAL_SIZE = 512
"""Above this width a scaling is looked for only where the spectral norm does not contract."""
QUADRATIC_SIZE = 512
"""Up to this width the quadratic tier is always tried; above, up to twice it, only where nothing else contracts."""
SHARP_SIZE = 256
"""Above this width the search for a quadratic norm ends two stages early."""
JUMP = "modReLU with a positive shift is not Lipschitz (docs/notes/mathematics.md, 3.9)"
NOT_ELEMENTWISE = (
    "modReLU is not elementwise with fixed slopes, so weighting units proves nothing (docs/notes/mathematics.md, 3.9)"
)
SLOPES = "it needs slopes that are not negative (docs/notes/mathematics.md, 5.3)"


class SpectralNorm(Search):
    """The 2-norm: the cheapest tier, which needs no conversion."""

    name = "spectral norm"

    def find(self, weights: Weights, known: Sequence[Contraction], effort: str) -> Contraction:
        """Return the contraction in the 2-norm; an infinite rate for an activation that jumps."""
        gamma = slopes_of(weights)[1]
        if not math.isfinite(gamma):
            return Contraction(math.inf, TwoNorm(weights.size), JUMP)
        return widen(spectral_contraction(weights.weight_hh, gamma), weights)

    def renew(self, weights: Weights, norm: Norm) -> None:
        """Return nothing: this tier is always found anew."""


class DiagonalScaling(Search):
    """A 2-norm with one weight per unit."""

    name = "diagonal scaling"

    def find(self, weights: Weights, known: Sequence[Contraction], effort: str) -> Contraction | LeftOut:
        """Return the contraction with the best weights found."""
        if not activation_of(weights).elementwise:
            return LeftOut(self.name, NOT_ELEMENTWISE)
        if known[0].stable and effort != "full" and (effort == "fast" or weights.size > DIAGONAL_SIZE):
            return LeftOut(self.name, reason_to_skip(effort, weights.size, DIAGONAL_SIZE), full=True)
        return widen(diagonal_contraction(weights.weight_hh, slopes_of(weights)[1]), weights)

    def renew(self, weights: Weights, norm: Norm) -> Contraction | None:
        """Return the contraction with given weights."""
        if not isinstance(norm, Ellipsoid) or norm.matrix.dim() != 1:
            return None
        rate = slopes_of(weights)[1] * scaled_rate(weights.weight_hh, norm.matrix)
        return widen(Contraction(above(rate), norm, DIAGONAL_SCALING), weights)


class QuadraticNorm(Search):
    """A quadratic norm, for slopes that are not negative."""

    name = "quadratic norm"

    def find(self, weights: Weights, known: Sequence[Contraction], effort: str) -> Contraction | LeftOut | None:
        """Return the contraction in the best norm found, if it is better than the diagonal one."""
        (low, gamma), size = slopes_of(weights), weights.size
        if not activation_of(weights).elementwise:
            return LeftOut(self.name, NOT_ELEMENTWISE)
        if low < 0:
            return LeftOut(self.name, SLOPES)
        if len(known) == 1:  # the diagonal tier was skipped
            return LeftOut(self.name, reason_to_skip(effort, size, DIAGONAL_SIZE), full=True)
        first, diagonal = known
        limit = QUADRATIC_SIZE if diagonal.stable or first.stable else 2 * QUADRATIC_SIZE
        if effort != "full" and (size > limit or (effort == "fast" and diagonal.stable)):
            return LeftOut(self.name, reason_to_skip(effort, size, limit), full=True)
        start = diagonal.norm.matrix if isinstance(diagonal.norm, Ellipsoid) else None
        stages = len(STAGES) if effort == "full" or size <= COMPLETE else len(STAGES) - 1 if size <= SHARP_SIZE else 2
        quadratic = widen(quadratic_contraction(weights.weight_hh, gamma, start, stages=stages), weights)
        return quadratic if quadratic.rate < diagonal.rate else None

    def renew(self, weights: Weights, norm: Norm) -> Contraction | None:
        """Return the contraction in a given norm."""
        if not isinstance(norm, Ellipsoid) or norm.scaling is None:
            return None
        rate = slopes_of(weights)[1] * quadratic_rate(weights.weight_hh, norm.matrix / norm.scaling, norm.scaling)
        return widen(Contraction(above(rate), norm, QUADRATIC_NORM), weights)


TIERS: tuple[Search, ...] = (SpectralNorm(), DiagonalScaling(), QuadraticNorm())
"""The tiers of an Elman layer, cheapest first."""
_NAMES = {"2-norm": "spectral norm", "weighted 2-norm": "diagonal scaling", "quadratic norm": "quadratic norm"}
"""A search may end in a norm of a cheaper tier; a tier is named after the norm that was found."""


class ElmanTheory(Theory):
    r"""Of a step :math:`h^+ = \varphi(Wh + Ux + b)`, for any input."""

    needs_inputs = False
    states_theorem = "Lemma 1 of Miller and Hardt (2019)"

    def certify(
        self, weights: Weights, input_bound: float | None, entry_bound: float | None, effort: str, keep: Sequence[Norm] = ()
    ) -> LayerCertificate:
        """Return every tier, cheapest first; with ``effort="keep"`` the spectral norm and ``keep`` only."""
        contractions: list[Contraction] = []
        left_out: list[LeftOut] = []
        for search in TIERS[:1] if effort == "keep" else TIERS:
            found = search.find(weights, contractions, effort)
            if isinstance(found, LeftOut):
                left_out.append(found)
            elif found is not None:
                contractions.append(found)
        if activation_of(weights).elementwise:
            renewed = (search.renew(weights, norm) for norm in keep for search in TIERS)
            contractions += [contraction for contraction in renewed if contraction is not None]
        tiers = tuple(tier_of(weights, contraction, input_bound) for contraction in contractions)
        state = min(above(t.radius / t.contraction.norm.lower) for t in tiers)
        entry, most = math.inf, activation_of(weights).bounded_by
        if math.isfinite(most):
            first = weights.initial[0] if weights.initial else weights.bias.new_zeros(1)
            entry = max(most, float(first.abs().max()))
            state = min(state, above(max(most * math.sqrt(weights.size), float(torch.linalg.vector_norm(first)))))
        return LayerCertificate(weights, tiers, state, min(entry, state), input_bound, tuple(left_out), entry_bound)

    def advise(self, layer: LayerCertificate) -> str:
        """Return what makes a contraction of a layer."""
        full = [tier.tier for tier in layer.left_out if tier.full]
        first = f"Not tried yet: {', '.join(full)} (`effort='full'`). " if full else ""
        if not layer.tiers[0].contraction.rate < math.inf:
            return f"{first}modReLU with a positive shift jumps: keep its `activation` at or below 0."
        return (
            f"{first}An RNN contracts with `transition=sr.SpectralBall(bound)`, bound < "
            f"{1 / activation_of(layer.weights).steepness[1]:g}, in training, or of given weights by "
            "`sr.from_torch(..., project=True)`."
        )

    def box(self, weights: Weights, entry_bound: float) -> State | None:
        """Return None: the contraction holds for all states."""
        return None

    def weight_gain(self, weights: Weights, box: State | None) -> float:
        """Return the largest slope."""
        return activation_of(weights).steepness[1]


def activation_of(weights: Weights) -> Activation:
    r"""Return :math:`\varphi` of an Elman cell."""
    activation = weights.cell.record.activation
    if activation is None:
        raise CertificateError(f"The cell {weights.cell.key!r} has no single activation.")
    return activation


def slopes_of(weights: Weights) -> tuple[float, float]:
    """Return the smallest slope and the largest absolute one; infinite for an activation that jumps."""
    activation = activation_of(weights)
    if weights.theta is not None:
        return activation.slope_bounds(weights.theta)
    return activation.slopes[0], activation.steepness[1]


def widen(contraction: Contraction, weights: Weights) -> Contraction:
    """Add to a rate what the rounding of a factored weight can change it by."""
    rate = contraction.rate + slopes_of(weights)[1] * weights.slack * contraction.norm.condition
    return Contraction(above(rate), contraction.norm, contraction.theorem)


def reason_to_skip(effort: str, size: int, limit: int) -> str:
    """Return why a tier was not tried."""
    if effort == "fast":
        return "a cheaper tier contracts, which is all that effort='fast' asks for"
    return f"{size} units are more than the {limit} up to which effort='auto' tries it"


def tier_of(weights: Weights, contraction: Contraction, input_bound: float | None) -> Tier:
    r"""Return the tier of a contraction: :math:`N(\varphi(Ux + b)) \le N(\varphi(b)) + \gamma N(U) B_x`."""
    norm, activation, gamma, rate = contraction.norm, activation_of(weights), slopes_of(weights)[1], contraction.rate
    name = _NAMES[norm.name]
    if not math.isfinite(gamma):
        return Tier(name, contraction, math.inf, math.inf)
    gain = above(gamma * input_norm(norm, weights.weight_ih))
    rest = above(float(norm(activation.value(weights.bias, weights.theta))))
    moved = 0.0 if not bool(weights.weight_ih.any()) else math.inf if input_bound is None else gain * input_bound
    most = above(norm.upper * math.sqrt(weights.size) * activation.bounded_by)
    start = min(above(rest + moved), most)
    initial = above(float(norm(weights.initial[0]))) if weights.initial else 0.0
    reached = state_radius(rate, start, initial) if rate < 1 else math.inf
    return Tier(name, contraction, min(reached, max(initial, most)), gain)


def input_norm(norm: Norm, weight: Tensor) -> float:
    """Return a bound on N of the input weight's product with a unit vector, entries moved towards zero or not.

    An activation moves entries one by one, which a norm with one weight per unit bears and a quadratic one does not.
    """
    if isinstance(norm, Ellipsoid) and norm.matrix.dim() == 1:
        return spectral_norm_bound(norm.matrix.unsqueeze(1) * weight) * (1 + 1e-12)
    return above(norm.upper * spectral_norm_bound(weight))
