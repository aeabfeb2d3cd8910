"""The Cayley transform between skew matrices and rotations."""

import torch
from torch import Tensor

from steadyrnn.checks import check_finite, check_square
from steadyrnn.errors import ConstraintError

from .exponential import skew_part

__all__ = ["cayley", "cayley_inverse"]


def cayley(skew: Tensor) -> Tensor:
    r"""Map a skew matrix to a rotation.

    .. math:: W = (I + A)^{-1} (I - A)

    The eigenvalues :math:`i\theta` of :math:`A` are imaginary, so :math:`I + A` is invertible, and those of :math:`W`,
    :math:`(1 - i\theta) / (1 + i\theta)`, lie on the circle and are never -1; they come in conjugate pairs, so
    the determinant is 1. Costs one linear system of :math:`n` right sides, and another for the gradient.

    Args:
        skew: :math:`A`, skew, shape ``(n, n)``.

    Returns:
        :math:`W`, orthogonal with determinant 1, shape ``(n, n)``; not finite where an entry of ``skew`` is not, or
        so large that nothing is left of the identity beside it.

    Example:
        >>> cayley(torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))
        tensor([[ 0., -1.],
                [ 1.,  0.]])

    References:
        Helfrich, Willmott, Ye. Orthogonal Recurrent Neural Networks with Scaled Cayley Transform. ICML 2018.
        https://arxiv.org/abs/1707.09520
    """
    check_square("skew", skew)
    identity = torch.eye(len(skew), dtype=skew.dtype, device=skew.device)
    rotation: Tensor = torch.linalg.solve_ex(identity + skew, identity - skew).result  # no error: NaN must stay visible
    return rotation


@torch.no_grad()
def cayley_inverse(matrix: Tensor) -> Tensor:
    r"""Return the skew matrix that :func:`cayley` maps to a rotation.

    .. math:: A = (I + W)^{-1} (I - W)

    The transform is its own inverse: solve its definition for :math:`A`. A rotation by 180 degrees has the eigenvalue
    -1 and is not reached; close to one :math:`A` is large, and :math:`W` comes back with an error of rounding
    divided by the distance. Computed in float64; costs one SVD and one linear system.

    Args:
        matrix: :math:`W`, orthogonal without the eigenvalue -1, shape ``(n, n)``.

    Returns:
        :math:`A`, skew, shape ``(n, n)``.

    Example:
        >>> cayley_inverse(torch.tensor([[0.0, -1.0], [1.0, 0.0]]))
        tensor([[ 0.,  1.],
                [-1.,  0.]])
    """
    check_finite("matrix", check_square("matrix", matrix))
    if matrix.numel() == 0:
        return matrix.clone()
    wide = matrix.double()
    identity = torch.eye(len(wide), dtype=wide.dtype, device=wide.device)
    distance = float(torch.linalg.svdvals(identity + wide)[-1])
    if distance <= 16 * len(wide) * torch.finfo(matrix.dtype).eps:
        raise ConstraintError(
            f"`matrix` must not have the eigenvalue -1, which the Cayley transform never reaches, but has one within "
            f"{distance:.3g} of it. Use `HouseholderOrthogonal` or `ExpOrthogonal`."
        )
    return skew_part(torch.linalg.solve(identity + wide, identity - wide)).to(matrix.dtype)
