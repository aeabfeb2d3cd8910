"""The GRU step, with the reset gate before or after the recurrent product."""

from dataclasses import dataclass

from torch import Tensor

from .base import Cell, Recur, State
from .record import CellRecord

__all__ = ["GRUStep"]


RESET_AFTER = CellRecord(
    "gru:after", "rzn", reset_after=True, theorem="gru", kernel="gru_after", cudnn_mode=3, torch_name="GRU", onnx_name="GRU",
    measured_as="gru-after",
)  # fmt: skip
RESET_BEFORE = CellRecord("gru:before", "rzn", reset_after=False, theorem="gru", kernel="gru_before", onnx_name="GRU")


@dataclass(frozen=True)
class GRUStep(Cell):
    r"""One step of a gated recurrent unit.

    .. math::
        r &= \sigma(W_r h + U_r x + b_r), \quad z = \sigma(W_z h + U_z x + b_z) \\
        n &= \tanh(U_n x + b_n + r \circ (W_n h + c_n)) \quad\text{(reset after, torch's form)} \\
        n &= \tanh(U_n x + b_n + W_n (r \circ h) + c_n) \quad\text{(reset before)} \\
        h^+ &= (1 - z) \circ n + z \circ h

    Example:
        >>> GRUStep().step(torch.zeros(1, 3), (torch.ones(1, 1),), lambda v, gates: v.new_zeros(1, len(gates)), None)
        (tensor([[0.5000]]),)

    References:
        Lin, Wang. uRNN: An Approach to Bounded Gradients (its uGRU, with the reset gate put back).
    """

    reset_after: bool = True

    def __post_init__(self) -> None:
        """Look up the record."""
        object.__setattr__(self, "record", RESET_AFTER if self.reset_after else RESET_BEFORE)

    def step(self, gates_x: Tensor, state: State, recur: Recur, theta: Tensor | None) -> State:
        """Return the next state; shapes as in :class:`~steadyrnn.cells.base.Cell`."""
        (h,) = state
        r_x, z_x, n_x = gates_x.chunk(3, dim=-1)  # each (B, H)
        if self.reset_after:
            r_h, z_h, n_h = recur(h, "rzn").chunk(3, dim=-1)
            r, z = (r_x + r_h).sigmoid(), (z_x + z_h).sigmoid()
            n = (n_x + r * n_h).tanh()
        else:
            r_h, z_h = recur(h, "rz").chunk(2, dim=-1)
            r, z = (r_x + r_h).sigmoid(), (z_x + z_h).sigmoid()
            n = (n_x + recur(r * h, "n")).tanh()
        return (n + z * (h - n),)
