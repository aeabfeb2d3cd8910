"""A number as a paper prints it, and how tables and lists of them are written down."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from steadyrnn.errors import ArgumentError

__all__ = ["Published", "listed", "tabulated"]


@dataclass(frozen=True)
class Published:
    """A number as a paper prints it.

    The value is never corrected. If the number is a misprint, is impossible, or contradicts another number of the paper,
    ``note`` says so.

    Args:
        value: The printed number, in the printed unit.
        place: Where it is printed: table, row and column, or section and sentence.
        note: What a reader must know before comparing with it.

    Raises:
        ArgumentError: If the value is not finite, or the place is empty.

    Example:
        >>> Published(97.2, "Table 2, row oRNN, column Test accuracy")
        Published(value=97.2, place='Table 2, row oRNN, column Test accuracy', note='')
    """

    value: float
    place: str
    note: str = ""

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise ArgumentError(f"`value` must be finite, but is {self.value}. A cell without a number has no entry.")
        if not self.place.strip():
            raise ArgumentError("`place` must name the table, row and column, or the sentence, but is empty.")


def tabulated(
    table: str,
    columns: Mapping[str, str],
    rows: Mapping[str, tuple[str, Sequence[float | None]]],
    notes: Mapping[str, str] | None = None,
) -> dict[str, Published]:
    """Return the numbers of one table, the one in row ``r`` and column ``c`` under the key ``table/r/c``.

    Args:
        table: The name of the table, such as ``"Table 3"``; keys start with it in lower case and without the space.
        columns: The header of each column by the name that keys have for it.
        rows: The label of each row and its cells by the name that keys have for it; None where no number is printed.
        notes: Notes by key.

    Raises:
        ArgumentError: If a row does not have one cell per column, or a note has no number.

    Example:
        >>> values = tabulated("Table 3", {"loss": "Loss", "units": "n"}, {"rnn": ("RNN", (0.5, 128))})
        >>> values["table3/rnn/loss"]
        Published(value=0.5, place='Table 3, row RNN, column Loss', note='')
    """
    prefix, notes, values = table.lower().replace(" ", ""), notes or {}, {}
    for row, (label, cells) in rows.items():
        if len(cells) != len(columns):
            raise ArgumentError(f"`rows` must have {len(columns)} cells, one per column, but row {row!r} has {len(cells)}.")
        for (column, header), cell in zip(columns.items(), cells, strict=True):
            if cell is not None:
                key = f"{prefix}/{row}/{column}"
                values[key] = Published(cell, f"{table}, row {label}, column {header}", notes.get(key, ""))
    if missing := sorted(notes.keys() - values.keys()):
        raise ArgumentError(f"`notes` must have keys of the table, but {missing[0]!r} is not one. Correct or remove it.")
    return values


def listed(key: str, place: str, numbers: Sequence[float], note: str = "") -> dict[str, Published]:
    """Return the numbers of a printed list, the i-th under ``key/i``, from 1.

    Args:
        key: How the keys begin.
        place: Where the list is printed.
        numbers: The list, in the printed order.
        note: A note for all of them.

    Example:
        >>> listed("section7/lengths", "Section 7, lengths", (30, 100))["section7/lengths/2"]
        Published(value=100, place='Section 7, lengths, number 2 of 2', note='')
    """
    count = len(numbers)
    return {
        f"{key}/{i}": Published(number, f"{place}, number {i} of {count}", note) for i, number in enumerate(numbers, start=1)
    }
