"""The cells that there are, and the way back to a cell from the key that a custom op carries."""

from collections.abc import Callable, Mapping

from steadyrnn.activations import ACTIVATION_CLASSES, ACTIVATIONS, activation_from_key
from steadyrnn.errors import ArgumentError

from .base import Cell
from .gru import GRUStep
from .lstm import LSTMStep
from .rnn import RNNStep

__all__ = ["CELLS", "cell_from_key", "register_cell"]

CELLS: dict[str, Cell] = {}
"""One cell of every kind, by name: what the contract tests run over."""
_BUILDERS: dict[str, Callable[[str], Cell]] = {}
_BUILT: dict[str, Cell] = {}  # by key: looked up twice in every training step
_MOST = 256


def register_cell(family: str, build: Callable[[str], Cell], examples: Mapping[str, Cell] | None = None) -> None:
    """Make the cells of a family known by their keys.

    Args:
        family: The part before the colon of its cells' keys.
        build: Makes a cell from the part behind the colon, which is empty where there is none.
        examples: One cell of every kind, by name; by default ``build("")`` under the family's name.

    Raises:
        ArgumentError: Another family has this name, or an example's key does not lead back to an equal cell.
    """
    if family in _BUILDERS:
        raise ArgumentError(f"`family` {family!r} is registered already. Give the cells another name.")
    found = {family: build("")} if examples is None else dict(examples)
    for cell in found.values():
        if cell.record.family != family or build(cell.key.partition(":")[2]) != cell:
            raise ArgumentError(
                f"`build` must give an equal cell back from the key {cell.key!r} of {cell!r}. A frozen dataclass has equality."
            )
    _BUILDERS[family] = build
    CELLS.update(found)


def cell_from_key(key: str) -> Cell:
    """Return the cell a :attr:`Cell.key` stands for.

    Example:
        >>> cell_from_key("rnn:leaky_relu(0.5)")
        RNNStep(activation=LeakyReLU(slope=0.5))
    """
    cell = _BUILT.get(key)
    activation = None if cell is None else cell.record.activation
    renewed = activation is not None and ACTIVATION_CLASSES[activation.name] is not type(activation)
    if cell is None or renewed:
        family, _, rest = key.partition(":")
        if family not in _BUILDERS:
            raise ArgumentError(f"`key` names no cell: {key!r}. Register its family by `register_cell`.")
        if len(_BUILT) >= _MOST:
            _BUILT.clear()
        cell = _BUILT[key] = _BUILDERS[family](rest)
    return cell


register_cell(
    "rnn",
    lambda rest: RNNStep(activation_from_key(rest)),
    {f"rnn-{name}": RNNStep(cls()) for name, cls in ACTIVATIONS.items()},
)
register_cell(
    "gru",
    lambda rest: GRUStep(reset_after=rest == "after"),
    {"gru-after": GRUStep(reset_after=True), "gru-before": GRUStep(reset_after=False)},
)
register_cell("lstm", lambda rest: LSTMStep())
