"""The Elman layer."""

from typing import Literal

import torch

from steadyrnn.activations import Activation, as_activation
from steadyrnn.cells.rnn import RNNStep

from .arguments import with_shared_arguments
from .base import RecurrentLayer
from .weights import TransitionLike

__all__ = ["RNN"]


@with_shared_arguments
class RNN(RecurrentLayer):
    r"""A drop-in for :class:`torch.nn.RNN` whose recurrent weight stays in a chosen set of matrices.

    .. math:: h_t = \varphi(W h_{t-1} + U x_t + b)

    W is computed from its constraint once per forward call; an engine then runs the loop over time. Positional arguments,
    shapes, return values and parameter names are torch's.

    Args:
        <arguments of every layer>
        nonlinearity: A name (``"tanh" "relu" "leaky_relu" "abs" "identity" "sigmoid" "modrelu" "modrelu_real"``) or an
            activation.
        transition: The set: a name, a constraint, or a mapping ``{"h": ...}``. A constraint is a template.

    Example:
        >>> rnn = sr.RNN(3, 8, nonlinearity="relu", transition=sr.Spectral(reflectors=2, radius=0.01))
        >>> output, h_n = rnn(torch.randn(5, 2, 3))
        >>> output.shape, h_n.shape
        (torch.Size([5, 2, 8]), torch.Size([1, 2, 8]))

    References:
        Zhang, Lei, Dhillon. Stabilizing Gradients for Deep Neural Networks via Efficient SVD Parameterization.
        ICML 2018. https://arxiv.org/abs/1803.09327
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str | Activation = "tanh",
        bias: bool | Literal["single"] = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        *extra: object, device: torch.device | str | None = None, dtype: torch.dtype | None = None,
        transition: TransitionLike = "free", learn_initial_state: bool = False, engine: str = "auto", recompute: bool = False,
        proj_size: int = 0,
    ) -> None:  # fmt: skip
        self._activation = as_activation(nonlinearity)
        self.cell = RNNStep(self._activation)
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            *extra, device=device, dtype=dtype, transition=transition, learn_initial_state=learn_initial_state, engine=engine,
            recompute=recompute, proj_size=proj_size,
        )  # fmt: skip

    @property
    def nonlinearity(self) -> str:
        """The activation's name."""
        return self._activation.name

    @property
    def mode(self) -> str:
        """Torch's name for the kind of layer."""
        return f"RNN_{self.nonlinearity.upper()}"

    @property
    def activation(self) -> Activation:
        """The activation itself."""
        return self._activation

    def extra_repr(self) -> str:
        """Show the activation too."""
        return f"{super().extra_repr()}, nonlinearity={self._activation}"
