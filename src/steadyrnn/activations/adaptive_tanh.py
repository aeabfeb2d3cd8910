"""The hyperbolic tangent in coordinates that are learned: how much a network saturates, and in which directions."""

import math
from dataclasses import dataclass
from typing import NoReturn

from torch import Tensor

from steadyrnn.errors import ArgumentError, ArgumentTypeError, not_among

from .base import Activation, LearnedCoordinates
from .elementwise import Tanh

__all__ = ["AdaptiveTanh"]

BASES = ("full", "diagonal")
"""What V may be: any rotation without the eigenvalue -1, or the identity."""
SCALES = (1e-6, 1e6)
"""The range that every entry of d is kept in."""


@dataclass(frozen=True)
class AdaptiveTanh(Activation):
    r"""Learned saturation: tanh in coordinates :math:`S` that the layer learns.

    .. math::
        h_t = S^{-1} \tanh(S (W h_{t-1} + U x_t + b)), \qquad S = V \operatorname{diag}(d), \quad V^\top V = I, \quad d > 0

    With :math:`h' = S h` it is the plain tanh network of :math:`W' = S W S^{-1}, U' = S U, b' = S b`, so every engine runs it:
    the layer transforms the weights before the loop over time, and outputs and states behind it. That is done once per call, in
    float32 or float64, and costs :math:`O(H^3 + T B H^2)`. float16 is refused, as it cannot hold the scaled weights. As
    :math:`d \to 0` the network becomes linear; a large d saturates early. Outputs are not bounded by 1, but by :math:`\lVert
    h_t \rVert \le \sqrt H / \min d`. W stays in its set. :math:`W'` is a dense matrix, also where W has factors, except with
    ``basis="diagonal"``. The gradient of d is a small difference of large terms: in float32 few of its digits are right where d
    is below 0.001.

    This object is a template, like a constraint. Each layer and direction of an ``RNN`` (or an ``RNNCell``) holds its own S, in
    ``saturation_l0`` (``saturation_l0_reverse``; of a cell ``saturation``): the logarithm of d as ``log_scale``, shape (H,),
    and for a full basis the entries of a skew matrix as ``basis.raw0``, of which V is the Cayley transform. V starts at the
    identity. Entries of d are kept from 1e-6 to 1e6. No other kind of layer has it.

    Certificates, probes of gradients and most conversions are not about this network itself: they refuse it, and are made of
    the equivalent plain one, :meth:`steadyrnn.RNN.as_tanh`.

    Args:
        basis: ``"full"``: V is learned; ``"diagonal"``: V is the identity, and each unit has a scale of its own.
        start: The first value of every entry of d.

    Example:
        >>> rnn = sr.RNN(3, 8, nonlinearity=AdaptiveTanh(start=0.1), transition="cayley")
        >>> [name for name, _ in rnn.named_parameters() if name.startswith("saturation")]
        ['saturation_l0.log_scale', 'saturation_l0.basis.raw0']
        >>> x = torch.randn(5, 2, 3)
        >>> outputs, expected = rnn(x)[0] @ rnn.saturation_l0.matrix().mT, rnn.as_tanh()(x)[0]
        >>> torch.allclose(outputs, expected, atol=1e-6)
        True

    References:
        Nguyen-Duy, Pham, Nguyen. Adaptive-saturated RNN: Remember More With Less Instability. 2023.
        https://arxiv.org/abs/2304.11790
    """

    basis: str = "full"
    start: float = 0.05
    name = "adaptive_tanh"
    slopes, steepness, smoothness = (-math.inf, math.inf), (0.0, math.inf), math.inf
    elementwise = False

    def __post_init__(self) -> None:
        """Refuse another basis, and a start that d cannot take."""
        if not isinstance(self.basis, str):
            raise ArgumentTypeError(f"`basis` must be 'full' or 'diagonal', but is of type {type(self.basis).__name__}.")
        if self.basis not in BASES:
            raise ArgumentError(not_among("basis", self.basis, BASES))
        if isinstance(self.start, bool) or not isinstance(self.start, int | float):
            raise ArgumentTypeError(f"`start` must be a number, but is of type {type(self.start).__name__}.")
        low, high = SCALES
        if not low <= self.start <= high:
            raise ArgumentError(f"`start` must lie between {low:g} and {high:g}, as every scale d does, but is {self.start}.")

    @property
    def key(self) -> str:
        """The name with basis and start; engines never see it, so nothing is built from it."""
        return f"{self.name}({self.basis},{float(self.start)!r})"

    @property
    def coordinates(self) -> LearnedCoordinates:  # type: ignore[override]
        """What the layer has to hold."""
        return LearnedCoordinates(self.basis, float(self.start), SCALES, Tanh())

    def value(self, x: Tensor, theta: Tensor | None = None) -> NoReturn:
        """Raise: the value depends on S, which a layer holds."""
        self._refuse()

    def derivative(self, x: Tensor) -> NoReturn:
        """Raise: the derivative is a matrix, and depends on S, which a layer holds."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise ArgumentError(
            f"`{self.name}` has no value by itself: a recurrent layer learns its coordinates. Use it as the nonlinearity of "
            "an `RNN` or an `RNNCell`."
        )
