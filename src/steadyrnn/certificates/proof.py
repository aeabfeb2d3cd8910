"""What the error of a layer's computed run is proven from."""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from steadyrnn.bounds.norms import MaxNorm, Norm, above, product_above
from steadyrnn.cells.base import State
from steadyrnn.engines.base import Recurrence
from steadyrnn.errors import CertificateError

from .layer import LayerCertificate, Weights
from .rounding import Sizes, sizes_of
from .theories import THEORIES
from .tiers import Tier

__all__ = ["Proof", "covering_state", "proof_of", "recurrence_of", "round_coarsely", "to_output"]

_DIRECTIONS = 64
"""Directions, drawn once, in which the norms of a layer are compared."""


class Proof(NamedTuple):
    """What the error of a layer's run is proven from: numbers that change with the weights, or with a gated layer's box."""

    weights: Weights
    tier: Tier  # which contracts
    box: State | None  # of a gated layer
    sizes: Sizes
    weight_gain: float  # how far a step moves with its recurrent weight, for a state of norm 1
    prepared: dict[torch.device, Any]  # by device, what a run is evaluated with


def proof_of(certificate: LayerCertificate, entry_bound: float) -> Proof:
    """Return what is needed of a certificate.

    Args:
        certificate: Of the layer, a gated one for entries of the input up to ``entry_bound`` and for the initial states.
        entry_bound: The same that the certificate was made for; an Elman layer does not need it.

    Raises:
        CertificateError: Nothing contracts.
    """
    weights = certificate.weights
    theory = THEORIES[weights.cell.record.theorem]
    gated = theory.needs_inputs
    tiers = tuple(tier for tier in certificate.tiers if tier.contraction.stable)
    if not tiers:
        best, where = certificate.best, f" for entries of its input up to {entry_bound:.4g}" if gated else ""
        way_out = "smaller inputs or recurrent weights" if gated else "a constraint such as `SpectralBall`"
        raise CertificateError(
            f"No bound on the error: a run can be verified only where its steps contract, and layer {weights.name} has "
            f"lambda = {best.rate:.6g} >= 1 in the {best.norm.name} ({best.theorem}){where}. Use {way_out}."
        )
    box = theory.box(weights, entry_bound)
    zero = weights.weight_ih.new_zeros(0, 1, weights.weight_ih.shape[1])
    tier = min(tiers, key=lambda tier: typical_error(tier, weights.size))
    return Proof(weights, tier, box, sizes_of(recurrence_of(weights, zero, ())), theory.weight_gain(weights, box), {})


def typical_error(tier: Tier, size: int) -> float:
    """Return about how large an error is proven where every step leaves over a vector of norm 1 in some direction.

    Every tier that contracts proves a bound. Rounding leaves over no direction more than another, so the one is taken that
    proves least of the mean over directions: the same for every run of the layer.
    """
    norm = tier.contraction.norm
    generator = torch.Generator("cpu").manual_seed(0)
    drawn = torch.randn(_DIRECTIONS, size, dtype=torch.float64, device="cpu", generator=generator)
    states = drawn.new_zeros(_DIRECTIONS, norm.size)
    states[:, -size:] = torch.nn.functional.normalize(drawn, dim=-1)  # of an LSTM c is first
    return float(norm(states).mean()) / (1 - tier.contraction.rate) * to_output(norm, size)


def recurrence_of(
    weights: Weights, data: Tensor, state: State, batch_sizes: Tensor | None = None, reverse: bool = False
) -> Recurrence:
    """Return the run of a layer over data (T, B, D), in its dtype and on its device."""
    state = state or tuple(data.new_zeros(data.shape[1], weights.size) for _ in range(weights.cell.states))
    weight_ih, weight_hh, bias_ih, bias_hh, theta = weights.cast(data.device, data.dtype)
    if weight_ih is None or weight_hh is None:
        raise CertificateError("A layer without weights has no run.")
    return Recurrence(weights.cell, data, state, weight_ih, weight_hh, bias_ih, bias_hh, theta, batch_sizes, reverse)


def covering_state(weights: Weights, state: State) -> Weights:
    """Return the weights with initial states that cover the given ones, each (B, H): a gated layer's box holds them.

    The box depends on the largest entries of h and of c alone. They are rounded up (:func:`round_coarsely`), so that runs
    from other states find the same proof.
    """
    if not THEORIES[weights.cell.record.theorem].needs_inputs:
        return weights
    given = [s.detach() for s in state if s.numel()]
    largest = torch.stack([s.abs().max() for s in given]).tolist() if given else [0.0] * len(state)
    return replace(
        weights, initial=tuple(weights.weight_hh.new_full((weights.size,), round_coarsely(most)) for most in largest)
    )


def round_coarsely(bound: float) -> float:
    """Return a bound that is not below the given one, and at most 1.1 percent above: one of 64 for each power of 2.

    Example:
        >>> round_coarsely(0.0), round_coarsely(1.0), round(round_coarsely(1.001), 4)
        (0.0, 1.0, 1.0109)
    """
    if bound <= 0 or not bound < 2.0**1000:
        return bound
    place = math.ceil(64 * math.log2(bound))
    found = math.exp2(place / 64)
    return found if found >= bound else math.exp2((place + 1) / 64)  # a logarithm is rounded, too


def to_output(norm: Norm, size: int) -> float:
    """Return a bound on the 2-norm of h for a state of norm 1; in a maximum norm the entries of h alone count."""
    if isinstance(norm, MaxNorm):
        return above(float(norm.weights[-size:].norm()), 64 + size)
    return product_above(1 / norm.lower)
