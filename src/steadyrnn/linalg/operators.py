"""Operator values: a matrix kept in a form that is cheaper to apply than to multiply."""

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["DiagonalLowRank", "spectral_operator"]


class DiagonalLowRank(NamedTuple):
    r"""A square matrix as diagonal plus low rank.

    .. math:: W = \operatorname{diag}(d) + L R^\top

    ``diagonal`` is (H,), ``left`` and ``right`` are (H, K). A product with one vector costs :math:`4HK + H` flops
    instead of :math:`2H^2`.

    Example:
        >>> w = DiagonalLowRank(torch.ones(2), torch.tensor([[1.0], [0.0]]), torch.tensor([[0.0], [1.0]]))
        >>> w.dense()
        tensor([[1., 1.],
                [0., 1.]])
    """

    diagonal: Tensor
    left: Tensor
    right: Tensor

    def apply(self, x: Tensor) -> Tensor:
        r"""Return :math:`x W^\top` for row vectors ``x`` of shape (..., H)."""
        return x * self.diagonal + (x @ self.right) @ self.left.mT

    def dense(self) -> Tensor:
        """Return the matrix itself, shape (H, H)."""
        return torch.addmm(self.diagonal.diag(), self.left, self.right.mT)

    def to(self, dtype: torch.dtype) -> "DiagonalLowRank":
        """Return the same operator in another dtype."""
        return DiagonalLowRank(self.diagonal.to(dtype), self.left.to(dtype), self.right.to(dtype))


def spectral_operator(left: tuple[Tensor, Tensor], sigma: Tensor, right: tuple[Tensor, Tensor]) -> DiagonalLowRank:
    r"""Write :math:`W = U \Sigma V^\top`, its factors in WY form, as diagonal plus low rank.

    With :math:`U = I - Y_u Z_u` and :math:`V = I - Y_v Z_v`,

    .. math:: W = \Sigma + [\,A - Y_u (Z_u A), \; Y_u\,] \, [\,Y_v, \; -\Sigma Z_u^\top\,]^\top, \qquad A = -\Sigma Z_v^\top

    (expand the product and collect). The rank is the number of reflectors on both sides together, so one step costs
    two thin products and no triangular solve.

    Args:
        left: :math:`Y_u` of shape (H, K1) and :math:`Z_u` of shape (K1, H).
        sigma: Diagonal of :math:`\Sigma`, shape (H,).
        right: :math:`Y_v` of shape (H, K2) and :math:`Z_v` of shape (K2, H).

    Example:
        >>> none = (torch.zeros(2, 0), torch.zeros(0, 2))
        >>> spectral_operator(none, torch.tensor([1.0, 2.0]), none).dense()
        tensor([[1., 0.],
                [0., 2.]])

    References:
        Zhang, Lei, Dhillon. Stabilizing Gradients for Deep Neural Networks via Efficient SVD Parameterization.
        ICML 2018. https://arxiv.org/abs/1803.09327
    """
    y_u, z_u = left
    y_v, z_v = right
    minus = -sigma.unsqueeze(-1)
    a = minus * z_v.mT  # (H, K2)
    first = a - y_u @ (z_u @ a)  # (H, K2)
    return DiagonalLowRank(sigma, torch.cat([first, y_u], dim=1), torch.cat([y_v, minus * z_u.mT], dim=1))
