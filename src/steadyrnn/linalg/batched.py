"""Affine maps of many small networks at once, by the products that are fast."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

__all__ = ["map_rows"]

_NARROW = 16  # below it a row of results does not fill a vector register


def map_rows(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    r"""Return :math:`X_r W_r^\top + b_r` for each of R networks; differentiable to any order.

    A narrow result is computed as :math:`(W_r X_r^\top)^\top`, and the gradient of the weight as :math:`\bar Y_r^\top X_r`:
    MKL is several times slower where the columns of a result are few, since it fills vectors along them.

    Args:
        rows: Shape ``(R, L, H)``.
        weight: Shape ``(R, N, H)``.
        bias: Shape ``(R, N)``.

    Returns:
        Shape ``(R, L, N)``.

    Example:
        >>> map_rows(torch.ones(2, 3, 1), torch.tensor([[[1.0]], [[2.0]]]), torch.tensor([[0.0], [1.0]])).squeeze(-1)
        tensor([[1., 1., 1.],
                [3., 3., 3.]])
    """
    image: Tensor = _MapRows.apply(rows, weight, bias)  # type: ignore[no-untyped-call]
    return image


class _MapRows(Function):
    """The map for autograd."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Multiply and add."""
        ctx.save_for_backward(rows, weight)
        if weight.shape[1] < _NARROW:
            columns = rows.mT
            image = torch.bmm(weight, columns) if bias is None else torch.baddbmm(bias.unsqueeze(2), weight, columns)
            return image.mT.contiguous()
        return torch.bmm(rows, weight.mT) if bias is None else torch.baddbmm(bias.unsqueeze(1), rows, weight.mT)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Multiply with the other factor, by differentiable operations."""
        rows, weight = ctx.saved_tensors
        needs_rows, needs_weight, needs_bias = ctx.needs_input_grad
        return (
            torch.bmm(grad, weight) if needs_rows else None,
            torch.bmm(grad.mT, rows) if needs_weight else None,
            grad.sum(1) if needs_bias else None,
        )
