"""What every certificate says, and how it is shown: as text and as JSON."""

import json
import math
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from decimal import ROUND_CEILING, Context
from typing import Any, Generic, TypeVar

__all__ = ["BaseCertificate", "Claim", "LayerRecord", "LayeredReport", "contraction_in_words", "format_above", "rate_in_words"]


def contraction_in_words(rate: float) -> str:
    """Return what a proven constant says: a contraction if it is below 1, and that none is proven otherwise.

    Example:
        >>> contraction_in_words(0.81), contraction_in_words(2.5), contraction_in_words(math.inf)
        ('contraction 0.81', 'no contraction proven (constant 2.5, not below 1)', 'no contraction proven')
    """
    if rate < 1:
        return f"contraction {_format_rate(rate)}"
    return (
        f"no contraction proven (constant {_format_rate(rate)}, not below 1)"
        if math.isfinite(rate)
        else "no contraction proven"
    )


def rate_in_words(rate: float) -> str:
    """Return a proven constant for a table of contractions: the number if it is below 1, and that there is none otherwise.

    Example:
        >>> rate_in_words(0.81), rate_in_words(2.5), rate_in_words(math.inf)
        ('0.81', 'none (2.5)', 'none')
    """
    if rate < 1:
        return _format_rate(rate)
    return f"none ({_format_rate(rate)})" if math.isfinite(rate) else "none"


def _format_rate(rate: float) -> str:
    """Return a rate in six digits, or in as many as do not say 1."""
    return next(text for digits in range(6, 18) if (text := format_above(rate, digits)) != "1" or rate == 1)


def format_above(bound: float, digits: int = 6) -> str:
    """Write an upper bound in so many digits, rounded up: the number that is read is proven, too.

    Example:
        >>> format_above(0.81), format_above(0.1234561), format_above(1.2301e-5, 3), format_above(math.inf)
        ('0.81', '0.123457', '1.24e-05', 'inf')
    """
    text = f"{bound:.{digits}g}"
    if not float(text) < bound or not math.isfinite(bound):
        return text
    return f"{float(Context(prec=digits, rounding=ROUND_CEILING).create_decimal(bound)):.{digits}g}"


@dataclass(frozen=True)
class Claim:
    """One proven number: what it bounds, in which norm, under which assumptions, by which theorem."""

    name: str
    value: float
    norm: str
    assumptions: tuple[str, ...]
    theorem: str

    @property
    def value_in_words(self) -> str:
        """The value as a table shows it: a constant that is not below 1 is no contraction."""
        return rate_in_words(self.value) if "contraction" in self.name else format_above(self.value)

    def to_dict(self) -> dict[str, Any]:
        """Return the claim as JSON can hold it."""
        return {**asdict(self), "value": as_json_number(self.value), "assumptions": [*self.assumptions]}


class BaseCertificate(ABC):
    """What is proven of a module: every kind of certificate has these.

    Attributes:
        module: The module's class.
        input_bound: What was assumed of the 2-norm of every x_t, None if nothing.
        digest: A checksum of the weights the claims are about.
        readout_gain: Lipschitz constant of a model's readout, 1 without one.
        valid_for: The inputs that the claims are about.
    """

    module: str
    input_bound: float | None
    digest: str
    readout_gain: float
    valid_for: str

    @property
    @abstractmethod
    def contraction(self) -> float:
        """The best proven constant; infinite if none is finite."""

    @property
    def stable(self) -> bool:
        """Whether it is proven to contract."""
        return self.contraction < 1

    @property
    @abstractmethod
    def norm(self) -> str:
        """The norm of :attr:`contraction`."""

    @property
    @abstractmethod
    def state_bound(self) -> float:
        """Bound on the 2-norm of every output; infinite where none is proven."""

    @property
    @abstractmethod
    def regime(self) -> str:
        """``vanishes``, ``constant``, ``may explode`` or ``unknown``: what gradients do with the lag."""

    @property
    @abstractmethod
    def left_out(self) -> tuple[str, ...]:
        """The tiers that were not tried, each with the reason."""

    @property
    @abstractmethod
    def claims(self) -> tuple[Claim, ...]:
        """Every claim."""

    @abstractmethod
    def truncation_error(self, k: int) -> float:
        """Return a bound on the 2-norm of every output's change when the state is set to zero ``k`` steps before."""

    @abstractmethod
    def horizon(self, eps: float) -> int:
        """Return a proven k with ``truncation_error(k) <= eps``."""

    @abstractmethod
    def gradient_bounds(self, lag: int, norm: str = "spectral") -> tuple[float, float]:
        """Return bounds on the norm of the Jacobian between two states ``lag`` steps apart."""

    @abstractmethod
    def gradient_truncation_error(self, k: int, loss_gain: float, loss_smoothness: float) -> float:
        """Return a bound on the change of a loss's gradient by the weights when the state starts ``k`` steps before."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return everything that is claimed, as JSON can hold it."""

    def to_json(self) -> str:
        """Return :meth:`to_dict` as text."""
        return json.dumps(self.to_dict(), indent=1)


def as_json_number(value: float) -> float | str:
    """Return a number as JSON can hold it: as text where it is not finite."""
    return value if math.isfinite(value) else str(value)


@dataclass(frozen=True)
class LayerRecord:
    """What every report says of one layer.

    Args:
        name: The end of the names of its weights.
        rate: The proven rate of contraction.
        norm: The norm it holds in.
    """

    name: str
    rate: float
    norm: str


Record = TypeVar("Record", bound=LayerRecord)


class LayeredReport(Generic[Record]):
    """A report of a run, layer by layer: the layer with the largest rate stands for all."""

    layers: tuple[Record, ...]

    @property
    def slowest(self) -> Record:
        """The layer with the largest rate."""
        return max(self.layers, key=lambda layer: layer.rate)

    @property
    def rate(self) -> float:
        """The largest rate of a layer."""
        return self.slowest.rate

    @property
    def norm(self) -> str:
        """The norm of that rate."""
        return self.slowest.norm
