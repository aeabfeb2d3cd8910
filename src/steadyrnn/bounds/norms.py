"""Norms in which a recurrent network contracts, with their conversion to the 2-norm."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch
from torch import Tensor

from steadyrnn.checks import check_finite
from steadyrnn.errors import ArgumentError, ShapeError

__all__ = [
    "ROUND_OFF",
    "TINY",
    "Contraction",
    "Ellipsoid",
    "MaxNorm",
    "Norm",
    "TwoNorm",
    "above",
    "below",
    "contraction_in_words",
    "input_slack",
    "rate_in_words",
]

ROUND_OFF = 2.0**-53
"""Unit round-off of float64, in which every bound is computed."""
TINY = 2.0**-1022
"""The smallest normal number, which stands for what underflows."""


def above(value: float, roundings: int = 16) -> float:
    """Return a number that is not below what ``value`` would be without its last ``roundings`` roundings.

    Example:
        >>> above(1.0) > 1.0
        True
    """
    return value * (1 + roundings * ROUND_OFF)


def below(value: float, roundings: int = 16) -> float:
    """Return a number that is not above what ``value`` would be without its last ``roundings`` roundings.

    Example:
        >>> below(1.0) < 1.0
        True
    """
    return value * (1 - roundings * ROUND_OFF)


def input_slack(width: int, dtype: torch.dtype) -> float:
    """Return what the norm of a vector of norm 1 and ``width`` entries may be after it is rounded to ``dtype``.

    Example:
        >>> 1 < input_slack(3, torch.float64) < 1 + 1e-13
        True
    """
    return 1 + 16 * (width + 2) * torch.finfo(dtype).eps


def contraction_in_words(rate: float) -> str:
    """Return what a proven constant says: a contraction if it is below 1, and that none is proven otherwise.

    Example:
        >>> contraction_in_words(0.81), contraction_in_words(2.5), contraction_in_words(math.inf)
        ('contraction 0.81', 'no contraction proven (constant 2.5, not below 1)', 'no contraction proven')
    """
    if rate < 1:
        return f"contraction {_written(rate)}"
    return f"no contraction proven (constant {_written(rate)}, not below 1)" if math.isfinite(rate) else "no contraction proven"


def rate_in_words(rate: float) -> str:
    """Return a proven constant for a table of contractions: the number if it is below 1, and that there is none otherwise.

    Example:
        >>> rate_in_words(0.81), rate_in_words(2.5), rate_in_words(math.inf)
        ('0.81', 'none (2.5)', 'none')
    """
    if rate < 1:
        return _written(rate)
    return f"none ({_written(rate)})" if math.isfinite(rate) else "none"


def _written(rate: float) -> str:
    """Return a rate in six digits, or in as many as do not say 1."""
    return next(text for digits in range(6, 18) if (text := f"{rate:.{digits}g}") != "1" or rate == 1)


class Norm(ABC):
    r"""A norm on states of ``size`` entries.

    Law: ``lower`` :math:`\lVert s \rVert_2 \le N(s) \le` ``upper`` :math:`\lVert s \rVert_2` for every state.
    """

    size: int
    lower: float
    upper: float
    name: str

    @abstractmethod
    def __call__(self, states: Tensor) -> Tensor:
        """Return the norm of each state, shape (...), in float64, for states (..., ``size``)."""

    @property
    def condition(self) -> float:
        """What a bound grows by on its way from the 2-norm to this one and back."""
        return above(self.upper / self.lower) if self.upper > self.lower else 1.0

    @abstractmethod
    def to_dict(self) -> dict[str, object]:
        """Return what the norm is made of, as JSON can hold it."""


@dataclass(frozen=True)
class TwoNorm(Norm):
    r"""The Euclidean norm.

    Example:
        >>> TwoNorm(2)(torch.tensor([3.0, 4.0]))
        tensor(5., dtype=torch.float64)
    """

    size: int
    lower = upper = 1.0
    name = "2-norm"

    def __call__(self, states: Tensor) -> Tensor:
        """Return the Euclidean norm of each state."""
        norms: Tensor = torch.linalg.vector_norm(states.double(), dim=-1)
        return norms

    def to_dict(self) -> dict[str, object]:
        """Return the kind."""
        return {"kind": "two", "size": self.size}


@dataclass(frozen=True)
class Ellipsoid(Norm):
    r"""The norm :math:`\lVert A s \rVert_2` of a nonsingular matrix.

    ``lower`` and ``upper`` enclose the singular values of A; they are widened by the rounding of their computation.

    Args:
        matrix: A, shape ``(N, N)``, or its diagonal, shape ``(N,)``; float64.
        scaling: Of a quadratic norm, the :math:`d` by which its columns were multiplied, shape ``(N,)``: with it the rate of
            other weights in the same norm can be proven.

    Example:
        >>> Ellipsoid(torch.tensor([1.0, 2.0]))(torch.tensor([0.0, 1.0]))
        tensor(2., dtype=torch.float64)
    """

    matrix: Tensor
    scaling: Tensor | None = field(default=None, repr=False)
    lower: float = field(init=False)
    upper: float = field(init=False)

    def __post_init__(self) -> None:
        """Compute the conversion."""
        matrix = check_finite("matrix", self.matrix).detach().double()
        if matrix.dim() not in (1, 2) or (matrix.dim() == 2 and matrix.shape[0] != matrix.shape[1]):
            raise ShapeError(f"`matrix` must be square or a diagonal, but has shape {tuple(matrix.shape)}.")
        values = matrix.abs() if matrix.dim() == 1 else torch.linalg.svdvals(matrix)
        slack = 0.0 if matrix.dim() == 1 else 32 * len(matrix) * ROUND_OFF * float(values.max())
        object.__setattr__(self, "matrix", matrix)
        object.__setattr__(self, "lower", below(float(values.min()) - slack))
        object.__setattr__(self, "upper", above(float(values.max()) + slack))
        if not self.lower > 0:
            raise ArgumentError("`matrix` must be nonsingular beyond rounding, else it makes no norm.")

    @property
    def size(self) -> int:  # type: ignore[override]
        """N."""
        return len(self.matrix)

    @property
    def name(self) -> str:  # type: ignore[override]
        """The kind of norm."""
        return "weighted 2-norm" if self.matrix.dim() == 1 else "quadratic norm"

    def __call__(self, states: Tensor) -> Tensor:
        """Return the norm of each state."""
        wide, matrix = states.double(), self.matrix.to(states.device)
        weighted = wide * matrix if matrix.dim() == 1 else wide @ matrix.mT
        norms: Tensor = torch.linalg.vector_norm(weighted, dim=-1)
        return norms

    def to_dict(self) -> dict[str, object]:
        """Return the matrix or its diagonal."""
        return {"kind": "ellipsoid", "matrix": self.matrix.tolist()}


@dataclass(frozen=True)
class MaxNorm(Norm):
    r"""The weighted maximum norm :math:`\max_j |s_j| / v_j` with :math:`v > 0`.

    Args:
        weights: v, shape ``(N,)``.

    Example:
        >>> MaxNorm(torch.tensor([1.0, 2.0]))(torch.tensor([1.0, 4.0]))
        tensor(2., dtype=torch.float64)
    """

    weights: Tensor
    name = "weighted maximum norm"

    def __post_init__(self) -> None:
        """Refuse weights that make no norm."""
        weights = check_finite("weights", self.weights).detach().double()
        if weights.dim() != 1 or not bool((weights > 0).all()):
            raise ArgumentError("`weights` must be positive numbers, one an entry of the state.")
        object.__setattr__(self, "weights", weights)

    @property
    def size(self) -> int:  # type: ignore[override]
        """N."""
        return len(self.weights)

    @property
    def lower(self) -> float:  # type: ignore[override]
        r"""Since :math:`\lVert s \rVert_2 \le N(s) \lVert v \rVert_2`."""
        return below(1 / (float(self.weights.norm()) * (1 + self.size * ROUND_OFF)))

    @property
    def upper(self) -> float:  # type: ignore[override]
        r"""Since :math:`|s_j| \le \lVert s \rVert_2`."""
        return above(1 / float(self.weights.min()))

    def __call__(self, states: Tensor) -> Tensor:
        """Return the norm of each state."""
        return (states.double() / self.weights.to(states.device)).abs().amax(dim=-1)

    def to_dict(self) -> dict[str, object]:
        """Return the weights."""
        return {"kind": "max", "weights": self.weights.tolist()}


@dataclass(frozen=True)
class Contraction:
    r"""A proven rate: one step brings two states of the same input closer, :math:`N(s_1^+ - s_2^+) \le \lambda N(s_1 - s_2)`.

    Args:
        rate: :math:`\lambda`, rounded up; 1 or more where nothing contracts, infinite where nothing is known.
        norm: N. The state of an LSTM is its cell state followed by its output, ``(c, h)``.
        theorem: Where the proof is.
    """

    rate: float
    norm: Norm
    theorem: str

    @property
    def stable(self) -> bool:
        """Whether the rate is below 1."""
        return self.rate < 1

    def after(self, steps: int) -> float:
        """Return a bound on the rate of many steps, from the 2-norm to the 2-norm (a power is rounded a few times only)."""
        if steps == 0:
            return 1.0
        try:
            power = self.rate**steps
        except OverflowError:
            return math.inf
        return above(self.norm.condition * max(power, TINY if self.rate else 0.0), 64)
