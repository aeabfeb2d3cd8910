"""Projections onto sets of matrices: polar factor, clipped singular values, rows in an l1 ball."""

import torch
from torch import Tensor

from steadyrnn.checks import check_finite, check_matrix

__all__ = ["clip_singular_values", "polar_factor", "project_forget_rows", "project_rows_l1"]


def _svd(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the thin SVD in float64, whatever the dtype: its own rounding must not show in the result."""
    check_finite("matrix", check_matrix("matrix", matrix))
    return torch.linalg.svd(matrix.detach().double(), full_matrices=False)


def polar_factor(matrix: Tensor) -> Tensor:
    r"""Return the nearest matrix with orthonormal columns (rows, if it is wide) in the Frobenius norm.

    .. math:: W = P \Sigma Q^\top \;\mapsto\; P Q^\top

    It maximises :math:`\langle W, X \rangle` over such X, since no singular value of X exceeds 1. Unique where W has
    full rank. Costs one SVD; not differentiable.

    Args:
        matrix: Shape ``(M, N)``.

    Example:
        >>> polar_factor(torch.diag(torch.tensor([2.0, -0.5])))
        tensor([[ 1.,  0.],
                [ 0., -1.]])

    References:
        Emami et al. Input-Output Equivalence of Unitary and Contractive RNNs (their projection to the unitary set).
    """
    left, _, right = _svd(matrix)
    return (left @ right).to(matrix.dtype)


def clip_singular_values(matrix: Tensor, low: float, high: float) -> Tensor:
    r"""Return the nearest matrix (Frobenius norm) with every singular value in ``[low, high]``.

    .. math:: P \Sigma Q^\top \;\mapsto\; P \operatorname{clip}(\Sigma) Q^\top

    Computed in float64. Rounding the entries to the matrix's dtype moves a singular value by at most
    :math:`u \lVert W \rVert_F`; clipping is done that much inside the interval, so that the result is a member as stored and
    a second call returns it unchanged. A member comes back as it is. For ``low = 0`` the set is convex and the projection
    non-expansive (MATH 4.7). Costs one SVD; not differentiable.

    Args:
        matrix: Shape ``(M, N)``.
        low: Smallest singular value allowed.
        high: Largest singular value allowed.

    Example:
        >>> clip_singular_values(torch.diag(torch.tensor([2.0, 0.5])), 0.0, 1.0).diag().round(decimals=4)
        tensor([1.0000, 0.5000])

    References:
        Miller, Hardt. When Recurrent Models Don't Need To Be Recurrent (projection of a stable RNN).
    """
    if matrix.numel() == 0:
        return matrix
    left, sigma, right = _svd(matrix)
    if float(sigma.max()) <= high and float(sigma.min()) >= low:
        return matrix
    clipped = sigma.clamp(low, high)
    slack = torch.finfo(matrix.dtype).eps * float(clipped.norm()) if low < high else 0.0
    slack = min(slack, (high - low) / 2)
    clipped = torch.where(sigma > high, high - slack, torch.where(sigma < low, low + slack, sigma))
    return ((left * clipped) @ right).to(matrix.dtype)


def project_rows_l1(rows: Tensor, radius: float | Tensor) -> Tensor:
    r"""Project each row onto the l1 ball :math:`\lVert w \rVert_1 \le r`.

    .. math:: w \mapsto \operatorname{sign}(w) \max(|w| - \mu, 0)

    with :math:`\mu \ge 0` the level at which the norm is r, found from the sorted absolute values: the Euclidean
    projection, by its optimality conditions. Rows inside come back unchanged. Costs a sort a row.

    Args:
        rows: Shape ``(M, N)``.
        radius: The radius, a number or one a row, shape ``(M,)``.

    Example:
        >>> project_rows_l1(torch.tensor([[3.0, 1.0], [0.25, 0.25]]), 1.0)
        tensor([[1.0000, 0.0000],
                [0.2500, 0.2500]])

    References:
        Duchi, Shalev-Shwartz, Singer, Chandra. Efficient Projections onto the l1-Ball. ICML 2008.
    """
    check_finite("rows", check_matrix("rows", rows))
    size = rows.abs().double()
    limit = torch.as_tensor(radius, dtype=torch.float64, device=rows.device).expand(rows.shape[0])
    inside = size.sum(1) <= limit
    sorted_size = size.sort(dim=1, descending=True).values
    count = torch.arange(1, rows.shape[1] + 1, device=rows.device, dtype=torch.float64)
    levels = (sorted_size.cumsum(1) - limit.unsqueeze(1)) / count  # (M, N)
    active = (sorted_size > levels).sum(1, keepdim=True).clamp(min=1)
    level = levels.gather(1, active - 1).clamp(min=0)
    shrunk = (size - level).clamp(min=0) * rows.sign()
    return torch.where(inside.unsqueeze(1), rows, shrunk.to(rows.dtype))


def project_forget_rows(
    w: Tensor, u: Tensor, b: Tensor, bound: float, input_bound: float, steps: int = 100
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Project each row (w, u, b) of a forget gate onto :math:`\lVert w \rVert_1 + B_x \lVert u \rVert_1 + b \le \beta`.

    .. math:: w \mapsto \operatorname{soft}(w, \mu), \quad u \mapsto \operatorname{soft}(u, \mu B_x), \quad b \mapsto b - \mu

    with :math:`\mu \ge 0` by bisection: the conditions of optimality of the Euclidean projection (MATH 7.1). The left
    side falls strictly in :math:`\mu`, so the level is unique. Rows inside come back unchanged.

    Args:
        w: Recurrent rows, shape ``(H, H)``.
        u: Input rows, shape ``(H, D)``.
        b: Bias, shape ``(H,)``.
        bound: :math:`\beta`.
        input_bound: :math:`B_x`, a bound on every entry of the input.
        steps: Bisection steps.

    Example:
        >>> w, u, b = project_forget_rows(torch.tensor([[1.0]]), torch.tensor([[0.0]]), torch.tensor([1.0]), 1.0, 1.0)
        >>> w.item(), b.item()
        (0.5, 0.5)

    References:
        Miller, Hardt. When Recurrent Models Don't Need To Be Recurrent (Proposition 5).
    """
    wide = [check_finite(name, t).double() for name, t in (("w", w), ("u", u), ("b", b))]

    def soft(x: Tensor, level: Tensor) -> Tensor:
        return x.sign() * (x.abs() - level.unsqueeze(1)).clamp(min=0)

    def side(level: Tensor) -> Tensor:
        return soft(wide[0], level).abs().sum(1) + input_bound * soft(wide[1], level * input_bound).abs().sum(1) + wide[2] - level

    low = torch.zeros_like(wide[2])
    inside = side(low) <= bound
    high = (side(low) - bound).clamp(min=0)  # the bias alone falls by the level, so this is enough
    for _ in range(steps):
        middle = (low + high) / 2
        above = side(middle) > bound
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    new_w, new_u, new_b = soft(wide[0], high), soft(wide[1], high * input_bound), wide[2] - high
    keep = inside.unsqueeze(1)
    return (
        torch.where(keep, w, new_w.to(w.dtype)),
        torch.where(keep, u, new_u.to(u.dtype)),
        torch.where(inside, b, new_b.to(b.dtype)),
    )
