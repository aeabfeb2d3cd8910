"""A limit on the entries of a gradient, put on a tensor on its way forward."""

from typing import Any

import torch
from torch import Tensor

__all__ = ["limit_gradient"]


class _LimitGradient(torch.autograd.Function):
    """The identity, whose gradient is clipped: a function and not a hook, so that ``torch.compile`` keeps one graph."""

    @staticmethod
    def forward(weight: Tensor, limit: Tensor) -> Tensor:
        return weight.view_as(weight)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient,), (limit,) = gradients, ctx.saved_tensors
        limit = limit.to(gradient.dtype)
        # infinity stays: what guards a training, and what scales a loss, must see it
        return torch.where(gradient.isfinite(), gradient.clamp(-limit, limit), gradient), None


def limit_gradient(weight: Tensor, limit: Tensor) -> Tensor:
    r"""Return a tensor as it is; a gradient that comes back is clipped entry by entry before it goes on.

    .. math:: \frac{\partial L}{\partial W} \;\to\; \min\Bigl(\max\Bigl(\frac{\partial L}{\partial W}, -c\Bigr), c\Bigr)

    What comes back in one backward pass is summed first, then clipped. NaN and infinity are left, to be found.

    Args:
        weight: Any tensor.
        limit: The largest absolute entry c, a scalar tensor on the same device.

    Example:
        >>> weight = torch.zeros(3, requires_grad=True)
        >>> (limit_gradient(weight, torch.tensor(0.25)) * torch.tensor([1.0, -2.0, 0.1])).sum().backward()
        >>> weight.grad
        tensor([ 0.2500, -0.2500,  0.1000])
    """
    limited: Tensor = _LimitGradient.apply(weight, limit)  # type: ignore[no-untyped-call]
    return limited
