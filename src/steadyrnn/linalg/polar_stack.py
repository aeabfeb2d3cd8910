"""Polar factors of many small matrices at once."""

import torch
from torch import Tensor

from steadyrnn.checks import check_finite
from steadyrnn.errors import ShapeError

from .projections import polar_factor

__all__ = ["polar_factors"]


@torch.no_grad()
def polar_factors(matrices: Tensor) -> Tensor:
    r"""Return the nearest matrix with orthonormal columns (or rows) to each of R matrices.

    Each is what :func:`~steadyrnn.linalg.projections.polar_factor` returns, up to rounding. The iteration
    :math:`X \leftarrow X (3I - X^\top X) / 2` runs on all matrices at once, with batched products; a matrix that is done
    stays as it is. Those too far from the set for it get an SVD one by one. Computed in float64.

    Args:
        matrices: Shape ``(R, M, N)``, finite.

    Returns:
        The polar factors, shape ``(R, M, N)``.

    Example:
        >>> polar_factors(torch.diag_embed(torch.tensor([[2.0, -0.5], [1.0, 1.001]])))
        tensor([[[ 1.,  0.],
                 [ 0., -1.]],
        <BLANKLINE>
                [[ 1.,  0.],
                 [ 0.,  1.]]])

    References:
        Higham. Functions of Matrices, chapter 8. SIAM 2008.
    """
    if matrices.dim() != 3:
        raise ShapeError(f"`matrices` must have shape (R, M, N), but has {tuple(matrices.shape)}.")
    if matrices.shape[1] < matrices.shape[2]:
        return polar_factors(matrices.mT).mT.contiguous()
    wide = check_finite("matrices", matrices).double()
    identity = torch.eye(matrices.shape[2], dtype=wide.dtype, device=wide.device)
    done = torch.zeros(len(wide), dtype=torch.bool, device=wide.device)
    for _ in range(8):  # the distance is squared each time: from 1/2 to rounding in six steps
        excess = torch.bmm(wide.mT, wide) - identity
        distance = torch.linalg.matrix_norm(excess)
        done = distance <= torch.finfo(wide.dtype).eps * matrices.shape[1]
        moving = ~done & (distance <= 0.5)
        if not bool(moving.any()):
            break
        wide = torch.where(moving.view(-1, 1, 1), wide - torch.bmm(wide, excess) / 2, wide)
    far = (~done).nonzero().flatten().tolist()
    result = wide.to(matrices.dtype)
    for place in far:
        result[place] = polar_factor(wide[place]).to(matrices.dtype)
    return result
