"""Certificates of a stack of gated layers, each of which holds for what the layer below gives and in a box of states."""

from collections.abc import Sequence
from dataclasses import replace

from steadyrnn.bounds.norms import above
from steadyrnn.cells.base import State
from steadyrnn.certificates.certify import certify_layer
from steadyrnn.certificates.layer import LayerCertificate, dropout_scale, read_weights
from steadyrnn.errors import CertificateError, NotFiniteError
from steadyrnn.layers.base import RecurrentLayer

__all__ = ["cover_start", "read_gated"]

_SLACK = 1 + 2.0**-10
"""By how much more than proven the entries between gated layers may be, so that rounding stays inside the box."""


def read_gated(layer: RecurrentLayer, covered: float | None, initial: Sequence[State] | None = None) -> list[LayerCertificate]:
    """Return certificates of gated layers.

    Args:
        layer: The stack.
        covered: Bound on the 2-norm of every input.
        initial: Bounds on the initial states of every layer, each (H,); None is zero or what was learned.
    """
    found: list[LayerCertificate] = []
    bound = entries = covered
    for place, (weights,) in enumerate(read_weights(layer)):
        weights = weights if initial is None else replace(weights, initial=initial[place])
        one = certify_layer(weights, bound, entries, "auto")
        scale = dropout_scale(layer) * _SLACK
        bound, entries = above(scale * one.state_bound), above(scale * one.entry_bound)
        found.append(one)
    return found


def cover_start(
    layer: RecurrentLayer, covered: float | None, certificates: tuple[LayerCertificate, ...], start: State
) -> tuple[LayerCertificate, ...]:
    """Return certificates that hold from a given initial state, too.

    Args:
        layer: The stack.
        covered: Bound on the 2-norm of every input.
        certificates: Those from zero.
        start: The initial state, each (L, B, H).
    """
    initial = []
    for place in range(len(certificates)):
        states = [s[place].detach().double().abs().cpu() for s in start]
        initial.append(tuple(s.amax(0) if s.numel() else s.new_zeros(s.shape[1]) for s in states))
        if not all(bool(s.isfinite().all()) for s in initial[-1]):
            raise NotFiniteError("`hx` holds NaN or infinity, of which nothing can be proven.")
    if not any(bool(s.any()) for states in initial for s in states):
        return certificates
    wider = read_gated(layer, covered, initial)
    for one in wider:
        if not one.best.stable:
            raise CertificateError(
                f"no certificate found from the `hx` given: lambda = {one.best.rate:.6g} >= 1 for layer {one.name}. "
                "States closer to zero are certified more easily."
            )
    return tuple(wider)
