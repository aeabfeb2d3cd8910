"""Which loop runs a call: chosen from the call alone, so that forward and backward choose alike."""

from steadyrnn.cells.base import Cell
from steadyrnn.cells.gru import GRUStep
from steadyrnn.cells.lstm import LSTMStep
from steadyrnn.cells.rnn import RNNStep
from steadyrnn.errors import EngineError

from ..loop.call import Call
from ..loop.family import Family
from .gru import GRUFamily
from .lstm import LSTMFamily
from .onednn import OneDNNFamily, onednn_takes
from .rnn import RNNFamily

__all__ = ["family_of"]


def family_of(call: Call, cell: Cell, whole: bool) -> Family:
    """Return the loop for ``call``; ``whole`` says that it covers all of time (torch's own layer takes nothing less)."""
    if isinstance(cell, RNNStep):
        return RNNFamily(call, cell.activation)
    if isinstance(cell, GRUStep):
        return GRUFamily(call, cell.reset_after)
    if isinstance(cell, LSTMStep):
        return OneDNNFamily(call) if whole and onednn_takes(call) else LSTMFamily(call)
    raise EngineError(f"The cpu engine has no loop for the cell {cell.key!r}.")
