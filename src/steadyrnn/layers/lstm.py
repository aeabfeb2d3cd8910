"""The LSTM layer."""

from typing import Literal

import torch

from steadyrnn.cells.lstm import LSTMStep
from steadyrnn.constraints.stable_lstm import StableLSTM

from .base import RecurrentLayer
from .weights import TransitionLike

__all__ = ["LSTM"]


class LSTM(RecurrentLayer):
    r"""A drop-in for :class:`torch.nn.LSTM` with a constraint on any gate, or on the layer as a whole.

    .. math:: c_t = f \circ c_{t-1} + i \circ g, \qquad h_t = o \circ \tanh(c_t)

    One constraint is put on the candidate gate ``g``; a mapping names gates ``i``, ``f``, ``g``, ``o``; ``StableLSTM``
    constrains all weights of the layer together.

    Args:
        input_size: D.
        hidden_size: H.
        num_layers: Layers in the stack.
        bias: True for torch's two vectors, ``"single"`` for one, False for none.
        batch_first: Whether batched tensors are (B, T, ...).
        dropout: Probability between layers.
        bidirectional: Whether to run both ways.
        extra: Refused: what follows is given by name (here torch has ``proj_size``).
        device: Where parameters live.
        dtype: Their dtype.
        transition: The set of the candidate's weight, a mapping from gates to sets, or a ``StableLSTM``.
        learn_initial_state: Whether both initial states are parameters (unused when ``hx`` is given).
        engine: ``"auto"``, or one by name.
        recompute: Whether to keep every sqrt(T)-th state only.
        proj_size: Refused unless 0.

    Example:
        >>> lstm = sr.LSTM(3, 8, transition="spectral")
        >>> output, (h_n, c_n) = lstm(torch.randn(5, 2, 3))
        >>> c_n.shape
        torch.Size([1, 2, 8])

    References:
        Hochreiter, Schmidhuber. Long Short-Term Memory. Neural Computation 9(8), 1997.
    """

    mode = "LSTM"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool | Literal["single"] = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *extra: object,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        transition: TransitionLike | StableLSTM = "free",
        learn_initial_state: bool = False,
        engine: str = "auto",
        recompute: bool = False,
        proj_size: int = 0,
    ) -> None:
        super().__init__(
            LSTMStep(), input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, *extra,
            device=device, dtype=dtype, transition=transition, learn_initial_state=learn_initial_state, engine=engine,
            recompute=recompute, proj_size=proj_size,
        )  # fmt: skip
