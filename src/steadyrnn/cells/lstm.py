"""The LSTM step."""

from dataclasses import dataclass

from torch import Tensor

from .base import Cell, Recur, State
from .record import CellRecord

__all__ = ["LSTMStep"]


@dataclass(frozen=True)
class LSTMStep(Cell):
    r"""One step of a long short-term memory.

    .. math::
        c^+ = \sigma(f) \circ c + \sigma(i) \circ \tanh(g), \qquad h^+ = \sigma(o) \circ \tanh(c^+)

    with each of i, f, g, o of the form :math:`W h + U x + b`.

    Example:
        >>> state = (torch.zeros(1, 1), torch.ones(1, 1))
        >>> LSTMStep().step(torch.zeros(1, 4), state, lambda v, gates: v.new_zeros(1, 4), None)[1]
        tensor([[0.5000]])
    """

    record = CellRecord(
        "lstm", "ifgo", candidate="g", state_names=("state", "cell"), theorem="lstm", kernel="lstm", cudnn_mode=2,
        onednn_mode=2, torch_name="LSTM", onnx_name="LSTM", measured_as="lstm",
    )  # fmt: skip

    def step(self, gates_x: Tensor, state: State, recur: Recur, theta: Tensor | None) -> State:
        """Return the next state; shapes as in :class:`~steadyrnn.cells.base.Cell`."""
        h, c = state
        i, f, g, o = (gates_x + recur(h, "ifgo")).chunk(4, dim=-1)  # each (B, H)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c
