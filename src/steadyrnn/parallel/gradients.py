"""The gradient of a run in windows: how far it is from the sequential one's, for the cotangents that arrive."""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from steadyrnn.bounds.gradients import Constants, gradient_truncation_error, in_norm, layer_constants
from steadyrnn.bounds.memory import first_step
from steadyrnn.bounds.norms import ROUND_OFF, TwoNorm, above, power_above, product_above
from steadyrnn.bounds.parallel_gradients import masked_gradient_error, masks_agree
from steadyrnn.cells.base import State
from steadyrnn.certificates.layer import LayerCertificate
from steadyrnn.checks import is_legacy_batchedtensor
from steadyrnn.engines.base import Recurrence, Windows, flatten_weight, stack_gates, unflatten_weight
from steadyrnn.engines.cuda.kernels.norms import every_norm
from steadyrnn.engines.loop.ops import is_kept
from steadyrnn.errors import CertificateError

if TYPE_CHECKING:
    from .plan import Bounds
    from .run import Pass, WindowRun
    from .spread import Spread

__all__ = [
    "Evidence",
    "GradientNorm",
    "Masks",
    "Smooth",
    "collect_evidence",
    "constants_of",
    "detach_run",
    "gradient_norms",
    "gradient_refusal",
    "gradient_warmup",
    "is_kinked",
]

_BLOCK = 2**22  # pre-activations checked at once


def is_kinked(certificate: LayerCertificate) -> bool:
    """Say whether the layer's activation is linear on either side of zero.

    A kink at zero alone does not say so, since a function may be curved beside it. A homogeneous one is linear there.

    Example:
        >>> from steadyrnn.certificates.certify import read_layers
        >>> [is_kinked(read_layers(sr.RNN(2, 3, nonlinearity=name))[0]) for name in ("relu", "tanh")]
        [True, False]
    """
    activation = certificate.weights.cell.record.activation
    return activation is not None and activation.homogeneous and activation.kinks == (0.0,)


def gradient_refusal(certificates: list[LayerCertificate]) -> str | None:
    """Return why no theorem bounds the gradient, as a clause; None where one does.

    Example:
        >>> from steadyrnn.certificates.certify import read_layers
        >>> gradient_refusal(read_layers(sr.GRU(2, 3), input_bound=1.0))
        'no theorem gives it for a gated cell'
    """
    activation = certificates[0].weights.cell.record.activation
    if activation is None:
        return "no theorem gives it for a gated cell"
    if len(certificates) > 1:
        return "no theorem gives it for a stack of layers"
    if not is_kinked(certificates[0]) and not math.isfinite(activation.smoothness):
        return f"no theorem gives it for the activation {activation.name!r}, which is not smooth"
    return None


def constants_of(certificate: LayerCertificate, state_bound: float, input_bound: float) -> Constants:
    """Return the constants of a smooth layer, or, for a kinked one, those for equal masks: no curvature.

    Note [mathematics], section 4.2.
    """
    weights, activation = certificate.weights, certificate.weights.cell.record.activation
    if activation is None or certificate.spectral_rate is None:
        raise CertificateError(
            "The constants of smoothness (docs/notes/mathematics.md, 4.2) are those of an Elman layer, and this is none."
        )
    bias = weights.bias_ih is not None or weights.bias_hh is not None
    smoothness = 0.0 if is_kinked(certificate) else activation.smoothness
    slope = activation.steepness[1]
    return layer_constants(certificate.spectral_rate, smoothness, state_bound, input_bound, bias, slope=slope)


class GradientNorm(NamedTuple):
    """A norm in which the gradient's error is bounded, with what Note [mathematics], section 4.3, needs in it."""

    constants: Constants  # of the layer, in this norm
    radius: float  # norm of every state
    lower: float  # of the norm, against the 2-norm
    upper: float

    def factor(self, context: int) -> float:
        """Return the truncated gradient's error for a cotangent of 2-norm 1, whose dual norm is at most 1 / ``lower``."""
        return gradient_truncation_error(self.constants, context, self.radius, above(1 / self.lower), 0.0)

    def masked(self, context: Tensor, agreeing: Tensor) -> Tensor:
        """Return :func:`masked_gradient_error` likewise, of any shape."""
        back = above(1 / self.lower)
        radius = product_above(self.radius, self.upper, back, back)
        gain = product_above(self.constants.weight_gain, back)
        return masked_gradient_error(self.constants.rate, context, agreeing, radius, gain)


def gradient_norms(certificate: LayerCertificate, radius: float, states: float, inputs: float) -> tuple[GradientNorm, ...]:
    """Return the norms in which a bound on the gradient's error is known: the 2-norm, the certificate's best, or both.

    Args:
        certificate: Of an Elman layer.
        radius: Bound on every state of the sequential run in the norm of the best contraction.
        states: Bound on the 2-norm of every state, of the sequential run and of the windows.
        inputs: Bound on the 2-norm of every input.
    """
    constants, best = constants_of(certificate, states, inputs), certificate.best
    found = [GradientNorm(constants, states, 1.0, 1.0)] if constants.rate < 1 else []
    if not isinstance(best.norm, TwoNorm):
        lower, upper = best.norm.lower, best.norm.upper
        reach = min(radius, product_above(upper, states))
        found.append(GradientNorm(in_norm(constants, best.rate, lower, upper), reach, lower, upper))
    return tuple(found)


def gradient_warmup(norms: Sequence[GradientNorm], tol: float) -> int:
    r"""Return a warm-up behind which the factor of :class:`Smooth` is at most ``tol`` at every output.

    The factor is :math:`a \lambda^K + b K \lambda^{K-1}` in the context K, which falls from
    :math:`K = 1 / \ln(1/\lambda)` on; the warm-up is one less than the first such K that is enough.

    Args:
        norms: Of the layer; the one that needs the fewest steps counts.
        tol: Above zero.

    Example:
        >>> gradient_warmup([GradientNorm(layer_constants(0.9, 0.0, 10.0, 1.0, bias=True), 10.0, 1.0, 1.0)], 1e-6)
        204
    """
    return min(_warmup(norm, tol) for norm in norms)


def _warmup(norm: GradientNorm, tol: float) -> int:
    """Return :func:`gradient_warmup` by one norm."""
    rate = norm.constants.rate
    peak = 1 if rate == 0 else max(math.ceil(-1 / math.log(rate)), 1)
    return peak + first_step(lambda more: norm.factor(peak + more) <= tol) - 1


@dataclass(frozen=True)
class Smooth:
    """Factors of a smooth layer: an output's depends on its context only; Note [mathematics], section 4.3.

    Args:
        certificate: Of the layer.
        radius: As of :func:`gradient_norms`.
        states: Likewise.
        inputs: Likewise.
        windows: Of the run.
        sweeps: Of the run.
    """

    certificate: LayerCertificate
    radius: float
    states: float
    inputs: float
    windows: Windows
    sweeps: int

    def by_window(self) -> Tensor:
        """Return the factor of each output behind the warm-up, (C, J, 1)."""
        k, chunk, number = self.windows
        first = k + self.sweeps * chunk
        norms = gradient_norms(self.certificate, self.radius, self.states, self.inputs)
        position = [min(norm.factor(first + i) for norm in norms) for i in range(1, chunk + 1)]
        factors = torch.tensor(position, dtype=torch.float64, device="cpu").unsqueeze(1).repeat(1, number)
        factors[:, : self.sweeps + 1] = 0.0  # these reach back to the true start
        return factors.unsqueeze(-1)


@dataclass(frozen=True)
class Masks:
    r"""Factors of a piecewise linear layer, from where its masks are proven to be those of the true states.

    Note [mathematics], section 6.4.

    A window's chain of steps is its warm-up and, for each sweep, the window before it. In the warm-up the state's error
    is also measured, by the window before, which covers the same times.

    Args:
        norms: In which the factor is known, without curvature; the least counts.
        run: With every pass remembered; nothing in it needs a gradient (:func:`detach_run`).
        rounding: By how much computed states may be off.
        margin: By how much a computed step may be off.
    """

    norms: tuple[GradientNorm, ...]
    run: "WindowRun"
    rounding: float
    margin: float

    @property
    def windows(self) -> Windows:
        """Of the run."""
        return self.run.windows

    def worst(self) -> float:
        """Return the largest factor of an output of a row that still runs."""
        run, (k, chunk, number) = self.run, self.run.windows
        time = k + chunk * torch.arange(number, device="cpu").view(1, -1, 1) + torch.arange(chunk, device="cpu").view(-1, 1, 1)
        counts = time < (run.recurrence.input.shape[0] if run.lengths is None else run.lengths)  # (C, J, B or 1)
        factors = self.by_window()
        return float(torch.where(counts.to(factors.device), factors, 0.0).max())

    def by_window(self) -> Tensor:
        """Return the factor of each output behind the warm-up, (C, J, B)."""
        if self.run.fused is not None and self.run.fused.is_changed():
            raise CertificateError(
                "There is no bound on the error of the gradient: outputs, which it is computed from, were changed in place."
            )
        run, sweeps = self.run, self.run.sweeps
        k, chunk, number = run.windows
        passes, chain = [*run.earlier, run.latest], [self._warm_flags()]
        chain += [self._main_flags(one) for one in passes]
        behind = [max(sweeps - place, 0) for place in (0, *range(sweeps + 1))]  # windows back of each part of the chain
        flags = torch.cat([part[:, sweeps + 1 - back : number - back] for part, back in zip(chain, behind, strict=True)])
        time = torch.arange(1, len(flags) + 1, device=flags.device).view(-1, 1, 1)
        agreeing = (time - torch.where(flags, 0, time).cummax(dim=0).values)[-chunk:]
        context = (k + sweeps * chunk + torch.arange(1, chunk + 1, device=flags.device)).view(-1, 1, 1)
        found = [norm.masked(context.expand_as(agreeing), agreeing) for norm in self.norms]
        later = torch.stack(found).amin(dim=0)
        return torch.cat([later.new_zeros(chunk, sweeps + 1, run.rows), later], dim=1)

    def _main_flags(self, one: "Pass") -> Tensor:
        """Say at which steps of a pass the masks are proven, (C, J, B)."""
        run = self.run
        output = run.main_output(one)
        decay, errors = _powers(run.contraction.rate, run.windows.chunk, output), one.errors.to(output.device)
        before = decay.view(-1, 1, 1) * errors / run.contraction.norm.lower
        return self._flags(run.windows.cut(run.recurrence.input), one.start[0], output, before)

    def _warm_flags(self) -> Tensor:
        """Say at which steps of the warm-up the masks are proven, (k, J, B)."""
        run, first = self.run, (self.run.earlier or [self.run.latest])[0]
        k, chunk, number = run.windows
        norm, rate, rows = run.contraction.norm, run.contraction.rate, run.rows
        warm = run.warm_output()
        errors = first.errors.to(warm.device)
        before = _powers(rate, k, errors).view(-1, 1, 1).expand(-1, number, rows) * (run.radius / norm.lower)
        if 1 < k <= chunk:
            there = run.main_output(first)[chunk - k : -1, : (number - 1) * rows].double()
            gap = torch.linalg.vector_norm(warm[:-1, rows:].double() - there, dim=-1).unflatten(1, (number - 1, rows))
            carried = _powers(rate, chunk, errors)[chunk - k + 1 :].view(-1, 1, 1) * errors[:-1]
            measured = gap * (1 + 1e-12) + carried / norm.lower
            before = torch.cat([before[:1], torch.cat([before[1:, :1], before[1:, 1:].minimum(measured)], dim=1)])
        start = warm.new_zeros(number * rows, warm.shape[2])
        start[:rows] = run.recurrence.state[0]
        return self._flags(run.windows.cut_warmups(run.recurrence.input), start, warm, before)

    def _flags(self, data: Tensor, start: Tensor, output: Tensor, before: Tensor) -> Tensor:
        """Say at which steps all masks are proven, for errors ``before`` each step, (steps, J, B)."""
        run = self.run.recurrence
        weight, weight_ih = stack_gates(run.weight_hh, torch.float64).double(), run.weight_ih.double()
        bias = sum((b.double() for b in (run.bias_ih, run.bias_hh) if b is not None), weight.new_zeros(()))
        row_norms = torch.linalg.vector_norm(weight, dim=1)
        states = torch.cat([start.unsqueeze(0), output[:-1]]) if len(output) else output
        wrong = before.flatten(1) * (1 + 64 * ROUND_OFF) + self.rounding
        block = max(1, _BLOCK // max(1, output[:1].numel()))
        parts = [
            masks_agree(s.double() @ weight.mT + x.double() @ weight_ih.mT + bias, row_norms, e, self.margin)
            for s, x, e in zip(states.split(block), data.split(block), wrong.split(block), strict=True)
        ]
        flags: Tensor = torch.cat(parts).unflatten(1, before.shape[1:])
        return flags


def _powers(rate: float, number: int, like: Tensor) -> Tensor:
    """Return 1, lambda, lambda^2, ..., rounded up."""
    return torch.tensor([power_above(rate, i) for i in range(number)], dtype=torch.float64, device=like.device)


def detach_run(run: "WindowRun") -> "WindowRun":
    """Return the same run without its graph."""
    kept = copy.copy(run)
    kept.recurrence = _detach_recurrence(run.recurrence)
    kept.warm, kept.joined = run.warm.detach(), run.joined.detach()
    kept.fused = None if run.fused is None else run.fused.copy_states()
    kept.earlier, kept.latest = [_detach_pass(one) for one in run.earlier], _detach_pass(run.latest)
    return kept


def _detach_pass(one: "Pass") -> "Pass":
    start, end = (tuple(s.detach() for s in state) for state in (one.start, one.end))
    return one._replace(start=start, output=one.output.detach(), end=end)


def _detach_recurrence(run: Recurrence) -> Recurrence:
    bias_ih, bias_hh, theta = (None if t is None else t.detach() for t in (run.bias_ih, run.bias_hh, run.theta))
    return run._replace(
        input=run.input.detach(), state=tuple(s.detach() for s in run.state), weight_ih=run.weight_ih.detach(),
        weight_hh=unflatten_weight([part.detach() for part in flatten_weight(run.weight_hh)]), bias_ih=bias_ih, bias_hh=bias_hh,
        theta=theta,
    )  # fmt: skip


@dataclass
class Evidence:
    """What is known of the gradient after a call: one factor per output, and the cotangents that arrived since.

    Args:
        factors: How to compute the factors; None where all are zero.
        refusal: Why there is no bound, or None.
        cotangents: Norms of what arrived, added up, (T, B).
        everywhere: Of a group, the sum of the bounds of all ranks.
    """

    factors: "Smooth | Masks | Spread | None" = None
    refusal: str | None = None
    cotangents: Tensor | None = field(default=None, repr=False)
    everywhere: float | None = None

    def watch(self, output: Tensor, state: State) -> None:
        """Have autograd tell what arrives at outputs (T, B, H) and final states, of which windows take h from the outputs."""
        if output.requires_grad:
            output.register_hook(self.arrive)
            still = output.new_zeros(output.shape[:2], dtype=torch.float64)
            for one in state:
                if one.requires_grad:
                    one.register_hook(lambda _: self.add(still))

    def arrive(self, gradient: Tensor | None) -> None:
        """Note the cotangent of the outputs; autograd has none where final states only are used."""
        if gradient is None:
            return
        if is_legacy_batchedtensor(gradient):
            self.refusal = "many cotangents came at once"
            return
        self.add(every_norm(gradient.detach()))

    def add(self, norms: Tensor) -> None:
        """Add norms (T, B) to those that arrived."""
        self.cotangents = norms if self.cotangents is None else self.cotangents + norms

    def worst(self) -> float:
        """Return the largest factor of an output."""
        return self.factors.worst() if isinstance(self.factors, Masks) else 0.0

    def bound(self) -> float:
        """Return the bound on the gradient's error for what arrived."""
        if self.refusal is not None:
            raise CertificateError(f"There is no bound on the error of the gradient: {self.refusal}.")
        if self.cotangents is None:
            raise CertificateError("There is no bound on the error of the gradient before a cotangent arrives: call backward.")
        return self.own() if self.everywhere is None else above(self.everywhere, 1024)

    def own(self) -> float:
        """Return the bound on the gradient's error for what arrived at this rank."""
        if self.factors is None or self.cotangents is None:
            return 0.0
        arrived = self.cotangents
        if isinstance(self.factors, Smooth | Masks):
            factors = self.factors.by_window().transpose(0, 1).flatten(0, 1)  # (J C, B)
            arrived = arrived[self.factors.windows.warmup :]
            total = float((arrived * factors[: len(arrived)].to(arrived.device)).sum())
        else:
            total = self.factors.weigh(arrived)
        return 0.0 if total == 0 else above(total, 64 + arrived.numel())


def collect_evidence(
    run: "WindowRun", certificate: LayerCertificate, bounds: "Bounds", rounding: float, local: float, refusal: str | None
) -> Evidence:
    """Return what is known of the gradient of a run.

    Args:
        run: With its last pass.
        certificate: With the contraction that counts.
        bounds: On its states.
        rounding: By how much computed states may be off.
        local: By how much a computed step may be off.
        refusal: Why there is no bound, or None.
    """
    if refusal is not None or not is_kept(run.recurrence.tensors):
        return Evidence(None, refusal)
    reached = above(max(run.largest, bounds.initial) + run.truncation + rounding)
    known = certificate, bounds.radius, min(bounds.states, reached), bounds.inputs
    if is_kinked(certificate):
        return Evidence(Masks(gradient_norms(*known), detach_run(run), rounding, local))
    return Evidence(Smooth(*known, run.windows, run.sweeps))
