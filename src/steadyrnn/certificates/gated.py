"""What is proven of an LSTM or GRU layer: entrywise, in a weighted maximum norm, on the box its states stay in."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from steadyrnn.bounds.gates import box_radius
from steadyrnn.bounds.gru import GRU_ENTRYWISE, GRUBox, gru_box, gru_contraction, gru_input_gain
from steadyrnn.bounds.lstm import LSTM_ENTRYWISE, LSTMBox, lstm_box, lstm_contraction, lstm_input_gain
from steadyrnn.bounds.norms import Contraction, MaxNorm, Norm, above
from steadyrnn.cells.base import State
from steadyrnn.errors import CertificateError

from .layer import LayerCertificate, Theory, Weights
from .tiers import Tier

__all__ = ["GRUTheory", "LSTMTheory"]

_HALVINGS = 60
Box = TypeVar("Box", GRUBox, LSTMBox)


class GatedTheory(Theory, Generic[Box]):
    """One tier, for inputs of bounded entries and for states in a box that none leaves."""

    needs_inputs = True
    theorem: ClassVar[str]

    @abstractmethod
    def around(self, weights: Weights, entry_bound: float) -> Box:
        """Return the box that no state leaves."""

    @abstractmethod
    def contract(self, weights: Weights, box: Box) -> tuple[Contraction, float]:
        """Return the contraction in the box, and by how much its entries grow at most with an entry of the weight."""

    @abstractmethod
    def sizes(self, weights: Weights, box: Box, norm: MaxNorm) -> tuple[float, float]:
        """Return bounds on the norm of every state, and of what a step changes by for an input moved by 1."""

    @abstractmethod
    def advise_for_inputs(self, layer: LayerCertificate, input_bound: float) -> str:
        """Return what makes a contraction of a layer whose inputs are bounded."""

    def certify(
        self, weights: Weights, input_bound: float | None, entry_bound: float | None, effort: str, keep: Sequence[Norm] = ()
    ) -> LayerCertificate:
        """Return the one tier; without a bound on the entries of the input nothing is proven."""
        if entry_bound is None and bool(weights.weight_ih.any()):
            count = weights.size * weights.cell.states
            norm = MaxNorm(torch.ones(count, device="cpu"))
            unknown = Contraction(math.inf, norm, f"{self.theorem}, which needs `input_bound`")
            entry = largest_of(weights.initial[:1])  # a gated output lies in [-1, 1]
            radius = math.inf if weights.cell.states == 2 else entry
            tier = Tier("entrywise", unknown, radius, math.inf)
            state = above(entry * math.sqrt(weights.size))
            return LayerCertificate(weights, (tier,), state, entry, input_bound, (), entry_bound)
        box = self.around(weights, entry_bound or 0.0)
        contraction = widen(*self.contract(weights, box), weights)
        if not isinstance(contraction.norm, MaxNorm):
            raise CertificateError("The norm of a gated layer is a weighted maximum norm.")
        radius, gain = self.sizes(weights, box, contraction.norm)
        tier = Tier("entrywise", contraction, radius, gain)
        state = above(float(torch.linalg.vector_norm(box.hidden)) * (1 + 1e-12))
        return LayerCertificate(weights, (tier,), state, above(float(box.hidden.max())), input_bound, (), entry_bound)

    def advise(self, layer: LayerCertificate) -> str:
        """Return what makes a contraction of a layer."""
        if layer.input_bound is None:
            return "Give `input_bound`: the gates of an LSTM or GRU are bounded only if the inputs are."
        return self.advise_for_inputs(layer, layer.input_bound)


class LSTMTheory(GatedTheory[LSTMBox]):
    """Of an LSTM; its state is (c, h)."""

    theorem = LSTM_ENTRYWISE

    def around(self, weights: Weights, entry_bound: float) -> LSTMBox:
        """Return the box that the states do not leave."""
        h_0, c_0 = (float(state.abs().max()) for state in weights.initial) if weights.initial else (0.0, 0.0)
        return lstm_box(weights.weight_ih, weights.weight_hh, weights.bias, entry_bound, initial_bound=(h_0, c_0))

    def contract(self, weights: Weights, box: LSTMBox) -> tuple[Contraction, float]:
        """Return the contraction in the box."""
        return lstm_contraction(weights.weight_hh, box), 2 + float(box.cell.max())

    def sizes(self, weights: Weights, box: LSTMBox, norm: MaxNorm) -> tuple[float, float]:
        """Return the radius of the box and the gain of the input."""
        return box_radius(box, norm), lstm_input_gain(weights.weight_ih, box, norm)

    def box(self, weights: Weights, entry_bound: float) -> State:
        """Return bounds on h and c."""
        box = self.around(weights, entry_bound)
        return box.hidden, box.cell

    def weight_gain(self, weights: Weights, box: State | None) -> float:
        """Return how far (h, c) moves: c by (1 + 1/4 + c/4), and h by that and 1/4 more."""
        return 0.0 if box is None or weights.slack == 0 else above(3 + float(box[1].max()))

    def advise_for_inputs(self, layer: LayerCertificate, input_bound: float) -> str:
        """Return the constraint that makes a contraction of an LSTM."""
        return (
            f"An LSTM contracts with `transition=sr.StableLSTM(input_bound={input_bound:g})`, in training, or of given "
            "weights by `sr.from_torch(..., project=True)`, which may take most of their recurrence away."
        )


class GRUTheory(GatedTheory[GRUBox]):
    """Of a GRU, with its reset gate before or behind the recurrent product."""

    theorem = GRU_ENTRYWISE

    def around(self, weights: Weights, entry_bound: float) -> GRUBox:
        """Return the box that the states do not leave."""
        h_0 = float(weights.initial[0].abs().max()) if weights.initial else 0.0
        given = (weights.weight_ih, weights.weight_hh, weights.bias_ih, weights.bias_hh)
        return gru_box(*given, entry_bound, bool(weights.cell.record.reset_after), initial_bound=h_0)

    def contract(self, weights: Weights, box: GRUBox) -> tuple[Contraction, float]:
        """Return the contraction in the box."""
        return gru_contraction(weights.weight_hh, box), 4 + 2 * float(weights.weight_hh.abs().sum(1).max())

    def sizes(self, weights: Weights, box: GRUBox, norm: MaxNorm) -> tuple[float, float]:
        """Return the radius of the box and the gain of the input."""
        return box_radius(box, norm), gru_input_gain(weights.weight_ih, weights.weight_hh, box, norm)

    def box(self, weights: Weights, entry_bound: float) -> State:
        """Return bounds on h."""
        return (self.around(weights, entry_bound).hidden,)

    def weight_gain(self, weights: Weights, box: State | None) -> float:
        """Return how far h moves, by what the reset gate multiplies, too."""
        if box is None or weights.slack == 0:
            return 0.0
        reach = float(weights.weight_hh.norm()) * (1 + float(box[0].norm()))
        bias = 0.0 if weights.bias_hh is None else float(weights.bias_hh.abs().max())
        return above(2 + float(box[0].max()) + reach + bias)

    def advise_for_inputs(self, layer: LayerCertificate, input_bound: float) -> str:
        """Return by how much smaller a recurrent weight makes a contraction of a GRU."""
        scale = self.contracting_scale(layer, input_bound)
        if scale is None:
            return (
                "No smaller recurrent weight helps: the biases and inputs alone keep the update gate at 1. Make those smaller."
            )
        return (
            f"A GRU contracts with smaller recurrent weights: `weight_hh_{layer.name}` times {scale:g} is proven to. "
            "A constraint on singular values, as `SpectralBall`, does not bound its gates."
        )

    def contracting_scale(self, layer: LayerCertificate, input_bound: float) -> float | None:
        """Return a power of two that makes a contraction of a layer when its recurrent weight is multiplied by it.

        With no recurrent weight the rate is the update gate's largest value, which is below 1 for bounded inputs. None
        where that is not below 1 in float64.
        """
        for halvings in range(1, _HALVINGS):
            scale = 2.0**-halvings
            smaller = replace(layer.weights, weight_hh=scale * layer.weights.weight_hh)
            if self.certify(smaller, input_bound, input_bound, "auto").best.stable:
                return scale
        return None


def largest_of(states: tuple[Tensor, ...]) -> float:
    """Return the largest entry of initial states, at least 1."""
    return max([1.0, *(float(state.abs().max()) for state in states)])


def widen(contraction: Contraction, steepest: float, weights: Weights) -> Contraction:
    """Add to a rate what the rounding of a factored weight can change it by.

    An entry of the bound on the Jacobian grows with an entry of the weight by at most ``steepest``.
    """
    norm = contraction.norm
    if not isinstance(norm, MaxNorm) or weights.slack == 0:
        return contraction
    spread = float(norm.weights.max() / norm.weights.min()) * math.sqrt(weights.size)
    return Contraction(above(contraction.rate + steepest * spread * weights.slack), norm, contraction.theorem)
