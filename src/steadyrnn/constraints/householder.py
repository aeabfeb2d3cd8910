"""Orthogonal matrices as products of Householder reflections."""

from collections.abc import Sequence

import torch
from torch import Tensor

from steadyrnn.checks import check_same_meta
from steadyrnn.errors import ArgumentError, ArgumentTypeError
from steadyrnn.linalg.householder import householder_factors, householder_product
from steadyrnn.linalg.householder_stack import householder_products, unpack_stack
from steadyrnn.linalg.operators import DiagonalLowRank, spectral_operator
from steadyrnn.linalg.packing import pack, unpack
from steadyrnn.linalg.projections import polar_factor
from steadyrnn.linalg.qr import reflectors_of_orthogonal

from .base import Constraint
from .orthogonality import distance_to_orthogonal, nearest_signs
from .reflectors import last_signs, unit_reflectors

__all__ = ["HouseholderOrthogonal"]


class HouseholderOrthogonal(Constraint):
    r"""Orthogonal matrices as products of reflections.

    .. math:: W = H_N(u_N) H_{N-1}(u_{N-1}) \cdots H_{N-K+1}(u_{N-K+1}) \operatorname{diag}(1, \dots, 1, s)

    where :math:`H_k(u)` reflects the last :math:`k` coordinates. Reflections are orthogonal, hence so is their product,
    whatever the vectors; it is built in :math:`O(N^2 K)` by matrix products. The reflectors are stored packed, the k-th
    one entry shorter than the one before: :math:`NK - K(K-1)/2` numbers. The last of :math:`N` reflectors would be -1
    whatever its entry, so at most :math:`N - 1` are stored, and the fixed sign :math:`s` stands for it: :math:`s = 1`,
    or -1 where all :math:`N` were requested. With :math:`N - 1` reflectors and a sign that assignment may choose, every
    orthogonal matrix is reached; with fewer only some, all of determinant :math:`(-1)^K`, and steps never cross from
    one determinant to the other. See Note [parity of reflectors].

    Args:
        reflectors: :math:`K`; None is as many as it takes to reach every orthogonal matrix.
        project: See :class:`Constraint`.

    Example:
        >>> orthogonal = sr.constraints.HouseholderOrthogonal(reflectors=2)
        >>> weight = orthogonal.sample(4, 4)
        >>> torch.allclose(weight.mT @ weight, torch.eye(4), atol=1e-6)
        True

    References:
        Mhammedi, Hellicar, Rahman, Bailey. Efficient Orthogonal Parametrisation of Recurrent Neural Networks Using
        Householder Reflections. ICML 2017. https://arxiv.org/abs/1612.00188
    """

    sign: Tensor

    def __init__(self, reflectors: int | None = None, *, project: bool = False) -> None:
        super().__init__(project=project)
        self.reflectors = _count(reflectors)
        self.count = 0
        self._invertible = reflectors is None
        self.register_buffer("sign", torch.ones(()))

    def extra_repr(self) -> str:
        """Show the number of reflectors."""
        return f"reflectors={self.reflectors}"

    def raw(self, rows: int, columns: int) -> tuple[Tensor, ...]:
        """Return packed unit reflectors, shape ``(NK - K(K-1)/2,)``."""
        self.fix_shape(rows, columns, square=True)
        wanted = rows - 1 if self.reflectors is None else self.reflectors
        if wanted > rows:
            raise ArgumentError(f"`reflectors` must be at most {rows} for a matrix of that size, but is {wanted}.")
        self.count = min(wanted, rows - 1)
        self._invertible = self.count == rows - 1
        self.sign = torch.tensor(1.0 if wanted == self.count else -1.0)
        return (pack(unit_reflectors(rows, self.count)),)

    @property
    def invertible(self) -> bool:
        """Whether there are as many reflectors as it takes to reach every orthogonal matrix."""
        return self._invertible

    @property
    def reflector_sizes(self) -> tuple[int | None, ...]:
        """Entries of the longest reflector: the rows."""
        return (self.rows,)

    def columns_and_signs(self, packed: Tensor) -> tuple[Tensor, Tensor]:
        """Return the reflectors as columns, shape (N, K), and the diagonal of signs, shape (N,)."""
        sign = check_same_meta("`sign`", self.sign, packed).to(packed.dtype)
        signs = torch.cat([packed.new_ones(self.rows - 1), sign.unsqueeze(0)])
        return unpack(packed, self.rows, self.count), signs

    def forward(self, *raw: Tensor) -> Tensor:
        """Return the matrix, shape ``(N, N)``."""
        columns, signs = self.columns_and_signs(raw[0])
        return householder_product(columns) * signs

    def forward_stack(self, members: Sequence[Constraint], *raw: Tensor) -> Tensor | None:
        """Return the matrices of R members at once, shape ``(R, N, N)``; none of a class with a map of its own."""
        if type(self) is not HouseholderOrthogonal:
            return None
        columns = unpack_stack(raw[0], self.rows, self.count)
        return householder_products(columns) * last_signs(members, raw[0], self.rows).unsqueeze(1)

    def operator(self, *raw: Tensor) -> DiagonalLowRank | None:
        """Return the factored form where the reflectors are fewer than half the rows."""
        if 2 * self.count >= self.rows:
            return None
        columns, signs = self.columns_and_signs(raw[0])
        return spectral_operator(householder_factors(columns), signs, householder_factors(columns[:, :0]))

    def invert(self, matrix: Tensor) -> tuple[Tensor, ...]:
        """Return the reflectors of its QR decomposition."""
        columns, sign = reflectors_of_orthogonal(matrix)
        self.sign.fill_(sign)
        return (pack(columns),)

    def violation(self, matrix: Tensor) -> Tensor:
        """Return the distance to the orthogonal matrices in spectral norm."""
        return distance_to_orthogonal(matrix)

    def project(self, matrix: Tensor) -> Tensor:
        """Return the nearest orthogonal matrix."""
        return polar_factor(matrix)

    def mend(self) -> None:
        """Put the sign back."""
        self.sign.copy_(nearest_signs(self.sign))


def _count(reflectors: int | None) -> int | None:
    if reflectors is None:
        return None
    if isinstance(reflectors, bool) or not isinstance(reflectors, int):
        raise ArgumentTypeError(f"`reflectors` must be a number or None, but is of type {type(reflectors).__name__}.")
    if reflectors < 0:
        raise ArgumentError(f"`reflectors` must not be negative, but is {reflectors}.")
    return reflectors
