"""From matrices back to reflectors: Householder QR, and the reflectors of orthogonal and of arbitrary matrices."""

import torch
from torch import Tensor

from steadyrnn.checks import check_finite, check_matrix
from steadyrnn.errors import ArgumentError, ShapeError

__all__ = ["householder_qr", "reflectors_of_matrix", "reflectors_of_orthogonal", "split_orthogonal"]


@torch.no_grad()
def householder_qr(matrix: Tensor) -> tuple[Tensor, Tensor]:
    r"""Factor a matrix into reflections and an upper triangle with a diagonal that is not negative.

    .. math:: A = \mathcal{H}_M(u_M) \mathcal{H}_{M-1}(u_{M-1}) \cdots R, \qquad R_{jj} \ge 0

    The column :math:`x` that is left of length :math:`k` is reflected onto :math:`\lVert x \rVert e_1` by
    :math:`u = x - \lVert x \rVert e_1`. For :math:`x_1 > 0` the first entry is computed as
    :math:`-\sum_{i>1} x_i^2 / (x_1 + \lVert x \rVert)`, which does not cancel. A column that needs no reflection gets
    :math:`u = 0`; a singular matrix may have :math:`R_{jj} = 0`. Costs :math:`4 M N K` operations.

    Args:
        matrix: :math:`A`, shape ``(M, N)``.

    Returns:
        The reflectors as columns, zero-padded on top, shape ``(M, K)`` with :math:`K = \min(M, N)`, as
        :func:`~steadyrnn.linalg.householder.householder_product` takes them, and :math:`R`, shape ``(M, N)``.

    Example:
        >>> columns, r = householder_qr(torch.tensor([[0.0, 1.0], [2.0, 0.0]]))
        >>> r
        tensor([[2., 0.],
                [0., 1.]])

    References:
        Zhang, Lei, Dhillon. Stabilizing Gradients for Deep Neural Networks via Efficient SVD Parameterization.
        ICML 2018, Proposition 1. https://arxiv.org/abs/1803.09327
    """
    check_finite("matrix", check_matrix("matrix", matrix))
    return _reduce(matrix, min(matrix.shape), nonzero=False)


@torch.no_grad()
def reflectors_of_orthogonal(matrix: Tensor) -> tuple[Tensor, float]:
    r"""Write an orthogonal matrix as a product of reflections by nonzero vectors, and a sign.

    .. math:: Q = \mathcal{H}_n(u_n) \cdots \mathcal{H}_2(u_2) \, \mathrm{diag}(1, \dots, 1, s), \qquad s = \pm 1

    so ``Q`` is ``householder_product(columns)`` with its last column multiplied by ``sign``. Each reflection takes the
    first column that is left to :math:`e_1`; where it is :math:`e_1` already, a :math:`u` perpendicular to it does. At
    the end one number of absolute value 1 is left, which a reflection could only negate: the sign, :math:`(-1)^{n-1}
    \det Q`. With a vector for it instead, and all vectors nonzero, only one of the two determinants could be reached.
    Costs :math:`\tfrac43 n^3` operations, in :math:`n` steps.

    Args:
        matrix: :math:`Q`, orthogonal, shape ``(n, n)``. Of another matrix the orthogonal factor of its QR is meant.

    Returns:
        The reflectors as columns, none zero, zero-padded on top, shape ``(n, n - 1)``, and the sign, 1.0 or -1.0.

    Example:
        >>> columns, sign = reflectors_of_orthogonal(torch.eye(2))
        >>> columns.T, sign
        (tensor([[0., 1.]]), -1.0)

    References:
        Zhang, Lei, Dhillon. Stabilizing Gradients for Deep Neural Networks via Efficient SVD Parameterization.
        ICML 2018, Theorem 1. https://arxiv.org/abs/1803.09327
    """
    check_finite("matrix", check_matrix("matrix", matrix, square=True))
    _check_not_empty(matrix)
    columns, rest = _reduce(matrix, len(matrix) - 1, nonzero=True)
    return columns, 1.0 if rest[-1, -1] >= 0 else -1.0


@torch.no_grad()
def reflectors_of_matrix(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor, float]:
    r"""Write any matrix as reflections, singular values, a sign, and reflections.

    .. math::
        W = U_{:, :r} \, \mathrm{diag}(\sigma_1, \dots, \sigma_{r-1}, s\,\sigma_r) \, V_{:, :r}^\top, \qquad
        r = \min(M, N)

    with :math:`U` and :math:`V` the products of the left and right reflectors. They are read off the singular vectors:
    a square orthogonal factor takes :math:`n - 1` nonzero reflectors and a sign on its last column
    (:func:`reflectors_of_orthogonal`), and only the product :math:`s` of both signs matters; :math:`r`
    orthonormal columns of a longer length are the first columns of a product of :math:`r` nonzero reflectors
    exactly, since every column still has a second coordinate to be reflected in. Costs one SVD and :math:`O(MNr)`.

    Args:
        matrix: :math:`W`, shape ``(M, N)``, not empty.

    Returns:
        ``left``, shape ``(M, K1)``; ``sigma >= 0``, descending, shape ``(r,)``; ``right``, shape ``(N, K2)``; and the
        sign ``s``, 1.0 or -1.0. ``K1 = M - 1`` if ``M <= N`` and ``N`` otherwise; ``K2 = N - 1`` if ``N <= M`` and
        ``M`` otherwise: ``2 r - 1`` reflectors in all, one fewer if the matrix is square. No reflector is zero.

    Example:
        >>> left, sigma, right, sign = reflectors_of_matrix(torch.tensor([[0.0, 3.0, 0.0]]))
        >>> left.shape, sigma, right.shape
        (torch.Size([1, 0]), tensor([3.]), torch.Size([3, 1]))

    References:
        Zhang, Lei, Dhillon. Stabilizing Gradients for Deep Neural Networks via Efficient SVD Parameterization.
        ICML 2018, Theorems 2 and 4. https://arxiv.org/abs/1803.09327
    """
    check_finite("matrix", check_matrix("matrix", matrix))
    _check_not_empty(matrix)
    left, sigma, right_h = torch.linalg.svd(matrix, full_matrices=False)
    left_columns, left_sign = _reflectors_of_basis(left)
    right_columns, right_sign = _reflectors_of_basis(right_h.mT)
    return left_columns, sigma, right_columns, left_sign * right_sign


@torch.no_grad()
def split_orthogonal(matrix: Tensor, k1: int, k2: int) -> tuple[Tensor, Tensor]:
    r"""Divide the reflectors of an orthogonal matrix between a left and a right product.

    .. math::
        A = \mathcal{H}_n(u_n) \cdots \mathcal{H}_{k_1}(u_{k_1}) \cdot
            \mathcal{H}_{k_2}(v_{k_2}) \cdots \mathcal{H}_n(v_n), \qquad k_1 + k_2 \le n + 2

    Let :math:`A = \mathcal{H}_n(a_n) \cdots \mathcal{H}_1(a_1)`. If :math:`k_2 \ge k_1 - 1`, keep
    :math:`u_k = a_k` for :math:`k \ge k_1`, and let :math:`v_j = (0; a_k)` with :math:`j = k_1 + k_2 - 1 - k` for
    :math:`k < k_1`: padding with zeros does not change a reflection, and :math:`j \ge k_2 \ge k`, so it fits.
    The :math:`v_j` with :math:`j \ge k_1 + k_2 - 1` are zero. Otherwise do the same to :math:`A^\top`.
    Costs one QR.

    Args:
        matrix: :math:`A`, orthogonal, shape ``(n, n)``.
        k1: The least index of a left reflector, from 1 to ``n + 1`` (no reflector).
        k2: The least index of a right reflector, from 1 to ``n + 1``.

    Returns:
        ``left``, shape ``(n, n - k1 + 1)``, and ``right``, shape ``(n, n - k2 + 1)``, as columns from the longest
        reflector down, so that ``A`` is ``householder_product(left) @ householder_product(right).T``.

    Example:
        >>> left, right = split_orthogonal(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), 3, 1)
        >>> left.shape, right.T
        (torch.Size([2, 0]), tensor([[-1.,  1.],
                [ 0.,  0.]]))

    References:
        Zhang, Lei, Dhillon. Stabilizing Gradients for Deep Neural Networks via Efficient SVD Parameterization.
        ICML 2018, Theorem 3. https://arxiv.org/abs/1803.09327
    """
    check_finite("matrix", check_matrix("matrix", matrix, square=True))
    n = len(matrix)
    if min(k1, k2) < 1 or k1 + k2 > n + 2:
        raise ArgumentError(
            f"`k1` and `k2` must be at least 1 and together at most n + 2 = {n + 2}, but are {k1} and {k2}: "
            "with fewer reflectors not every orthogonal matrix can be reached."
        )
    if k2 < k1 - 1:
        right, left = split_orthogonal(matrix.mT, k2, k1)
        return left, right
    chain = _reduce(matrix, n, nonzero=False)[0]  # column n - k holds a_k
    right = chain.new_zeros(n, n - k2 + 1)
    for k in range(1, k1):
        right[:, n - (k1 + k2 - 1 - k)] = chain[:, n - k]
    return chain[:, : n - k1 + 1], right


def _reflectors_of_basis(basis: Tensor) -> tuple[Tensor, float]:
    """Return nonzero reflectors whose product begins with these orthonormal columns, the last one times the sign."""
    if basis.shape[0] == basis.shape[1]:
        return reflectors_of_orthogonal(basis)
    return _reduce(basis, basis.shape[1], nonzero=True)[0], 1.0


def _reduce(matrix: Tensor, count: int, nonzero: bool) -> tuple[Tensor, Tensor]:
    """Reflect ``count`` columns onto the axes: the reflectors (M, count), and what the matrix has become (M, N)."""
    rest = matrix.clone()
    columns = matrix.new_zeros(len(matrix), count)
    for j in range(count):
        x = rest[j:, j]
        u = _reflector(x, nonzero)
        columns[j:, j] = u
        rest[j, j], rest[j + 1 :, j] = _length(x), 0
        square = u @ u
        if square > 0:
            trailing = rest[j:, j + 1 :]
            trailing -= torch.outer(u, (2 / square) * (u @ trailing))
    return columns, rest


def _reflector(x: Tensor, nonzero: bool) -> Tensor:
    """Return ``u``, of moderate length, that reflects ``x`` onto ``||x|| e_1``; zero for none unless ``nonzero``."""
    u = torch.zeros_like(x)
    tail = x[1:].abs().amax() if len(x) > 1 else x.new_zeros(())
    if tail == 0:
        if x[0] < 0:
            u[0] = 1
        elif nonzero:
            u[1] = 1
        return u
    if x[0] <= 0:
        scaled = x / x.abs().amax()
        scaled[0] -= scaled.norm()
        return scaled
    u[1:] = x[1:] / tail
    u[0] = -(u[1:] @ u[1:]) * (tail / (x[0] + _length(x)))
    return u


def _length(x: Tensor) -> Tensor:
    largest = x.abs().amax()
    return largest * (x / largest).norm() if largest > 0 else largest


def _check_not_empty(matrix: Tensor) -> None:
    if matrix.numel() == 0:
        raise ShapeError(f"`matrix` must not be empty, but has shape {tuple(matrix.shape)}.")
