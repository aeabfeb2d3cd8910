"""The tiers of an Elman layer: spectral norm, diagonal scaling, quadratic norm."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from steadyrnn.activations import ModReLU, Sigmoid, Tanh
from steadyrnn.bounds.norms import Contraction, Ellipsoid, Norm, TwoNorm, above
from steadyrnn.bounds.numerical_radius import COMPLETE, STAGES
from steadyrnn.bounds.quadratic import quadratic_contraction, quadratic_rate
from steadyrnn.bounds.scaling import diagonal_contraction, scaled_rate, spectral_contraction
from steadyrnn.cells.rnn import RNNStep
from steadyrnn.linalg.norms import spectral_norm_bound

from .reading import Weights
from .tiers import Found, LeftOut, Tier, radius_of

__all__ = ["rnn_tiers"]

DIAGONAL_SIZE = 512
"""Above this width a scaling is looked for only where the spectral norm does not contract."""
QUADRATIC_SIZE = 512
"""Up to this width the quadratic tier is always tried; above, up to twice it, only where nothing else contracts."""
SHARP_SIZE = 256
"""Above this width the search for a quadratic norm ends two stages early."""
DIAGONAL, QUADRATIC = "diagonal scaling", "quadratic norm"
"""Names of tiers."""
SATURATING = (Tanh, Sigmoid)
"""Activations whose values lie in [-1, 1]."""


def rnn_tiers(weights: Weights, input_bound: float | None, effort: str, keep: Sequence[Norm] = ()) -> Found:
    """Return every tier of an Elman layer, cheapest first.

    Args:
        weights: The layer's.
        input_bound: Bound on the 2-norm of every x_t, or None.
        effort: ``"auto"``: all tiers that are worth their cost; ``"full"``: all; ``"fast"``: no further than the first that
            contracts; ``"keep"``: the spectral norm and ``keep`` only.
        keep: Norms found before.
    """
    contractions = [spectral(weights)]
    left_out: tuple[LeftOut, ...] = ()
    if effort == "keep":
        known = [] if is_jump(weights) else [one for norm in keep for one in kept(weights, norm)]
        contractions += known
    else:
        further, left_out = searched(weights, contractions[0], effort)
        contractions += further
    tiers = tuple(tier_of(weights, contraction, input_bound) for contraction in contractions)
    size, saturates = weights.size, isinstance(activation_of(weights), SATURATING)
    initial = largest_entry(weights)
    entry = max(1.0, initial) if saturates else math.inf
    state = min(above(t.radius / t.contraction.norm.lower) for t in tiers)
    if saturates:
        state = min(state, above(max(math.sqrt(size), norm_of_initial(weights))))
    return Found(tiers, state, min(entry, state), left_out)


def activation_of(weights: Weights) -> object:
    """Return the activation of an Elman cell."""
    return weights.cell.activation if isinstance(weights.cell, RNNStep) else None


def is_jump(weights: Weights) -> bool:
    """Say whether the activation is modReLU: not elementwise, so that scaling single units proves nothing (MATH 3.9)."""
    return isinstance(activation_of(weights), ModReLU)


def slopes_of(weights: Weights) -> tuple[float, float]:
    """Return the smallest slope and the largest absolute one; infinite for a modReLU that jumps."""
    activation = activation_of(weights)
    if isinstance(activation, ModReLU) and weights.theta is not None and bool((weights.theta > 0).any()):
        return -math.inf, math.inf
    return activation.slopes[0], activation.steepness[1]  # type: ignore[attr-defined]


def widened(contraction: Contraction, weights: Weights) -> Contraction:
    """Add to a rate what the rounding of a factored weight can change it by."""
    rate = contraction.rate + slopes_of(weights)[1] * weights.slack * contraction.norm.condition
    return Contraction(above(rate), contraction.norm, contraction.theorem)


def spectral(weights: Weights) -> Contraction:
    """Return the contraction in the 2-norm; an infinite rate for an activation that jumps."""
    gamma = slopes_of(weights)[1]
    if not math.isfinite(gamma):
        return Contraction(math.inf, TwoNorm(weights.size), "MATH 3.9: modReLU with a positive shift is not Lipschitz")
    return widened(spectral_contraction(weights.weight_hh, gamma), weights)


def searched(weights: Weights, first: Contraction, effort: str) -> tuple[list[Contraction], tuple[LeftOut, ...]]:
    """Return the further tiers, and those that were not tried."""
    (low, gamma), size = slopes_of(weights), weights.size
    if is_jump(weights):
        reason = "modReLU is not elementwise, so that weighting single units proves nothing (MATH 3.9)"
        return [], (LeftOut(DIAGONAL, reason), LeftOut(QUADRATIC, reason))
    covered = low >= 0
    never = () if covered else (LeftOut(QUADRATIC, "it needs slopes that are not negative (MATH 5.3)"),)
    if first.stable and effort != "full" and (effort == "fast" or size > DIAGONAL_SIZE):
        names = (DIAGONAL, QUADRATIC) if covered else (DIAGONAL,)
        return [], (*(LeftOut(name, skipped(effort, size, DIAGONAL_SIZE), full=True) for name in names), *never)
    diagonal = widened(diagonal_contraction(weights.weight_hh, gamma), weights)
    if not covered:
        return [diagonal], never
    limit = QUADRATIC_SIZE if diagonal.stable or first.stable else 2 * QUADRATIC_SIZE
    if effort != "full" and (size > limit or (effort == "fast" and diagonal.stable)):
        return [diagonal], (LeftOut(QUADRATIC, skipped(effort, size, limit), full=True),)
    matrix = diagonal.norm.matrix if isinstance(diagonal.norm, Ellipsoid) else None
    stages = len(STAGES) if effort == "full" or size <= COMPLETE else len(STAGES) - 1 if size <= SHARP_SIZE else 2
    quadratic = widened(quadratic_contraction(weights.weight_hh, gamma, matrix, stages=stages), weights)
    return [diagonal, quadratic] if quadratic.rate < diagonal.rate else [diagonal], ()


def skipped(effort: str, size: int, limit: int) -> str:
    """Return why a tier was not tried."""
    if effort == "fast":
        return "a cheaper tier contracts, which is all that effort='fast' asks for"
    return f"{size} units are more than the {limit} up to which effort='auto' tries it"


def kept(weights: Weights, norm: Norm) -> list[Contraction]:
    """Return the contraction in a norm found before; the 2-norm's is known already."""
    if not isinstance(norm, Ellipsoid):
        return []
    gamma = slopes_of(weights)[1]
    if norm.matrix.dim() == 1:
        rate, theorem = scaled_rate(weights.weight_hh, norm.matrix), "MATH 5.2"
    elif norm.scaling is not None:
        rate, theorem = quadratic_rate(weights.weight_hh, norm.matrix / norm.scaling, norm.scaling), "MATH 5.3"
    else:
        return []
    return [widened(Contraction(above(gamma * rate), norm, theorem), weights)]


def tier_of(weights: Weights, contraction: Contraction, input_bound: float | None) -> Tier:
    r"""Return the tier of a contraction: :math:`N(\varphi(Ux + b)) \le N(\varphi(b)) + \gamma N(U) B_x`."""
    norm, gamma = contraction.norm, slopes_of(weights)[1]
    name = {"2-norm": "spectral norm", "weighted 2-norm": DIAGONAL}.get(norm.name, QUADRATIC)
    if not math.isfinite(gamma):
        return Tier(name, contraction, math.inf, math.inf, math.inf)
    gain = above(gamma * input_norm(norm, weights.weight_ih))
    rest = above(float(norm(activation_of(weights).value(weights.bias, weights.theta))))  # type: ignore[attr-defined]
    moved = 0.0 if not bool(weights.weight_ih.any()) else math.inf if input_bound is None else gain * input_bound
    saturates = isinstance(activation_of(weights), SATURATING)
    most = above(norm.upper * math.sqrt(weights.size)) if saturates else math.inf
    start = min(above(rest + moved), most)
    initial = above(float(norm(weights.initial[0]))) if weights.initial else 0.0
    return Tier(name, contraction, start, radius_of(contraction.rate, start, initial, most), gain)


def input_norm(norm: Norm, weight: Tensor) -> float:
    """Return a bound on N of the input weight's product with a unit vector, entries moved towards zero or not.

    An activation moves entries one by one, which a norm with one weight a unit bears and a quadratic one does not.
    """
    if isinstance(norm, Ellipsoid) and norm.matrix.dim() == 1:
        return spectral_norm_bound(norm.matrix.unsqueeze(1) * weight) * (1 + 1e-12)
    return above(norm.upper * spectral_norm_bound(weight))


def largest_entry(weights: Weights) -> float:
    """Return the largest entry of a learned initial state."""
    return float(weights.initial[0].abs().max()) if weights.initial else 0.0


def norm_of_initial(weights: Weights) -> float:
    """Return the 2-norm of a learned initial state."""
    return float(torch.linalg.vector_norm(weights.initial[0])) if weights.initial else 0.0
