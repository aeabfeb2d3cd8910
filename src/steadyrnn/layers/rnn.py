"""The Elman layer."""

from typing import Literal, cast

import torch
from torch import Tensor

from steadyrnn.activations import Activation, as_activation
from steadyrnn.cells.rnn import RNNStep
from steadyrnn.checks import without_autocast
from steadyrnn.engines.base import stack_gates
from steadyrnn.errors import ArgumentError

from .arguments import with_shared_arguments
from .base import RecurrentLayer
from .saturation import Coordinates
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
        nonlinearity: A name (``"tanh" "relu" "leaky_relu" "abs" "identity" "sigmoid" "modrelu" "modrelu_real"
            "adaptive_tanh"``) or an activation. :class:`~steadyrnn.AdaptiveTanh` learns how much it saturates.
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

    @torch.no_grad()
    def as_tanh(self) -> "RNN":
        r"""Return the plain tanh network that a network with learned saturation is in :math:`h' = S h`.

        .. math:: h'_t = \tanh(W' h'_{t-1} + U' x_t + b'), \qquad h_t = S^{-1} h'_t

        It is what certificates, probes and conversions can be made of. Its outputs and states are :math:`S h_t`, with the
        matrix S of each layer and direction, ``rnn.saturation_l0.matrix()``; a given ``hx`` must be multiplied by it, and a
        learned initial state is. A layer above the first has :math:`U' = S_l U S_{l-1}^{-1}`. Weights are free, copies, and
        rounded once to the layer's dtype. It is the network of evaluation: dropout between layers is left out.

        A bound that is proven of :math:`h'` gives one of h: :math:`\lVert h \rVert \le \lVert h' \rVert / \min d`, and the
        contraction of :math:`h'` in a norm N is that of h in the norm :math:`N(S \, \cdot)`. See Note [mathematics], 3.10.

        Example:
            >>> rnn = sr.RNN(2, 4, nonlinearity=sr.AdaptiveTanh(start=0.5), transition=sr.SpectralBall(0.9))
            >>> certificate = sr.certify(rnn.as_tanh(), input_bound=1.0)
            >>> certificate.stable, certificate.state_bound / 0.5 < 4.01  # of h: sqrt(H) / min d, or less
            (True, True)

        Raises:
            ArgumentError: The activation has no learned coordinates.
        """
        wanted, like = self.activation.coordinates, self.weight_ih_l0
        if wanted is None:
            raise ArgumentError(
                f"This RNN has no learned saturation but the nonlinearity {self.nonlinearity!r}. Use it as it is."
            )
        with torch.random.fork_rng(devices=[like.device] if like.device.type == "cuda" else []):
            plain = RNN(
                self.input_size, self.hidden_size, self.num_layers, wanted.inner, self.bias, self.batch_first, 0.0,
                self.bidirectional, device=like.device, dtype=like.dtype, learn_initial_state=self.learn_initial_state,
                engine=self.engine, recompute=self.recompute,
            )  # fmt: skip
        below: list[Coordinates] = []
        with without_autocast(like.device):
            for layer in range(self.num_layers):
                ends = [self.suffix(layer, direction) for direction in range(self.directions)]
                below = [self._transform(plain, end, below) for end in ends]
        return plain.train(self.training)

    def _transform(self, plain: "RNN", end: str, below: list[Coordinates]) -> Coordinates:
        """Fill in one direction of one layer of the plain network, on outputs S h of the layer ``below``."""
        coordinates, like = cast(Coordinates, self._coordinates(end)), self.weight_ih_l0
        nothing = like.new_zeros(0, 1, getattr(self, f"weight_ih{end}").shape[1])
        start = getattr(self, f"initial_state{end}", like.new_zeros(self.hidden_size))
        run = self._recurrence(nothing, (start.unsqueeze(0),), end, None, False, False, coordinates)
        weight_ih = getattr(self, f"weight_ih{end}")
        if below:
            parts = weight_ih.split(self.hidden_size, dim=1)
            weight_ih = torch.cat([one.divide(part) for one, part in zip(below, parts, strict=True)], dim=1)
        found: dict[str, Tensor | None] = {"weight_ih": coordinates.times(weight_ih), "initial_state": run.state[0][0]}
        found |= {"weight_hh": stack_gates(run.weight_hh, like.dtype), "bias_ih": run.bias_ih, "bias_hh": run.bias_hh}
        for name, value in found.items():
            parameter = plain._parameters.get(f"{name}{end}")
            if parameter is not None and value is not None:
                parameter.copy_(value)
        return coordinates

    def extra_repr(self) -> str:
        """Show the activation too."""
        return f"{super().extra_repr()}, nonlinearity={self._activation}"
