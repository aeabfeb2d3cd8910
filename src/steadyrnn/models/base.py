"""What the feed-forward models share: an input layer, a stack of square layers, a linear readout."""

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from steadyrnn.activations import Activation, as_activation
from steadyrnn.checks import check_positive_int
from steadyrnn.constraints.base import Constraint
from steadyrnn.errors import ArgumentError
from steadyrnn.layers.linear import Linear

from .hidden import HiddenLayer
from .weight_places import WeightLike, by_place

__all__ = ["FeedForward"]


class FeedForward(nn.Module, ABC):
    """A network of constant width between its first and last weight; a final class gives one member of the stack."""

    def __init__(
        self,
        in_features: int,
        width: int,
        out_features: int,
        members: int,
        activation: str | Activation,
        weight: WeightLike,
        dropout: float,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        self.in_features = check_positive_int("in_features", in_features)
        self.width = check_positive_int("width", width)
        self.out_features = check_positive_int("out_features", out_features)
        phi, sets = as_activation(activation, "activation"), by_place(weight)
        if phi.coordinates is not None:
            raise ArgumentError(
                f"`activation` {phi.name!r} has coordinates that only recurrent layers learn, and {type(self).__name__} has "
                "none. Choose another one, such as 'tanh'."
            )
        kwargs = {"device": device, "dtype": dtype}
        self.input = HiddenLayer(in_features, width, phi, sets["input"], dropout, **kwargs)
        self.hidden = nn.Sequential(*(self._member(phi, sets["hidden"], dropout, kwargs) for _ in range(members)))
        self.readout = Linear(width, out_features, weight=sets["readout"], device=device, dtype=dtype)

    @abstractmethod
    def _member(self, activation: Activation, weight: Constraint, dropout: float, kwargs: dict[str, Any]) -> nn.Module:
        """Return one member of the stack: a map of (..., width) to itself."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the network's output: shape (..., in_features) becomes (..., out_features)."""
        output: Tensor = self.readout(self.hidden(self.input(input)))
        return output
