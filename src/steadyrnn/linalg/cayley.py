"""The Cayley map between skew matrices and rotations."""

import torch
from torch import Tensor

from steadyrnn.checks import check_finite, check_square
from steadyrnn.errors import ConstraintError

__all__ = ["cayley", "cayley_inverse"]


def cayley(skew: Tensor) -> Tensor:
    r"""Map a skew matrix to a rotation.

    .. math:: W = (I + A)^{-1} (I - A)

    A has imaginary eigenvalues :math:`i\theta`, so :math:`I + A` is never singular and W has eigenvalues
    :math:`(1 - i\theta)/(1 + i\theta)` on the circle, never -1; the determinant is 1. Costs one solve; differentiable.

    Args:
        skew: Shape ``(n, n)``, skew-symmetric.

    Example:
        >>> cayley(torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))
        tensor([[ 0., -1.],
                [ 1.,  0.]])
    """
    check_square("skew", skew)
    eye = torch.eye(skew.shape[0], dtype=skew.dtype, device=skew.device)
    return torch.linalg.solve(eye + skew, eye - skew)


def cayley_inverse(matrix: Tensor) -> Tensor:
    r"""Return the skew matrix of a rotation.

    .. math:: A = (I + W)^{-1} (I - W)

    The map is its own inverse. A rotation with eigenvalue -1 has no such matrix and is refused; near one A is large.

    Args:
        matrix: Orthogonal with determinant 1, shape ``(n, n)``.

    Example:
        >>> cayley_inverse(torch.eye(2))
        tensor([[0., 0.],
                [0., 0.]])
    """
    check_finite("matrix", check_square("matrix", matrix))
    wide = matrix.detach().double()
    eye = torch.eye(matrix.shape[0], dtype=wide.dtype, device=wide.device)
    distance = float(torch.linalg.svdvals(eye + wide).min()) if matrix.numel() else 1.0
    if distance <= matrix.shape[0] * torch.finfo(matrix.dtype).eps:
        raise ConstraintError(
            f"`matrix` has an eigenvalue within {distance:.3g} of -1, which the Cayley map does not reach. "
            "Use `HouseholderOrthogonal` or `ExpOrthogonal`."
        )
    skew = torch.linalg.solve(eye + wide, eye - wide)
    return ((skew - skew.mT) / 2).to(matrix.dtype)
