"""The LSTM layer."""

from typing import Literal

import torch

from steadyrnn.cells.lstm import LSTMStep
from steadyrnn.constraints.stable_lstm import StableLSTM

from .arguments import with_shared_arguments
from .base import RecurrentLayer
from .transition import TransitionLike

__all__ = ["LSTM"]


@with_shared_arguments
class LSTM(RecurrentLayer):
    r"""A drop-in for :class:`torch.nn.LSTM` with a constraint on any gate, or on the layer as a whole.

    .. math:: c_t = f \circ c_{t-1} + i \circ g, \qquad h_t = o \circ \tanh(c_t)

    One constraint is put on the candidate gate ``g``; a mapping names gates ``i``, ``f``, ``g``, ``o``; ``StableLSTM``
    constrains all weights of the layer together.

    Args:
        <arguments of every layer>
        transition: The set of the candidate's weight, a mapping from gates to sets, or a ``StableLSTM``.

    Example:
        >>> lstm = sr.LSTM(3, 8, transition="spectral")
        >>> output, (h_n, c_n) = lstm(torch.randn(5, 2, 3))
        >>> c_n.shape
        torch.Size([1, 2, 8])

    References:
        Hochreiter, Schmidhuber. Long Short-Term Memory. Neural Computation 9(8), 1997.
    """

    mode = "LSTM"
    cell = LSTMStep()

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool | Literal["single"] = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        *extra: object, device: torch.device | str | None = None, dtype: torch.dtype | None = None,
        transition: TransitionLike | StableLSTM = "free", learn_initial_state: bool = False, engine: str = "auto",
        recompute: bool = False, proj_size: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            *extra, device=device, dtype=dtype, transition=transition, learn_initial_state=learn_initial_state, engine=engine,
            recompute=recompute, proj_size=proj_size,
        )  # fmt: skip
