"""The error of one layer's computed run: its contraction, and what each of its steps leaves over."""

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from steadyrnn.bounds.memory import product_above
from steadyrnn.bounds.norms import ROUND_OFF, Ellipsoid, MaxNorm, Norm, above
from steadyrnn.bounds.residual import residual_errors
from steadyrnn.cells.base import State
from steadyrnn.cells.lstm import LSTMStep
from steadyrnn.cells.rnn import RNNStep
from steadyrnn.engines.awaited import largest_norm
from steadyrnn.engines.base import Recurrence
from steadyrnn.engines.reference import running_rows
from steadyrnn.engines.residual import in_double, leftovers, scan_rounding, turned
from steadyrnn.engines.rounding import UNITS, Sizes, local_rounding, sizes_of
from steadyrnn.errors import CertificateError, NotFiniteError

from .gated import box_of
from .layer import LayerCertificate
from .reading import Weights
from .tiers import Tier
from .verification import LayerVerification

__all__ = ["LayerErrors", "Proof", "coarse", "covering_state", "layer_errors", "proof_of", "recurrence_of"]


_LIFT = 2.0**40
"""What residuals are multiplied by where float32 squares them, lest they underflow."""


class Proof(NamedTuple):
    """What the error of a layer's run is proven from: numbers that change with the weights, or with a gated layer's box."""

    weights: Weights
    tiers: tuple[Tier, ...]  # those that contract
    box: State | None  # of a gated layer
    sizes: Sizes
    weight_gain: float  # how far a step moves with its recurrent weight, for a state of norm 1


class LayerErrors(NamedTuple):
    """Bounds on the 2-norm of the error of every output (T, B), and the record of the layer."""

    errors: Tensor
    record: LayerVerification


def proof_of(certificate: LayerCertificate, entry_bound: float) -> Proof:
    """Return what is needed of a certificate.

    Args:
        certificate: Of the layer, a gated one for entries of the input up to ``entry_bound`` and for the initial states.
        entry_bound: The same that the certificate was made for; an Elman layer does not need it.

    Raises:
        CertificateError: Nothing contracts.
    """
    weights = certificate.weights
    gated = not isinstance(weights.cell, RNNStep)
    tiers = tuple(tier for tier in certificate.tiers if tier.contraction.stable)
    if not tiers:
        best, where = certificate.best, f" for entries of its input up to {entry_bound:.4g}" if gated else ""
        way_out = "smaller inputs or recurrent weights" if gated else "a constraint such as `SpectralBall`"
        raise CertificateError(
            f"No bound on the error: a run can be verified only where its steps contract, and layer {weights.name} has "
            f"lambda = {best.rate:.6g} >= 1 in the {best.norm.name} ({best.theorem}){where}. It takes {way_out}."
        )
    box = box_of(weights, entry_bound) if gated else None
    zero = weights.weight_ih.new_zeros(0, 1, weights.weight_ih.shape[1])
    return Proof(weights, tiers, box, sizes_of(recurrence_of(weights, zero, ())), weight_gain(weights, box))


def weight_gain(weights: Weights, box: State | None) -> float:
    """Return by how much a step moves, in the 2-norm, for a recurrent weight moved by 1 at a state of norm 1."""
    if isinstance(weights.cell, RNNStep):
        return weights.cell.activation.steepness[1]
    if box is None or weights.slack == 0:
        return 0.0
    if isinstance(weights.cell, LSTMStep):  # c by (1 + 1/4 + c/4), and h by that and 1/4 more
        return above(3 + float(box[1].max()))
    reach = float(weights.weight_hh.norm()) * (1 + float(box[0].norm()))  # what the reset gate multiplies
    bias = 0.0 if weights.bias_hh is None else float(weights.bias_hh.abs().max())
    return above(2 + float(box[0].max()) + reach + bias)


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

    The box depends on the largest entries of h and of c alone. They are rounded up a little (:func:`coarse`), so that runs
    from other states find the same proof.
    """
    if isinstance(weights.cell, RNNStep):
        return weights
    largest = [float(s.detach().abs().max()) if s.numel() else 0.0 for s in state]
    return replace(weights, initial=tuple(weights.weight_hh.new_full((weights.size,), coarse(most)) for most in largest))


def coarse(bound: float) -> float:
    """Return a bound that is not below the given one, and at most 1.1 percent above: one of 64 for each power of 2.

    Example:
        >>> coarse(0.0), coarse(1.0), round(coarse(1.001), 4)
        (0.0, 1.0, 1.0109)
    """
    if bound <= 0 or not math.isfinite(bound):
        return bound
    place = math.ceil(64 * math.log2(bound))
    found = math.exp2(place / 64)
    return found if found >= bound else math.exp2((place + 1) / 64)  # a logarithm is rounded, too


@torch.no_grad()
def layer_errors(proof: Proof, run: Recurrence, output: Tensor, entering: Tensor | None = None) -> LayerErrors:
    r"""Return a bound on the error of every output of a layer's computed run.

    .. math:: e_t = \lambda e_{t-1} + r_t, \qquad r_t = N(\hat s_t - \Phi(\hat s_{t-1}, x_t)) + \delta_t + L_x \epsilon_t

    with :math:`\delta_t` the rounding of evaluating the step in float64, and :math:`\epsilon_t` what the layer's input may be
    wrong by. The contraction of a gated layer holds in a box that no true state leaves. Outputs outside it are moved to
    its edge first, and the way they are moved is added to their error.

    Args:
        proof: Of the layer.
        run: Input, initial state, lengths and direction.
        output: What was computed, shape (T, B, H), any dtype.
        entering: Bound on the 2-norm of the error of every input, shape (T, B); None where they are exact.
    """
    exact = recurrence_of(proof.weights, run.input[:0].double(), ())
    exact = in_double(exact._replace(input=turned(run.input, run), state=run.state))
    box = None if proof.box is None else tuple(bound.to(output.device) for bound in proof.box)
    wrong = None if entering is None else turned(entering, run)
    own, tiers = _own(proof, exact, output), proof.tiers
    found = [output.new_zeros(output.shape[:2], dtype=torch.float64) for _ in tiers]
    measures = {id(tier): _Measure(tier.contraction.norm, output.shape[2], output.device) for tier in tiers}
    moved = torch.zeros_like(found[0])
    for part in leftovers(exact, turned(output, run), box):
        for tier, residuals in zip(tiers, found, strict=True):
            measure = measures[id(tier)]
            residuals[part.times] = measure(part.residual).add_(own + part.cell_residual, alpha=measure.upper)
            if wrong is not None:
                residuals[part.times] += above(tier.input_gain) * wrong[part.times]
        if part.moved is not None:
            moved[part.times] = part.moved
        if len(tiers) > 1:  # any will do, and the first steps show which does best
            tiers, found = _best(tiers, found, part.times, proof.weights.size)
    running = None if run.batch_sizes is None else running_rows(run.batch_sizes, output.shape[1], output.device)
    return _result(proof, tiers[0], _kept(found[0], running), _kept(moved, running), run)


def _own(proof: Proof, exact: Recurrence, output: Tensor) -> Tensor:
    """Return a bound, in the 2-norm, on what evaluating a step in float64 adds, for each row, (B,)."""
    size, cell, box = proof.weights.size, proof.weights.cell, proof.box
    if box is not None:  # which every state is moved into
        hidden = exact.state[0].new_full(output.shape[1:2], above(float(box[0].norm()), 64 + size))
    else:
        hidden = _largest_entries(exact.state[0], output) * above(math.sqrt(size))
    sizes, inputs = proof.sizes, largest_norm(exact.input)
    widest = float(box[1].max()) if box is not None and len(box) == 2 else 0.0
    own: Tensor = local_rounding(exact._replace(input=hidden), sizes, hidden, torch.full_like(hidden, inputs), widest)
    if isinstance(cell, RNNStep):  # a value is not bounded by the states that are given, but by its argument
        rest = cell.activation.value(torch.zeros(size, dtype=torch.float64), proof.weights.theta)
        reach = sizes.state * hidden + sizes.input * inputs + sizes.bias
        own += 2 * UNITS * ROUND_OFF * (float(rest.norm()) + math.sqrt(size) + cell.activation.steepness[1] * reach)
    own += above(scan_rounding() * widest * math.sqrt(size), 64)
    moved: Tensor = above(proof.weight_gain * proof.weights.slack, 64) * hidden  # by the rounding of a weight in factors
    return own + moved


def _largest_entries(start: Tensor, output: Tensor) -> Tensor:
    """Return the largest absolute value in each row of a run, (B,)."""
    largest: Tensor = torch.linalg.vector_norm(start, ord=math.inf, dim=-1)
    if not output.numel():
        return largest
    both = output.amax(-1).maximum(-output.amin(-1))  # (T, B)
    return largest.maximum(both.amax(0).double())


class _Measure:
    """A norm of states (H, L, B), rounded up; of an LSTM's, with c as zero."""

    def __init__(self, norm: Norm, size: int, device: torch.device) -> None:
        self.norm, self.upper, self.roundings = norm, above(norm.upper), 64 + 2 * norm.size
        self.factor = 1 + self.roundings * ROUND_OFF
        self.short: Tensor | None = None
        if isinstance(norm, MaxNorm):
            self.scale = 1 / norm.weights[-size:].to(device).view(-1, 1, 1)
        elif isinstance(norm, Ellipsoid) and norm.matrix.dim() == 1:
            self.scale = norm.matrix.to(device).view(-1, 1, 1)
        elif isinstance(norm, Ellipsoid):
            self.scale, self.largest = norm.matrix.to(device), float(norm.matrix.norm())
            if device.type == "cpu" and torch.get_float32_matmul_precision() == "highest":
                self.short = (norm.matrix * _LIFT).float()

    def __call__(self, states: Tensor) -> Tensor:
        """Return the norm of each state, (L, B)."""
        if isinstance(self.norm, MaxNorm):
            return (states * self.scale).abs_().amax(dim=0).mul_(self.factor)
        if not isinstance(self.norm, Ellipsoid):
            return self._lengths(states, torch.float64)
        if self.norm.matrix.dim() == 1:
            return self._lengths(states * self.scale, torch.float64)
        if self.short is not None:  # of a difference few digits are enough
            norms = self._of_product(self.short, states.flatten(1).float(), _LIFT).view(states.shape[1:])
            if math.isfinite(float(norms.sum())):
                return norms
        return self._of_product(self.scale, states.flatten(1), 1.0).view(states.shape[1:])

    def _of_product(self, matrix: Tensor, states: Tensor, lift: float) -> Tensor:
        """Return the 2-norm of each product with a matrix, which is ``lift`` times the norm's, rounded up."""
        info = torch.finfo(states.dtype)
        # a product is exact up to its terms' size, not the sum's; and what underflows is lost
        terms = self.roundings * info.eps * self.largest
        lost = self.norm.size**2 * info.tiny * (1 + self.largest)
        norms = self._lengths(matrix @ states, states.dtype).div_(lift)
        return norms.add_(self._lengths(states, states.dtype), alpha=terms).add_(lost)

    def _lengths(self, vectors: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the 2-norm of each of (H, ...) in float64, rounded up: along the first axis much faster than torch's."""
        info = torch.finfo(dtype)
        norms = (vectors * vectors).sum(dim=0).double().sqrt_()
        return norms.mul_(1 + self.roundings * info.eps).add_(math.sqrt(2 * self.norm.size * info.tiny))


def _kept(numbers: Tensor, running: Tensor | None) -> Tensor:
    """Return numbers (T, B), zero where a row has ended."""
    return numbers if running is None else torch.where(running, numbers, 0.0)


def _best(tiers: tuple[Tier, ...], found: list[Tensor], times: slice, size: int) -> tuple[tuple[Tier, ...], list[Tensor]]:
    """Return the tier by which errors would be least if all steps were like these, and its residuals."""
    worst = [float(r[times].max()) if r[times].numel() else 0.0 for r in found]
    costs = [
        w / (1 - tier.contraction.rate) * _to_output(tier.contraction.norm, size) for tier, w in zip(tiers, worst, strict=True)
    ]
    place = costs.index(min(costs))
    return (tiers[place],), [found[place]]


def _result(proof: Proof, tier: Tier, residuals: Tensor, moved: Tensor, run: Recurrence) -> LayerErrors:
    """Return the errors that follow from residuals."""
    largest = float(residuals.max()) if residuals.numel() else 0.0
    if not math.isfinite(largest + (float(moved.max()) if moved.numel() else 0.0)):
        raise NotFiniteError("`output` or `input` is so large that squares of its entries overflow: nothing is proven of it.")
    rate, norm = tier.contraction.rate, tier.contraction.norm
    errors = residual_errors(rate, residuals).mul_(_to_output(norm, proof.weights.size)).add_(moved).mul_(1 + 64 * ROUND_OFF)
    worst = float(errors.max()) if errors.numel() else 0.0
    record = LayerVerification(proof.weights.name, rate, norm.name, largest, worst)
    return LayerErrors(turned(errors, run), record)


def _to_output(norm: Norm, size: int) -> float:
    """Return a bound on the 2-norm of h for a state of norm 1; in a maximum norm the entries of h alone count."""
    if isinstance(norm, MaxNorm):
        return above(float(norm.weights[-size:].norm()), 64 + size)
    return product_above(1 / norm.lower)
