"""The Cayley transform between skew matrices and rotations."""

from math import inf
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from steadyrnn.checks import carries_transform, check_finite, check_matrix, without_autocast
from steadyrnn.errors import ConstraintError

from .exponential import angles_of_skew, skew_part, turn_planes
from .projections import polar_factor

__all__ = ["cayley", "cayley_inverse"]

_LARGE = 16.0
"""An entry from which on rounding in the linear system may leave the orthogonal matrices by more than is allowed for it."""


def cayley(skew: Tensor) -> Tensor:
    r"""Map a skew matrix to a rotation.

    .. math:: W = (I + A)^{-1} (I - A)

    The eigenvalues :math:`i\theta` of :math:`A` are imaginary, so :math:`I + A` is invertible, and those of :math:`W`,
    :math:`(1 - i\theta) / (1 + i\theta)`, lie on the circle and are never -1; they come in conjugate pairs, so
    the determinant is 1. Costs one linear system of :math:`n` right sides, and another for the gradient. Rounding in
    it is amplified by :math:`\lVert A \rVert`: on a CPU, outside a compiled graph, the solution of a large :math:`A` is
    replaced by its polar factor, and where nothing is left of it by the rotation with the angles
    :math:`-2 \arctan\theta`, at the cost of one Hermitian eigendecomposition.

    Args:
        skew: :math:`A`, skew, shape ``(n, n)``.

    Returns:
        :math:`W`, orthogonal with determinant 1, shape ``(n, n)``; not finite where an entry of ``skew`` is not.

    Example:
        >>> cayley(torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))
        tensor([[ 0., -1.],
                [ 1.,  0.]])

    References:
        Helfrich, Willmott, Ye. Orthogonal Recurrent Neural Networks with Scaled Cayley Transform. ICML 2018.
        https://arxiv.org/abs/1707.09520
    """
    check_matrix("skew", skew, square=True)
    if _is_large(skew):
        return _LargeCayley.apply(skew)  # type: ignore[no-any-return, no-untyped-call]
    identity = torch.eye(len(skew), dtype=skew.dtype, device=skew.device)
    rotation: Tensor = torch.linalg.solve_ex(identity + skew, identity - skew).result  # no error: NaN must stay visible
    return rotation.contiguous()  # it comes in columns


def _is_large(skew: Tensor) -> bool:
    """Say whether a matrix is so large that the solution needs care, where asking does not hold anybody up."""
    if torch.compiler.is_compiling() or skew.device.type != "cpu" or type(skew) is not Tensor or not skew.numel():
        return False
    if carries_transform(skew):
        return False
    return _LARGE < skew.detach().max().item() < inf  # with an entry there is its negative


class _LargeCayley(Function):
    r"""The transform of a large matrix; its derivative is :math:`dW = -\tfrac12 (I + W) \, dA \, (I + W)`."""

    @staticmethod
    def forward(ctx: Any, skew: Tensor) -> Tensor:
        rotation = _rotation_of_large(skew.double()).to(skew.dtype).contiguous()
        ctx.save_for_backward(rotation)
        return rotation

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> Tensor:
        (rotation,) = ctx.saved_tensors
        with without_autocast(rotation.device):
            twice = torch.eye(len(rotation), dtype=rotation.dtype, device=rotation.device) + rotation.mT
            gradient: Tensor = -(twice @ given[0] @ twice) / 2
        return gradient


def _rotation_of_large(skew: Tensor) -> Tensor:
    """Return the transform, orthogonal to rounding: what the linear system gives if it is close to that."""
    identity = torch.eye(len(skew), dtype=skew.dtype, device=skew.device)
    rotation: Tensor = torch.linalg.solve_ex(identity + skew, identity - skew).result
    close = float((rotation.mT @ rotation - identity).norm()) < 0.5
    if close and float(torch.linalg.slogdet(rotation).sign) > 0:
        return polar_factor(rotation)
    angles, vectors = angles_of_skew(skew)
    return turn_planes(-2 * angles.atan(), vectors)


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
    check_finite("matrix", check_matrix("matrix", matrix, square=True))
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
