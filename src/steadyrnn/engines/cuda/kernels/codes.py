"""Where kernels lie, and the numbers under which their source knows cells, activations and dtypes."""

import torch

from steadyrnn.cells.base import Cell

__all__ = ["ACTIVATIONS", "CELLS", "NUMBERS", "PACKAGE", "supports_elman"]

PACKAGE = __name__.rsplit(".", 2)[0]
"""The package whose folder ``source`` holds the kernels."""

CELLS: dict[str, int] = {"elman": 0, "gru_after": 1, "lstm": 2}
"""Steps, by the name that a cell's record has for its kernels."""

ACTIVATIONS: dict[str, int] = {"tanh": 0, "sigmoid": 1, "relu": 2, "leaky_relu": 3, "absolute": 4, "identity": 5}
"""Activations, by the name that each has for its kernels."""

NUMBERS: dict[torch.dtype, int] = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
"""Dtypes of the tensors a kernel reads and writes."""


def supports_elman(cell: Cell) -> bool:
    """Say whether a cell is an Elman cell with an activation that the kernels know.

    Example:
        >>> from steadyrnn.cells.registry import CELLS
        >>> supports_elman(CELLS["rnn-tanh"]), supports_elman(CELLS["rnn-modrelu"]), supports_elman(CELLS["lstm"])
        (True, False, False)
    """
    activation = cell.record.activation
    return cell.record.kernel == "elman" and activation is not None and activation.kernel in ACTIVATIONS
