"""The Elman step."""

from dataclasses import dataclass

from torch import Tensor

from steadyrnn.activations import Activation

from .base import Cell, Recur, State
from .record import CellRecord

__all__ = ["RNNStep"]


@dataclass(frozen=True)
class RNNStep(Cell):
    r"""One step :math:`h_t = \varphi(W h_{t-1} + U x_t + b)`.

    Example:
        >>> from steadyrnn.activations import ReLU
        >>> RNNStep(ReLU()).step(torch.ones(1, 2), (torch.ones(1, 2),), lambda v, gates: -2 * v, None)
        (tensor([[0., 0.]]),)
    """

    activation: Activation

    def __post_init__(self) -> None:
        """Fill in the record from the activation's facts."""
        object.__setattr__(self, "record", _record_of(self.activation))

    def step(self, gates_x: Tensor, state: State, recur: Recur, theta: Tensor | None) -> State:
        """Return the next state; shapes as in :class:`~steadyrnn.cells.base.Cell`."""
        return (self.activation.value(gates_x + recur(state[0], "h"), theta),)


def _record_of(activation: Activation) -> CellRecord:
    """Return the record of the Elman cell with this activation."""
    if activation.coordinates is not None:  # the layer hands engines another cell; of this one nobody knows anything
        return CellRecord(f"rnn:{activation.key}", "h", activation=activation)
    cudnn, torch_name, onnx_name = activation.cudnn_mode, activation.torch_name, activation.onnx_name
    return CellRecord(
        f"rnn:{activation.key}",
        "h",
        activation=activation,
        theorem="elman",
        kernel="elman",
        cudnn_mode=cudnn,
        torch_name=None if torch_name is None else "RNN",
        onnx_name=None if onnx_name is None else "RNN",
        measured_as="rnn-leaky_relu" if cudnn is None else f"rnn-{activation.name}",
    )
