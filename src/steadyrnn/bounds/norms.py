"""Norms in which a recurrent network contracts: what they are, how they are bounded, and how large states get in them.

Everything is computed in float64 and rounded to the safe side.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch
from torch import Tensor

from steadyrnn.checks import check_finite, check_matrix, check_number
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
    "frobenius_above",
    "input_slack",
    "power_above",
    "product_above",
    "spectral_norm_bound",
    "state_radius",
]

ROUND_OFF = 2.0**-53
"""Unit round-off of float64, in which every bound is computed."""
TINY = 2.0**-1022
"""The smallest normal number, which stands for what underflows."""
_UNDERFLOW = 2.0**-960  # more than all underflows of a matrix with entries up to 1 together
_EXACT = 2**53  # above it an integer is rounded on its way to float64


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


def product_above(*factors: float) -> float:
    """Return a number that is not below the product of a few numbers from 0 on; a factor 0 wins over infinity.

    What underflows is replaced by the smallest normal number, so that the product of what is not zero never is.

    Example:
        >>> product_above(2.0, 3.0) >= 6.0, product_above(1e-200, 1e-200) > 0, product_above(0.0, math.inf)
        (True, True, 0.0)
    """
    if 0 in factors:
        return 0.0
    product = 1.0
    for factor in factors:
        product = max(product * factor, TINY)
    return above(product)


def power_above(base: float, exponent: int) -> float:
    """Return a number that is not below the power of a number from 0 on.

    Example:
        >>> power_above(0.5, 3) >= 0.125, power_above(0.5, 10**6) > 0, power_above(2.0, 10**6), power_above(3.0, 0)
        (True, True, inf, 1.0)
    """
    if exponent == 0 or base == 1:
        return 1.0
    if base == 0:
        return 0.0
    try:
        value = base ** min(exponent, 2**1000)
    except OverflowError:
        return math.inf
    # rounding the exponent changes a power that neither under- nor overflows by a factor of exp(745 u) at most
    return max(above(value, 16 if exponent <= _EXACT else 1024), TINY)


def frobenius_above(matrix: Tensor) -> float:
    """Return a bound on the Frobenius norm of a matrix with entries of moderate size.

    Example:
        >>> frobenius_above(torch.eye(4)) >= 2.0
        True
    """
    return above(float(matrix.norm()) * (1 + matrix.numel() * ROUND_OFF))


@torch.no_grad()
def spectral_norm_bound(matrix: Tensor, squarings: int = 6) -> float:
    r"""Return a proven upper bound on the spectral norm, without an SVD.

    .. math:: \lVert W \rVert \le \bigl\lVert (W^\top W)^{2^p} \bigr\rVert_F^{1/2^{p+1}}

    since the spectral norm of the power is the :math:`2^{p+1}`-th power of that of :math:`W`, and the Frobenius norm
    is at least the spectral one. It is at most :math:`\sqrt{r}` times it, :math:`r = \min(M, N)`, so the bound exceeds
    the norm by a factor of at most :math:`r^{1/2^{p+2}}`. The squarings are done in float64, each rescaled by a power
    of two. The error of a computed product :math:`AB` is at most
    :math:`\gamma_n \lVert A \rVert_F \lVert B \rVert_F` whatever the order of summation, and is added before each root
    is taken, so the result holds for the exact norm of the matrix as stored. Costs :math:`p + 1` matrix products.

    Args:
        matrix: :math:`W`, shape ``(M, N)``, of any floating dtype.
        squarings: :math:`p \ge 0`.

    Returns:
        The bound; 0.0 for a matrix of zeros or without entries.

    Example:
        >>> spectral_norm_bound(torch.diag(torch.tensor([3.0, 4.0]))) - 4.0 < 1e-10
        True

    References:
        Higham. Accuracy and Stability of Numerical Algorithms, section 3.5. SIAM 2002.
    """
    if isinstance(squarings, bool) or not isinstance(squarings, int) or squarings < 0:
        raise ArgumentError(f"`squarings` must be an integer from 0 on, but is {squarings}.")
    wide = check_finite("matrix", check_matrix("matrix", matrix)).double()
    largest = float(wide.abs().max()) if wide.numel() else 0.0
    if largest == 0:
        return 0.0
    exponent = math.frexp(largest)[1]
    wide = _times_power(wide, -exponent)
    if wide.shape[0] < wide.shape[1]:
        wide = wide.mT
    try:
        return math.ldexp(above(math.sqrt(_norm_of_square(wide, squarings))), exponent)
    except OverflowError:
        return math.inf


def _norm_of_square(wide: Tensor, squarings: int) -> float:
    """Return a bound on the norm of ``W^T W`` for a matrix with entries up to 1."""
    terms = len(wide) + 2  # the sums of a product, and the mean with the transpose
    error = above(terms * ROUND_OFF * frobenius_above(wide) ** 2 + _UNDERFLOW)
    square = wide.mT @ wide
    square = (square + square.mT) / 2
    return above(_norm_of_symmetric(square, squarings) + error)


def _norm_of_symmetric(matrix: Tensor, squarings: int) -> float:
    if squarings == 0:
        return frobenius_above(matrix)
    exponent = math.frexp(float(matrix.abs().max()))[1]
    norm = math.sqrt(_norm_of_square(_times_power(matrix, -exponent), squarings - 1))
    return above(math.ldexp(norm, exponent))


def _times_power(matrix: Tensor, exponent: int) -> Tensor:
    """Multiply by a power of two, in two steps that are each within the range of float64."""
    half = exponent // 2
    return matrix * math.ldexp(1.0, half) * math.ldexp(1.0, exponent - half)


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
            raise ArgumentError("`weights` must be positive numbers, one per entry of the state.")
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


def state_radius(rate: float, start: float, initial: float = 0.0) -> float:
    r"""Return a bound on the state at every time (Note [mathematics], section 4.1).

    .. math:: N(h_t) \le R = \max\Bigl(N(h_0), \frac{\sup_x N(\phi(0, x))}{1 - \lambda}\Bigr)

    since :math:`N(h_t) \le N(\phi(h_{t-1}, x_t) - \phi(0, x_t)) + N(\phi(0, x_t)) \le \lambda R + (1 - \lambda) R`.

    Args:
        rate: :math:`\lambda`, by which one step brings two states closer in the norm N.
        start: A bound on :math:`N(\phi(0, x))`, such as :math:`L_x B_x + N(\phi(0, 0))`.
        initial: :math:`N(h_0)`.

    Returns:
        R, rounded up; infinite where the rate is 1 or more (unless nothing enters).

    Example:
        >>> round(state_radius(0.75, 10.0), 9)
        40.0

    References:
        Miller, Hardt. When Recurrent Models Don't Need To Be Recurrent. Lemma 1. https://arxiv.org/abs/1805.10369
    """
    rate, start, initial = check_number("rate", rate), check_number("start", start), check_number("initial", initial)
    if start == 0 and (rate <= 1 or initial == 0):
        return initial
    if rate >= 1:
        return math.inf
    return max(initial, product_above(start, 1 / (1 - rate)))
