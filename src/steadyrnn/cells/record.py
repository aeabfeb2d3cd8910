"""What is known of a cell: all that engines, layers, certificates and conversions decide by."""

from dataclasses import dataclass
from typing import Literal

from steadyrnn.activations import Activation

__all__ = ["CellRecord", "Theorem"]

Theorem = Literal["elman", "gru", "lstm"]
"""Kinds of steps that the certificates' theorems are about."""


@dataclass(frozen=True)
class CellRecord:
    r"""Everything about a cell that anyone dispatches on, in one place.

    Only ``key`` and ``gates`` must be given. A cell whose record says no more than these runs on the reference engine:
    every other engine refuses it, and no theorem is said to hold of it.

    Attributes:
        key: The family's name and, behind a colon, whatever tells its cells apart.
        gates: One letter per gate, in the order in which torch stacks them in a weight of G * H rows.
        candidate: The gate that a single constraint is put on; by default the last one.
        state_names: A name for each state, the output's first; a learned initial one is called ``initial_`` and the name.
        activation: :math:`\varphi` of a step of the form :math:`h^+ = \varphi(W h + U x + b)`; None for every other form.
        reset_after: Of a GRU, whether its reset gate acts behind the recurrent product; None for other cells.
        theorem: The kind of step that the theorems behind a certificate are about; None if there is none.
        kernel: The name under which our kernels know the step, with that of its activation if it has one; None if none do.
        cudnn_mode: cuDNN's number for it, None if it has none.
        onednn_mode: The number for it in torch's oneDNN operations, None if they lack it.
        torch_name: What ``torch.nn`` calls its layer, None if there is none.
        onnx_name: What ONNX calls its operator, None if there is none.
        measured_as: The row of the tables of engine speed that stands for it, None if none does.

    Example:
        >>> record = CellRecord("toy", gates="az")
        >>> record.family, record.candidate, record.gate_rows("z", size=3), record.theorem
        ('toy', 'z', slice(3, 6, None), None)
    """

    key: str
    gates: str
    candidate: str = ""
    state_names: tuple[str, ...] = ("state",)
    activation: Activation | None = None
    reset_after: bool | None = None
    theorem: Theorem | None = None
    kernel: str | None = None
    cudnn_mode: int | None = None
    onednn_mode: int | None = None
    torch_name: str | None = None
    onnx_name: str | None = None
    measured_as: str | None = None

    def __post_init__(self) -> None:
        """Take the last gate for the candidate where none is named."""
        if not self.candidate:
            object.__setattr__(self, "candidate", self.gates[-1:])

    @property
    def family(self) -> str:
        """The part of the key before the colon."""
        return self.key.partition(":")[0]

    def gate_rows(self, gates: str, size: int) -> slice:
        """Return the rows of neighbouring gates in a weight or bias of G * ``size`` rows."""
        start = self.gates.index(gates) * size
        return slice(start, start + len(gates) * size)
