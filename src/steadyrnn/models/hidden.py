"""One hidden layer: affine map, activation, dropout."""

from typing import Any

import torch
from torch import Tensor, nn

from steadyrnn.activations import Activation
from steadyrnn.checks import check_interval
from steadyrnn.constraints.base import Constraint
from steadyrnn.layers.linear import Linear

__all__ = ["HiddenLayer"]


class HiddenLayer(nn.Module):
    r"""A layer :math:`y = \operatorname{dropout}(\varphi(W x + b))`.

    An activation with a learned parameter (modReLU's shift) gets one of its own, named ``activation`` as in a recurrent
    layer, and starting at 0.

    Args:
        in_features: N.
        out_features: M.
        activation: The function :math:`\varphi`.
        weight: The set W stays in.
        dropout: Probability with which an entry is dropped in training.
        kwargs: ``device`` and ``dtype`` of the parameters.

    Example:
        >>> from steadyrnn.activations import ReLU
        >>> HiddenLayer(3, 2, ReLU(), sr.Spectral())(torch.ones(4, 3)).shape
        torch.Size([4, 2])
    """

    activation: Tensor | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        activation: Activation,
        weight: Constraint,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        self.linear = Linear(in_features, out_features, weight=weight, **kwargs)
        self.nonlinearity = activation
        size = activation.parameter_size(out_features)
        self.register_parameter("activation", None if size is None else nn.Parameter(torch.zeros(size, **kwargs)))
        self.dropout = nn.Dropout(check_interval("dropout", dropout, 0.0, 1.0))

    def forward(self, input: Tensor) -> Tensor:
        """Return the layer's value: shape (..., N) becomes (..., M)."""
        value: Tensor = self.nonlinearity.value(self.linear(input), self.activation)
        dropped: Tensor = self.dropout(value)
        return dropped

    def extra_repr(self) -> str:
        """Show the activation, which is not a module."""
        return f"nonlinearity={self.nonlinearity}"
