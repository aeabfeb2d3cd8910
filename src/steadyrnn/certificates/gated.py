"""The tier of an LSTM or GRU layer: entrywise, in a weighted maximum norm, on the box its states stay in."""

import math

import torch
from torch import Tensor

from steadyrnn.bounds.gru import GRUBox, gru_box, gru_contraction, gru_input_gain, gru_radius
from steadyrnn.bounds.lstm import LSTMBox, lstm_box, lstm_contraction, lstm_input_gain, lstm_radius
from steadyrnn.bounds.norms import Contraction, MaxNorm, above
from steadyrnn.cells.gru import GRUStep
from steadyrnn.cells.lstm import LSTMStep
from steadyrnn.errors import CertificateError

from .reading import Weights
from .tiers import Found, Tier

__all__ = ["box_of", "gated_tiers"]


def gated_tiers(weights: Weights, entry_bound: float | None) -> Found:
    """Return the tier of a gated layer; without a bound on the entries of the input nothing is proven.

    Args:
        weights: The layer's.
        entry_bound: Bound on every entry of every x_t, or None.
    """
    count = weights.size * weights.cell.states
    bounded = entry_bound is not None or not bool(weights.weight_ih.any())
    if not bounded:
        unknown = Contraction(
            math.inf, MaxNorm(torch.ones(count, device="cpu")), f"{theorem_of(weights)}, which needs `input_bound`"
        )
        radius = math.inf if weights.cell.states == 2 else largest(weights.initial[:1])
        return Found((Tier("entrywise", unknown, math.inf, radius, math.inf),), *outputs(weights, None))
    if isinstance(weights.cell, LSTMStep):
        tier, hidden = lstm_tier(weights, entry_bound or 0.0)
    elif isinstance(weights.cell, GRUStep):
        tier, hidden = gru_tier(weights, entry_bound or 0.0)
    else:
        raise CertificateError(f"No theorem covers the cell {weights.cell.key!r}.")
    return Found((tier,), *outputs(weights, hidden))


def theorem_of(weights: Weights) -> str:
    """Return where the proof is."""
    return "MATH 7.1 (iii)" if isinstance(weights.cell, LSTMStep) else "MATH 7.2"


def largest(states: tuple[Tensor, ...]) -> float:
    """Return the largest entry of initial states, at least 1."""
    return max([1.0, *(float(state.abs().max()) for state in states)])


def outputs(weights: Weights, hidden: Tensor | None) -> tuple[float, float]:
    """Return bounds on the 2-norm and on the entries of h: by the box, or since a gated output lies in [-1, 1]."""
    if hidden is None:
        entry = largest(weights.initial[:1])
        return above(entry * math.sqrt(weights.size)), entry
    return above(float(torch.linalg.vector_norm(hidden)) * (1 + 1e-12)), above(float(hidden.max()))


def widened(contraction: Contraction, weights: Weights, steepest: float) -> Contraction:
    """Add to a rate what the rounding of a factored weight can change it by.

    An entry of the bound on the Jacobian grows with an entry of the weight by at most ``steepest``.
    """
    norm = contraction.norm
    if not isinstance(norm, MaxNorm) or weights.slack == 0:
        return contraction
    spread = float(norm.weights.max() / norm.weights.min()) * math.sqrt(weights.size)
    return Contraction(above(contraction.rate + steepest * spread * weights.slack), norm, contraction.theorem)


def box_of(weights: Weights, entry_bound: float) -> tuple[Tensor, ...]:
    """Return bounds on the entries of every h (and c), each (H,), in which the tier's contraction holds."""
    if isinstance(weights.cell, LSTMStep):
        box = box_of_lstm(weights, entry_bound)
        return box.hidden, box.cell
    return (box_of_gru(weights, entry_bound).hidden,)


def box_of_lstm(weights: Weights, entry_bound: float) -> LSTMBox:
    """Return the box that the states of an LSTM do not leave."""
    h_0, c_0 = (float(state.abs().max()) for state in weights.initial) if weights.initial else (0.0, 0.0)
    return lstm_box(weights.weight_ih, weights.weight_hh, weights.bias, entry_bound, initial_bound=(h_0, c_0))


def box_of_gru(weights: Weights, entry_bound: float) -> GRUBox:
    """Return the box that the states of a GRU do not leave."""
    if not isinstance(weights.cell, GRUStep):
        raise CertificateError(f"The cell {weights.cell.key!r} is no GRU.")
    h_0 = float(weights.initial[0].abs().max()) if weights.initial else 0.0
    given = (weights.weight_ih, weights.weight_hh, weights.bias_ih, weights.bias_hh)
    return gru_box(*given, entry_bound, weights.cell.reset_after, initial_bound=h_0)


def lstm_tier(weights: Weights, entry_bound: float) -> tuple[Tier, Tensor]:
    """Return the tier of an LSTM and the bounds of its outputs."""
    box = box_of_lstm(weights, entry_bound)
    steepest = 2 + float(box.cell.max())
    contraction = widened(lstm_contraction(weights.weight_hh, box), weights, steepest)
    if not isinstance(contraction.norm, MaxNorm):
        raise CertificateError("The norm of a gated layer is a weighted maximum norm.")
    radius = lstm_radius(box, contraction.norm)
    gain = lstm_input_gain(weights.weight_ih, box, contraction.norm)
    return Tier("entrywise", contraction, radius, radius, gain), box.hidden


def gru_tier(weights: Weights, entry_bound: float) -> tuple[Tier, Tensor]:
    """Return the tier of a GRU and the bounds of its outputs."""
    box = box_of_gru(weights, entry_bound)
    steepest = 4 + 2 * float(weights.weight_hh.abs().sum(1).max())
    contraction = widened(gru_contraction(weights.weight_hh, box), weights, steepest)
    if not isinstance(contraction.norm, MaxNorm):
        raise CertificateError("The norm of a gated layer is a weighted maximum norm.")
    radius = gru_radius(box, contraction.norm)
    gain = gru_input_gain(weights.weight_ih, weights.weight_hh, box, contraction.norm)
    return Tier("entrywise", contraction, radius, radius, gain), box.hidden
