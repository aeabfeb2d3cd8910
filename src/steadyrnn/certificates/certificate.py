"""What ``certify`` returns: claims with their theorems, and bounds by lag and by window."""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from steadyrnn.bounds.gradients import gradient_truncation_error, layer_constants
from steadyrnn.bounds.memory import first_step
from steadyrnn.bounds.norms import above, below
from steadyrnn.bounds.sandwich import gradient_sandwich, regime
from steadyrnn.bounds.stack import stack_errors, stack_horizon
from steadyrnn.checks import check_positive_int
from steadyrnn.errors import ArgumentError, CertificateError

from .base import BaseCertificate, Claim, as_json_number, contraction_in_words
from .layer import LayerCertificate
from .theories import THEORIES

__all__ = ["Certificate", "check_eps"]

_GRADIENT = "Lemma 2 of Miller and Hardt (2019)"


@dataclass(frozen=True)
class Certificate(BaseCertificate):
    """How a recurrent module behaves, with proof, for one direction.

    Args:
        module: The module's class.
        layers: What is proven of each layer, the lowest first.
        input_bound: What was assumed of the 2-norm of every x_t, None if nothing.
        digest: A checksum of the weights the claims are about.
        readout_gain: Lipschitz constant of a model's readout, 1 without one.
        valid_for: ``"every admissible input"``, or the inputs a data-dependent certificate is about.
        dropout_scale: What dropout multiplies outputs by on their way to the next layer, with the same entries kept.
        effort: How far the search for a contraction went, as given to ``certify``.

    Example:
        >>> certificate = sr.certify(sr.RNN(2, 4, transition=sr.SpectralBall(0.5)), input_bound=1.0)
        >>> certificate.contraction <= 0.5 + 1e-6, certificate.truncation_error(10) < 4e-3
        (True, True)
    """

    module: str
    layers: tuple[LayerCertificate, ...]
    input_bound: float | None
    digest: str
    readout_gain: float = 1.0
    valid_for: str = "every admissible input"
    dropout_scale: float = 1.0
    effort: str = "auto"

    @property
    def contraction(self) -> float:
        """The best proven constant; of a stack the largest of its layers'; infinite if none is finite."""
        return max(layer.best.rate for layer in self.layers)

    @property
    def norm(self) -> str:
        """The norm of :attr:`contraction`, with its conversion factor to the 2-norm and back."""
        worst = max(self.layers, key=lambda layer: layer.best.rate).best.norm
        return f"{worst.name} (factor {worst.condition:.4g} to the 2-norm and back)"

    @property
    def state_bound(self) -> float:
        """Bound on the 2-norm of every output of the last layer; infinite where none is proven."""
        return self.layers[-1].state_bound

    @property
    def left_out(self) -> tuple[str, ...]:
        """The tiers that were not tried, each with the layer, the reason, and whether ``effort="full"`` tries it."""
        return tuple(f"{layer.name or 'cell'}: {tier}" for layer in self.layers for tier in layer.left_out)

    @property
    def regime(self) -> str:
        """``vanishes``, ``constant``, ``may explode`` or ``unknown``: what gradients do with the lag.

        ``constant`` is up to the rounding of the weight's dtype, see :func:`~steadyrnn.bounds.sandwich.regime`.
        """
        weights = self.layers[0].weights
        activation = weights.cell.record.activation
        if len(self.layers) == 1 and activation is not None and activation.elementwise:
            found = regime(weights.weight_hh, activation.steepness, weights.dtype, weights.slack)
            if found in ("constant", "vanishes") or not self.stable:
                return found
        return "vanishes" if self.stable else "unknown"

    def truncation_error(self, k: int) -> float:
        """Return a bound on the 2-norm of every output's change when the state is set to zero ``k`` steps before.

        For a stack by the recursion of Note [mathematics], section 5.4. Infinite where no bound is proven.
        """
        if k != 0:
            check_positive_int("k", k)
        if len(self.layers) == 1:
            return self.layers[0].truncation_error(k)
        if k == 0 or not self.stable:  # a window of no steps gives zero; two states are at most twice the bound apart
            return (1 if k == 0 else 2) * self.state_bound
        rates, radii, gains = self._recursion()
        if not all(math.isfinite(number) for number in (*radii, *gains)):
            return 2 * self.state_bound
        errors = stack_errors(rates, radii, gains, k)
        return min(above(errors[-1] / self.layers[-1].best.norm.lower), 2 * self.state_bound)

    def _recursion(self) -> tuple[list[float], list[float], list[float]]:
        """Return the rates, radii and gains of the recursion over a stack, each layer in its norm."""
        tiers = [layer.tier for layer in self.layers]
        scale = self.dropout_scale
        gains = [above(scale * tier.input_gain / under.contraction.norm.lower) for under, tier in pairwise(tiers)]
        return [tier.contraction.rate for tier in tiers], [tier.radius for tier in tiers], [0.0, *gains]

    def horizon(self, eps: float) -> int:
        """Return the smallest proven k with ``truncation_error(k) <= eps``.

        Raises:
            CertificateError: Nothing contracts, or the states are not bounded for want of an ``input_bound``.
        """
        check_eps(eps)
        self._need_memory()
        if self.truncation_error(0) <= eps:
            return 0
        if len(self.layers) > 1:  # whose error may grow before it falls
            return stack_horizon(*self._recursion(), below(eps * self.layers[-1].best.norm.lower))
        return first_step(lambda k: self.truncation_error(k) <= eps)

    def _need_memory(self) -> None:
        """Refuse where nothing is proven of how far back the states reach."""
        if not self.stable:
            worst = max(self.layers, key=lambda layer: layer.best.rate)
            advice = THEORIES[worst.weights.cell.record.theorem].advise(worst)
            raise CertificateError(f"{contraction_in_words(self.contraction).capitalize()}. {advice}")
        if not math.isfinite(self.truncation_error(1)):
            raise CertificateError("The states are not bounded without a bound on the inputs: give `input_bound`.")

    def gradient_bounds(self, lag: int, norm: str = "spectral") -> tuple[float, float]:
        r"""Return bounds on the norm of :math:`\partial s_t / \partial s_{t - \text{lag}}`.

        Note [mathematics], sections 3.3 and 5. Of an RNN the state is h; of an LSTM it is (h, c), and no lower bound above 0
        is known for gated cells.

        Args:
            lag: Number of steps, from 0 on.
            norm: ``"spectral"`` or ``"frobenius"``.
        """
        if norm not in ("spectral", "frobenius"):
            raise ArgumentError(f"`norm` must be 'spectral' or 'frobenius', but is {norm!r}.")
        if lag != 0:
            check_positive_int("lag", lag)
        if len(self.layers) > 1:
            raise CertificateError("No theorem bounds the gradient through time of a stack; certify its layers one by one.")
        layer = self.layers[0]
        size = layer.weights.size * layer.weights.cell.states
        scale = math.sqrt(size) if norm == "frobenius" else 1.0
        high = above(scale * min(tier.contraction.after(lag) for tier in layer.tiers))
        low = 0.0
        activation = layer.weights.cell.record.activation
        if activation is not None and activation.elementwise:
            low, sandwich = gradient_sandwich(layer.weights.weight_hh, activation.steepness, lag, norm)
            high = min(high, sandwich) if layer.weights.slack == 0 else high
            low = low if layer.weights.slack == 0 else 0.0
        elif lag == 0:
            low = scale
        return low, high

    def gradient_truncation_error(self, k: int, loss_gain: float, loss_smoothness: float) -> float:
        r"""Return a bound on the change of a loss's gradient by the weights when the state starts ``k`` steps before.

        Lemma 2 of Miller and Hardt (Note [mathematics], section 4.3), for one layer of an RNN with a smooth activation that
        contracts in the 2-norm.

        Args:
            k: Length of the window, from 1 on.
            loss_gain: Bound on the loss's gradient by the state.
            loss_smoothness: Lipschitz constant of that gradient.
        """
        check_positive_int("k", k)
        layer, activation = self.layers[0], self.layers[0].weights.cell.record.activation
        rate = layer.spectral_rate
        if len(self.layers) > 1 or rate is None or activation is None:
            raise CertificateError(f"The gradient of a truncated run is bounded ({_GRADIENT}) for one layer of an RNN only.")
        if not rate < 1 or not math.isfinite(activation.smoothness):
            raise CertificateError(
                f"{_GRADIENT} needs a contraction in the 2-norm, here {rate:.6g}, and a smooth activation, here "
                f"{layer.weights.cell.key}."
            )
        if self.input_bound is None:
            raise CertificateError(f"{_GRADIENT} needs a bound on the inputs: give `input_bound`.")
        trained = sum(bias is not None for bias in (layer.weights.bias_ih, layer.weights.bias_hh))
        bounds, slope = (layer.state_bound, self.input_bound), activation.steepness[1]
        constants = layer_constants(rate, activation.smoothness, *bounds, trained, slope=slope)
        return gradient_truncation_error(constants, k, layer.state_bound, loss_gain, loss_smoothness)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Every claim, layer by layer."""
        result: list[Claim] = []
        for layer in self.layers:
            under = assumptions(layer, self.valid_for)
            for tier in layer.tiers:
                name = f"{layer.name or 'cell'}: contraction, {tier.name}"
                result.append(Claim(name, tier.contraction.rate, tier.contraction.norm.name, under, tier.contraction.theorem))
            theorem = THEORIES[layer.weights.cell.record.theorem].states_theorem or layer.best.theorem
            result.append(Claim(f"{layer.name or 'cell'}: bound on states", layer.state_bound, "2-norm", under, theorem))
        return tuple(result)

    def to_dict(self) -> dict[str, Any]:
        """Return everything that is claimed, as JSON can hold it, with the checksum of the weights it is claimed of."""
        return {
            "format": "steadyrnn certificate 1",
            "module": self.module,
            "valid_for": self.valid_for,
            "input_bound": self.input_bound,
            "digest": self.digest,
            "contraction": as_json_number(self.contraction),
            "stable": self.stable,
            "regime": self.regime,
            "effort": self.effort,
            "left_out": [*self.left_out],
            "claims": [claim.to_dict() for claim in self.claims],
            "norms": [layer.best.norm.to_dict() for layer in self.layers],
        }

    def __str__(self) -> str:
        """Return a table of the claims."""
        rows = [(c.name, c.value_in_words, c.norm, c.theorem) for c in self.claims]
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        found = ("stable, " if self.stable else "") + contraction_in_words(self.contraction)
        bound = "no bound on inputs" if self.input_bound is None else f"inputs of norm up to {self.input_bound:g}"
        return "\n".join(
            [f"{self.module}: {found} ({self.valid_for}, {bound}); gradients: {self.regime}", *lines, *self.left_out]
        )


def assumptions(layer: LayerCertificate, valid_for: str) -> tuple[str, ...]:
    """Return what a layer's claims are made under."""
    start = "initial state zero or the learned one"
    bound = "no bound on inputs" if layer.input_bound is None else f"2-norm of every input at most {layer.input_bound:g}"
    return valid_for, start, bound, "exact arithmetic on the weights as used"


def check_eps(eps: float) -> None:
    """Refuse an error that is no positive number."""
    if not (isinstance(eps, int | float) and eps > 0 and math.isfinite(eps)):
        raise ArgumentError(f"`eps` must be a positive number, but is {eps!r}.")
