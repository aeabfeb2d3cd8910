"""The largest solutions of X + C'X^-1 C = I, by doubling."""

import torch
from torch import Tensor

from steadyrnn.checks import check_finite, check_square

__all__ = ["doubled_solutions"]

_MOST = 40


@torch.no_grad()
def doubled_solutions(matrix: Tensor) -> tuple[Tensor, Tensor] | None:
    r"""Return the largest symmetric solutions of two equations, or None where rounding finds none.

    .. math:: X + C^\top X^{-1} C = I, \qquad Y + C Y^{-1} C^\top = I

    Both exist if and only if the numerical radius of C is at most 1/2. With :math:`Q_0 = I`, :math:`P_0 = 0`,
    :math:`C_0 = C`, :math:`M_k = Q_k - P_k`,

    .. math::
        C_{k+1} = C_k M_k^{-1} C_k, \quad Q_{k+1} = Q_k - C_k^\top M_k^{-1} C_k, \quad
        P_{k+1} = P_k + C_k M_k^{-1} C_k^\top ,

    is the reduction of every second row of a block Toeplitz matrix with blocks :math:`(C^\top, I, C)`; :math:`Q_k` falls
    to X and :math:`I - P_k` to Y, with an error that is squared at each step if the radius is below 1/2. A step costs a
    Cholesky factorization, two triangular solves and three products.

    Args:
        matrix: C, shape ``(N, N)``, of float32 or float64.

    Example:
        >>> x, y = doubled_solutions(torch.tensor([[0.4]], dtype=torch.float64))
        >>> round(float(x), 6), round(float(y), 6)
        (0.8, 0.8)

    References:
        Engwerda, Ran, Rijkeboer. Necessary and sufficient conditions for the existence of a positive definite solution of
        the matrix equation X + A*X^{-1}A = Q. Linear Algebra and its Applications 186, 1993.
        Meini. Efficient computation of the extreme solutions of X + A*X^{-1}A = Q, X - A*X^{-1}A = Q. Mathematics of
        Computation 71, 2002.
    """
    c = check_finite("matrix", check_square("matrix", matrix)).detach()
    size, negligible = len(c), torch.finfo(c.dtype).eps
    q = torch.eye(size, dtype=c.dtype, device=c.device)
    p = torch.zeros_like(q)
    for _ in range(_MOST):
        factor, failed = torch.linalg.cholesky_ex(q - p)
        if int(failed):
            return None
        u, v = torch.linalg.solve_triangular(factor, torch.cat([c, c.mT], 1), upper=False).split(size, 1)
        c, q, p = v.mT @ u, q - u.mT @ u, p + v.mT @ v
        if not bool(c.isfinite().all()):
            return None
        if float(c.norm()) ** 2 <= negligible * size:  # what the next step would change
            return q, torch.eye(size, dtype=c.dtype, device=c.device) - p
    return None
