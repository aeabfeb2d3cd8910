"""Single steps for a user's own loop: drop-ins for torch's RNNCell, GRUCell and LSTMCell."""

from abc import ABC
from typing import Any, Literal

import torch
from torch import Tensor

from steadyrnn.activations import Activation, as_activation
from steadyrnn.cells.base import State
from steadyrnn.cells.gru import GRUStep
from steadyrnn.cells.lstm import LSTMStep
from steadyrnn.cells.rnn import RNNStep
from steadyrnn.checks import check_flag, without_autocast
from steadyrnn.constraints.stable_lstm import StableLSTM
from steadyrnn.engines.reference import ReferenceEngine
from steadyrnn.errors import ArgumentTypeError, ShapeError

from .arguments import with_shared_arguments
from .sequence import check_input, check_states
from .weights import RecurrentWeights, TransitionLike

__all__ = ["GRUCell", "LSTMCell", "RNNCell"]


class RecurrentStep(RecurrentWeights, ABC):
    """What the three cells share: one step of the reference loop, which is differentiable in every way."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool | Literal["single"] = True,
        device: torch.device | str | None = None, dtype: torch.dtype | None = None, *,
        transition: TransitionLike | StableLSTM = "free", learn_initial_state: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self._prepare(input_size, hidden_size, bias if isinstance(bias, str) else bool(bias))  # 0 too, as in torch
        self.learn_initial_state = check_flag("learn_initial_state", learn_initial_state)
        constraints, kwargs = self._read_transition(transition), {"device": device, "dtype": dtype}
        self._add("", input_size, constraints, self.learn_initial_state, kwargs)
        self._hold()
        self._draw()

    def extra_repr(self) -> str:
        """Show the sizes."""
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias is True else f", bias={self.bias!r}")

    def _step(self, input: Tensor, hx: Any) -> State:
        """Return the next states, each (B, H) or, unbatched, (H,)."""
        if not isinstance(input, Tensor):
            raise ArgumentTypeError(f"`input` must be a tensor, but is of type {type(input).__name__}.")
        if input.dim() not in (1, 2):
            raise ShapeError(f"`input` must have 1 dimension (unbatched) or 2, but has shape {tuple(input.shape)}.")
        batched = input.dim() == 2
        data = input if batched else input.unsqueeze(0)
        dtype = check_input(self, data, self.weight_ih)
        rows = (data.shape[0], self.hidden_size)
        state = check_states(self._states(hx), rows if batched else rows[1:], self.weight_ih)
        if state is None:
            state = self._start(data, rows)
        state = tuple((s if batched or hx is None else s.unsqueeze(0)).to(dtype) for s in state)
        with without_autocast(data.device):
            run = self._recurrence(data.to(dtype).unsqueeze(0), state, "", None, False, False)
            coordinates = self._coordinates("")
            state = ReferenceEngine().run(run)[1] if coordinates is None else coordinates.step(run)
        return state if batched else tuple(s.squeeze(0) for s in state)

    def _start(self, data: Tensor, rows: tuple[int, int]) -> State:
        """Return the learned initial state, or zero, for every row."""
        if self.learn_initial_state:
            return tuple(getattr(self, name).expand(rows) for name in self._state_names())
        return tuple(data.new_zeros(rows) for _ in self.cell.record.state_names)


@with_shared_arguments
class RNNCell(RecurrentStep):
    """A drop-in for :class:`torch.nn.RNNCell` with a constrained recurrent weight.

    Args:
        <arguments of every cell>
        nonlinearity: A name or an activation; an ``AdaptiveTanh`` too, whose S is in ``saturation``.
        transition: The set the recurrent weight stays in.

    Example:
        >>> cell = sr.RNNCell(3, 4, transition="spectral")
        >>> cell(torch.randn(2, 3)).shape
        torch.Size([2, 4])

    References:
        As :class:`steadyrnn.RNN`.
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool | Literal["single"] = True,
        nonlinearity: str | Activation = "tanh", device: torch.device | str | None = None, dtype: torch.dtype | None = None,
        *, transition: TransitionLike = "free", learn_initial_state: bool = False,
    ) -> None:  # fmt: skip
        activation = as_activation(nonlinearity)
        self.cell = RNNStep(activation)
        super().__init__(
            input_size, hidden_size, bias, device, dtype, transition=transition, learn_initial_state=learn_initial_state
        )
        self.nonlinearity = activation.name

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """Return the next state (B, H), or (H,) for an unbatched input (D,)."""
        return self._step(input, hx)[0]


@with_shared_arguments
class GRUCell(RecurrentStep):
    """A drop-in for :class:`torch.nn.GRUCell` with a constraint on any gate.

    Args:
        <arguments of every cell>
        transition: The set of the candidate's weight, or a mapping from gates to sets.
        reset_after: Whether the reset gate acts behind the recurrent product (torch's form) or before it.

    Example:
        >>> cell = sr.GRUCell(3, 4, transition="ornn")
        >>> cell(torch.randn(2, 3)).shape
        torch.Size([2, 4])

    References:
        As :class:`steadyrnn.GRU`.
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool | Literal["single"] = True,
        device: torch.device | str | None = None, dtype: torch.dtype | None = None, *, transition: TransitionLike = "free",
        reset_after: bool = True, learn_initial_state: bool = False,
    ) -> None:  # fmt: skip
        self.cell = GRUStep(check_flag("reset_after", reset_after))
        super().__init__(
            input_size, hidden_size, bias, device, dtype, transition=transition, learn_initial_state=learn_initial_state
        )

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """Return the next state (B, H), or (H,) for an unbatched input (D,)."""
        return self._step(input, hx)[0]


@with_shared_arguments
class LSTMCell(RecurrentStep):
    """A drop-in for :class:`torch.nn.LSTMCell` with a constraint on any gate, or a ``StableLSTM`` on all weights.

    Args:
        <arguments of every cell>
        transition: The set of the candidate's weight, a mapping from gates to sets, or a ``StableLSTM``.

    Example:
        >>> cell = sr.LSTMCell(3, 4)
        >>> h, c = cell(torch.randn(2, 3))
        >>> c.shape
        torch.Size([2, 4])

    References:
        As :class:`steadyrnn.LSTM`.
    """

    cell = LSTMStep()

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool | Literal["single"] = True,
        device: torch.device | str | None = None, dtype: torch.dtype | None = None, *,
        transition: TransitionLike | StableLSTM = "free", learn_initial_state: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(
            input_size, hidden_size, bias, device, dtype, transition=transition, learn_initial_state=learn_initial_state
        )

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """Return the next states, each (B, H), or (H,) for an unbatched input (D,)."""
        h, c = self._step(input, hx)
        return h, c
