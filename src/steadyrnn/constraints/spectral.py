"""The SVD parametrisation: reflectors on both sides, singular values in an interval."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from steadyrnn.checks import check_interval, check_same_meta
from steadyrnn.errors import ArgumentError, ArgumentTypeError, not_among
from steadyrnn.linalg.householder import householder_apply, householder_factors, householder_product
from steadyrnn.linalg.householder_stack import householder_products, unpack_stack
from steadyrnn.linalg.operators import DiagonalLowRank, spectral_operator
from steadyrnn.linalg.packing import pack, unpack
from steadyrnn.linalg.projections import clip_singular_values
from steadyrnn.linalg.qr import reflectors_of_matrix
from steadyrnn.linalg.spectral_factors import spectral_factors

from .base import Constraint, Kind, distance_from_interval, working_dtype
from .orthogonality import nearest_signs
from .reflectors import last_signs, unit_reflectors

__all__ = ["Spectral", "from_interval", "into_interval"]

_KINDS = {"sigmoid": Kind.MAP, "clip": Kind.PROJECTION, "penalty": Kind.BASELINE}


class Spectral(Constraint):
    r"""Matrices whose singular values lie in ``[center - radius, center + radius]``, or with ``center=0`` in ``[0, radius]``.

    .. math::
        W = U \Sigma V^\top, \qquad U = H_M(u_M) \cdots H_{k_1}(u_{k_1}), \quad V = H_N(v_N) \cdots H_{k_2}(v_{k_2}),
        \qquad \sigma_i = c + 2r (\operatorname{sigmoid}(\hat\sigma_i) - \tfrac12)

    U and V are products of reflections, hence orthogonal, so the singular values of W are the entries of the diagonal.
    Around ``center=0`` the entries have either sign, :math:`-r \le \sigma_i \le r`, and the singular values are their
    absolute values: the set is the ball :math:`\lVert W \rVert \le r`. A residual block of such weights stays close
    to the identity.

    Reflectors are stored packed: the k-th of a side has one entry fewer than the one before. The last reflector of a
    full side would be a dead parameter (it is -1 whatever its entry); it is not stored, and a fixed sign on the last
    singular value reaches the other determinant instead. See Note [parity of reflectors].

    Args:
        reflectors: Reflectors per side, ``(m1, m2)`` or one number for both; None is as many as the shape needs to reach
            every matrix. 0 leaves that side the identity.
        center: Middle of the interval. A fresh weight has all its singular values there; around 0 that would be the zero
            matrix, which learns nothing, so its entries are drawn uniformly from ``[-radius, radius]``.
        radius: Half the width, at most ``center`` unless that is 0. With ``center + radius < 1`` every member is a
            contraction.
        sigma: How the interval is kept: ``"sigmoid"`` by the map above; ``"clip"`` by clipping the entries of the
            diagonal after each step; ``"penalty"`` not at all, with :math:`\lVert\sigma - c\rVert^2` in
            :func:`steadyrnn.penalty`.
        project: See :class:`Constraint`.

    Example:
        >>> spectral = sr.Spectral(reflectors=2, radius=0.25)
        >>> weight = spectral.sample(4, 4)
        >>> torch.linalg.svdvals(weight).round(decimals=4)
        tensor([1., 1., 1., 1.])

    References:
        Zhang, Lei, Dhillon. Stabilizing Gradients for Deep Neural Networks via Efficient SVD Parameterization.
        ICML 2018. https://arxiv.org/abs/1803.09327
    """

    sign: Tensor

    def __init__(
        self,
        reflectors: int | tuple[int, int] | None = None,
        center: float = 1.0,
        radius: float = 0.1,
        sigma: str = "sigmoid",
        *,
        project: bool = False,
    ) -> None:
        super().__init__(project=project)
        if not isinstance(sigma, str) or sigma not in _KINDS:
            raise ArgumentError(not_among("sigma", sigma, _KINDS))
        self.reflectors = _counts(reflectors)
        self.center = check_interval("center", center, 0.0, 1e6)
        self.radius = _check_radius(radius, self.center)
        self.sigma = sigma
        self.kind = _KINDS[sigma]
        self.sides = (0, 0)
        self._invertible = reflectors is None
        self.register_buffer("sign", torch.ones(()))

    def extra_repr(self) -> str:
        """Show the arguments."""
        return f"reflectors={self.reflectors}, center={self.center}, radius={self.radius}, sigma={self.sigma!r}"

    def raw(self, rows: int, columns: int) -> tuple[Tensor, ...]:
        """Return packed unit reflectors of both sides and the free singular values, which start as ``center`` says."""
        self.fix_shape(rows, columns)
        m1, m2 = needed = _count_needed(rows, columns)
        if self.reflectors is not None:
            m1, m2 = self.reflectors
            if m1 > rows or m2 > columns:
                raise ArgumentError(f"`reflectors` must be at most {(rows, columns)} here, but is {self.reflectors}.")
        self.sides = min(m1, rows - 1), min(m2, columns - 1)
        self._invertible = self.sides == needed
        self.sign = torch.ones(())
        return (
            pack(unit_reflectors(rows, self.sides[0])),
            pack(unit_reflectors(columns, self.sides[1])),
            self._first_values(min(rows, columns)),
        )

    def _first_values(self, count: int) -> Tensor:
        """Return the free singular values of a fresh weight: the center, or around 0 uniform in the interval."""
        if self.center == 0:
            sigma = torch.empty(count, dtype=working_dtype()).uniform_(-self.radius, self.radius)
            return from_interval(sigma, self.center, self.radius) if self.sigma == "sigmoid" else sigma
        return torch.full((count,), 0.0 if self.sigma == "sigmoid" else self.center, dtype=working_dtype())

    @property
    def interval(self) -> tuple[float, float]:
        """The least and the largest singular value of a member."""
        return max(self.center - self.radius, 0.0), self.center + self.radius

    @property
    def invertible(self) -> bool:
        """Whether there are as many reflectors as the shape needs."""
        return self._invertible

    @property
    def reflector_sizes(self) -> tuple[int | None, ...]:
        """Entries of the longest reflector of each side; singular values are none."""
        return self.rows, self.columns, None

    def parts(self, *raw: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the reflectors of both sides as columns, (M, K1) and (N, K2), and the signed diagonal."""
        left, right, free = raw
        return (
            unpack(left, self.rows, self.sides[0]),
            unpack(right, self.columns, self.sides[1]),
            self.signed_diagonal(free),
        )

    def singular_values(self, free: Tensor) -> Tensor:
        """Return the singular values of free ones, shape (min(M, N),): the absolute values of the diagonal."""
        return self._diagonal(free).abs()

    def _diagonal(self, free: Tensor) -> Tensor:
        return free if self.sigma != "sigmoid" else into_interval(free, self.center, self.radius)

    def signed_diagonal(self, free: Tensor) -> Tensor:
        """Return the diagonal of free singular values, the last one times ``sign``, shape (min(M, N),)."""
        sigma = self._diagonal(free)
        if not sigma.shape[0]:
            return sigma
        sign = check_same_meta("`sign`", self.sign, sigma).to(sigma.dtype)
        return sigma * pad(sign.reshape(1), (sigma.shape[0] - 1, 0), value=1.0)

    def forward(self, *raw: Tensor) -> Tensor:
        """Return the matrix, shape ``(M, N)``."""
        operator = self.operator(*raw)
        if operator is not None:
            return operator.dense()
        left, right, sigma = self.parts(*raw)
        # the longer side is applied, never multiplied out: it would have the square of the longer size entries
        if self.rows > self.columns:
            return _times_rows(left, sigma, right)
        return _times_rows(right, sigma, left).mT

    def forward_stack(self, members: Sequence[Constraint], *raw: Tensor) -> Tensor | None:
        """Return square matrices of R members at once, shape ``(R, N, N)``; none of a class with a map of its own."""
        if self.rows != self.columns or type(self) is not Spectral:
            return None
        left, right = (
            householder_products(unpack_stack(packed, self.rows, count))
            for packed, count in zip(raw[:2], self.sides, strict=True)
        )
        sigma = self._diagonal(raw[2])
        return (left * (sigma * last_signs(members, sigma, self.rows)).unsqueeze(1)).bmm(right.mT)

    def operator(self, *raw: Tensor) -> DiagonalLowRank | None:
        """Return the factored form where the reflectors are few: together fewer than half the rows."""
        if self.rows != self.columns or 2 * sum(self.sides) >= self.rows:
            return None
        if self.sides[0] == self.sides[1]:
            return spectral_factors(raw[0], raw[1], self.signed_diagonal(raw[2]), self.sides[0])
        left, right, sigma = self.parts(*raw)
        return spectral_operator(householder_factors(left), sigma, householder_factors(right))

    def invert(self, matrix: Tensor) -> tuple[Tensor, ...]:
        """Return raw tensors of a matrix through its SVD."""
        left, sigma, right, sign = reflectors_of_matrix(matrix)
        self.sign.fill_(sign)
        if self.sigma == "sigmoid":
            sigma = from_interval(sigma, self.center, self.radius)
        return pack(left), pack(right), sigma

    def violation(self, matrix: Tensor) -> Tensor:
        """Return how far the farthest singular value (float64 SVD) is outside the interval."""
        return distance_from_interval(matrix, *self.interval)

    def project(self, matrix: Tensor) -> Tensor:
        """Return ``matrix`` with its singular values clipped to the interval."""
        return clip_singular_values(matrix, *self.interval)

    def penalty(self, *raw: Tensor) -> Tensor | None:
        r"""Return :math:`\lVert\sigma - c\rVert^2` for ``sigma="penalty"``."""
        return (raw[2] - self.center).square().sum() if self.sigma == "penalty" else None

    def mend(self) -> None:
        """Put the sign back."""
        self.sign.copy_(nearest_signs(self.sign))

    def after_step(self, *raw: Tensor) -> tuple[Tensor, ...] | None:
        """Return the clipped diagonal for ``sigma="clip"``; around 0 its entries may have either sign."""
        if self.sigma != "clip":
            return None
        return raw[0], raw[1], raw[2].clamp(self.center - self.radius, self.center + self.radius)


def into_interval(free: Tensor, center: float, radius: float) -> Tensor:
    r"""Map free numbers into an interval.

    .. math:: \sigma_i = c + 2r (\operatorname{sigmoid}(\hat\sigma_i) - \tfrac12)

    A free 0 is the center, and the slope is at most :math:`r / 2`: singular values learn slowly where the interval is
    short. Around 0 it is computed as :math:`r \tanh(\hat\sigma_i / 2)`, the same number, in which small values keep all
    their digits.

    Example:
        >>> into_interval(torch.tensor([-100.0, 0.0, 100.0]), 1.0, 0.5)
        tensor([0.5000, 1.0000, 1.5000])
    """
    if center == 0:
        return radius * (free / 2).tanh()
    return center + 2 * radius * (free.sigmoid() - 0.5)


def from_interval(sigma: Tensor, center: float, radius: float) -> Tensor:
    """Return free numbers that :func:`into_interval` maps to ``sigma``, or to the nearest value it reaches.

    A value on the border, or outside by rounding, has no finite logit: it takes that of the nearest number inside.

    Example:
        >>> from_interval(torch.tensor([1.0]), 1.0, 0.5)
        tensor([0.])
    """
    if not radius:
        return torch.zeros_like(sigma)
    eps = torch.finfo(sigma.dtype).eps
    if center == 0:
        return 2 * (sigma / radius).clamp(eps - 1, 1 - eps).atanh()
    return ((sigma - (center - radius)) / (2 * radius)).clamp(eps, 1 - eps).logit()


def _check_radius(radius: float, center: float) -> float:
    """Return the radius if the interval does not cross 0, or lies around it."""
    if center == 0:
        return check_interval("radius", radius, 0.0, 1e6)
    try:
        return check_interval("radius", radius, 0.0, center)
    except ArgumentError as error:
        raise ArgumentError(
            f"{error} An interval that contains 0 is a ball: take `center=0.0` and its largest singular value as `radius`."
        ) from error


def _counts(reflectors: int | tuple[int, int] | None) -> tuple[int, int] | None:
    if reflectors is None:
        return None
    both = tuple(reflectors) if isinstance(reflectors, tuple | list) else (reflectors, reflectors)
    if len(both) != 2 or any(isinstance(count, bool) or not isinstance(count, int) for count in both):
        raise ArgumentTypeError(f"`reflectors` must be a number, a pair of numbers or None, but is {reflectors!r}.")
    if min(both) < 0:
        raise ArgumentError(f"`reflectors` must not be negative, but is {reflectors!r}.")
    return both[0], both[1]


def _times_rows(long: Tensor, sigma: Tensor, short: Tensor) -> Tensor:
    """Return ``U[:, :r] diag(sigma) V'`` with U, of the longer side, applied to the rest, shape ``(long, short)``."""
    inner = sigma.unsqueeze(1) * householder_product(short).mT  # (r, r)
    return householder_apply(long, pad(inner, (0, 0, 0, long.shape[0] - inner.shape[0])))


def _count_needed(rows: int, columns: int) -> tuple[int, int]:
    """Return how many reflectors reach every matrix of this shape; a full side has a dead one, which is left out.

    See Note [mathematics], section 2.5.
    """
    rank = min(rows, columns)
    return min(rank, rows - 1), min(rank, columns - 1)
