"""The multi-layer perceptron."""

from typing import Any

import torch
from torch import nn

from steadyrnn.activations import Activation
from steadyrnn.checks import check_positive_int
from steadyrnn.constraints.base import Constraint

from .base import FeedForward
from .hidden import HiddenLayer
from .weight_places import WeightLike

__all__ = ["MLP"]


class MLP(FeedForward):
    r"""A perceptron of constant width: an input layer, ``depth`` square layers, a linear readout.

    .. math::
        h_0 = \varphi(W_0 x + b_0), \qquad h_t = \varphi(W_t h_{t-1} + b_t) \quad (t = 1, \dots, L), \qquad
        y = C h_L + d

    With L = ``depth``: Figure 5 of the paper, "after the input layer there are 30-100 layers with hidden dimension
    128". So there are L + 2 weights, and L + 1 activations. One constraint is put on the L square weights, which makes
    the Spectral-MLP of ``weight="spectral"``; a mapping such as ``{"input": "spectral", "hidden": "spectral",
    "readout": "free"}`` names places. A gradient on its way from :math:`h_L` to :math:`h_0` grows by at most
    :math:`\prod_t \lVert W_t \rVert` times the activation's largest slope to the L-th power. Each constraint is
    evaluated once per forward call.

    Args:
        in_features: Size of x.
        width: Size of every h.
        out_features: Size of y.
        depth: L, the number of square layers behind the input layer.
        activation: A name or an activation; modReLU learns one shift per pair of units in each layer.
        weight: The set of the hidden weights, or a mapping from ``input``, ``hidden``, ``readout`` to sets. A
            constraint is a template: every weight gets its own copy.
        dropout: Probability behind every activation, in training.
        device: Where parameters live.
        dtype: Their dtype.

    Example:
        >>> mlp = sr.MLP(784, 32, 10, depth=30, activation="leaky_relu", weight=sr.Spectral(reflectors=4), dropout=0.1)
        >>> mlp(torch.randn(5, 784)).shape
        torch.Size([5, 10])

    References:
        Zhang, Lei, Dhillon. Stabilizing Gradients for Deep Neural Networks via Efficient SVD Parameterization.
        ICML 2018 (sections 5 and 7.2). https://arxiv.org/abs/1803.09327
    """

    def __init__(
        self,
        in_features: int,
        width: int,
        out_features: int,
        depth: int,
        activation: str | Activation = "relu",
        weight: WeightLike = "free",
        dropout: float = 0.0,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_positive_int("depth", depth)
        super().__init__(in_features, width, out_features, depth, activation, weight, dropout, device, dtype)
        self.depth = depth

    def _member(self, activation: Activation, weight: Constraint, dropout: float, kwargs: dict[str, Any]) -> nn.Module:
        return HiddenLayer(self.width, self.width, activation, weight, dropout, **kwargs)
