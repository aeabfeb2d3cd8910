"""The residual network."""

from typing import Any

import torch
from torch import Tensor, nn

from steadyrnn.activations import Activation
from steadyrnn.checks import check_positive_int
from steadyrnn.constraints.base import Constraint
from steadyrnn.layers.linear import Linear

from .base import FeedForward
from .hidden import HiddenLayer
from .weight_places import WeightLike

__all__ = ["ResNet", "ResidualBlock"]


class ResidualBlock(nn.Module):
    r"""A block of two layers, :math:`x + W_2 \operatorname{dropout}(\varphi(W_1 x + b_1)) + b_2`.

    Args:
        width: Size of x.
        activation: The function :math:`\varphi`.
        weight: The set of both weights.
        dropout: Probability behind the activation.
        kwargs: ``device`` and ``dtype`` of the parameters.

    Example:
        >>> from steadyrnn.activations import ReLU
        >>> ResidualBlock(3, ReLU(), sr.Spectral())(torch.ones(4, 3)).shape
        torch.Size([4, 3])
    """

    def __init__(
        self,
        width: int,
        activation: Activation,
        weight: Constraint,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        self.first = HiddenLayer(width, width, activation, weight, dropout, **kwargs)
        self.second = Linear(width, width, weight=weight, **kwargs)

    def forward(self, input: Tensor) -> Tensor:
        """Return the block's value, shape as ``input``: (..., width)."""
        change: Tensor = self.second(self.first(input))
        return input + change


class ResNet(FeedForward):
    r"""A fully connected residual network: an input layer, ``blocks`` blocks of two layers, a linear readout.

    .. math::
        h_0 = \varphi(W_0 x + b_0), \qquad h_t = h_{t-1} + V_t \varphi(U_t h_{t-1} + a_t) + b_t, \qquad y = C h_L + d

    The identity path has no activation on it: h comes through unchanged where a block adds nothing. One block is
    Lipschitz with constant :math:`1 + \gamma \lVert U_t \rVert \lVert V_t \rVert` (:math:`\gamma` the activation's
    largest slope), so a constraint on both weights bounds how far gradients can grow; where
    :math:`\gamma \lVert U_t \rVert \lVert V_t \rVert < 1`, a block keeps at least one minus that product of a
    gradient's length. ``sr.Spectral(center=0.0, radius=r)`` makes that product at most :math:`\gamma r^2`, so that a deep
    network neither loses nor inflates gradients. ``sr.MLP`` with ``depth = 2 * blocks`` has weights of the same shapes.
    Each constraint is evaluated once per forward call.

    Args:
        in_features: Size of x.
        width: Size of every h.
        out_features: Size of y.
        blocks: Number of blocks L, each of two square weights.
        activation: A name or an activation; modReLU learns one shift per pair of units in each layer.
        weight: The set of both weights of every block, or a mapping from ``input``, ``hidden``, ``readout`` to sets. A
            constraint is a template: every weight gets its own copy.
        dropout: Probability behind every activation, in training.
        device: Where parameters live.
        dtype: Their dtype.

    Example:
        >>> resnet = sr.ResNet(784, 32, 10, blocks=15, activation="leaky_relu", weight=sr.Spectral(4, center=0.0), dropout=0.1)
        >>> resnet(torch.randn(5, 784)).shape
        torch.Size([5, 10])

    References:
        Zhang, Lei, Dhillon. Stabilizing Gradients for Deep Neural Networks via Efficient SVD Parameterization.
        ICML 2018 (section 7: "a residual block of two layers"). https://arxiv.org/abs/1803.09327
        Hardt, Ma. Identity Matters in Deep Learning. ICLR 2017 (this form of the block).
    """

    def __init__(
        self,
        in_features: int,
        width: int,
        out_features: int,
        blocks: int,
        activation: str | Activation = "relu",
        weight: WeightLike = "free",
        dropout: float = 0.0,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_positive_int("blocks", blocks)
        super().__init__(in_features, width, out_features, blocks, activation, weight, dropout, device, dtype)
        self.blocks = blocks

    def _member(self, activation: Activation, weight: Constraint, dropout: float, kwargs: dict[str, Any]) -> nn.Module:
        return ResidualBlock(self.width, activation, weight, dropout, **kwargs)
