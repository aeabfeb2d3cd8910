"""A list of independent, seeded pieces of work; free of torch, which the functions of the cells import when they run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

__all__ = ["Cell", "Work"]


@dataclass(frozen=True)
class Cell:
    """One piece of work: the same arguments, seed and earlier numbers give the same numbers.

    Args:
        name: Its name among the cells of the same work.
        function: ``package.module:function``, resolved when the cell runs.
        arguments: What the function is called with, JSON values by name.
        seed: Passed as ``seed``; None where the function draws nothing, and has no such argument.
        after: The name of an earlier cell, whose numbers are passed as ``found``; None for a cell that needs none.
        resumable: Whether the function is passed a ``folder`` of its own, where it can keep what it needs to go on after it was
            killed. The folder is removed when the cell is finished.

    Example:
        >>> Cell("norm", "math:sqrt").to_dict()
        {'function': 'math:sqrt', 'arguments': {}, 'seed': None}
    """

    name: str
    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    after: str | None = None
    resumable: bool = False

    def run(self, numbers: Mapping[str, Any], folder: Path) -> Any:
        """Call the function and return its numbers.

        Args:
            numbers: Those of finished cells, by name.
            folder: The cell's own, for one that is resumable.
        """
        more: dict[str, Any] = {} if self.seed is None else {"seed": self.seed}
        more |= {} if self.after is None else {"found": numbers[self.after]}
        more |= {"folder": folder} if self.resumable else {}
        return resolve_name(self.function)(**self.arguments, **more)

    def to_dict(self) -> dict[str, Any]:
        """Return what decides its numbers, as JSON."""
        after = {} if self.after is None else {"after": self.after}
        return {"function": self.function, "arguments": dict(self.arguments), "seed": self.seed, **after}


@dataclass(frozen=True)
class Work:
    """Cells, and how their numbers become a record.

    Args:
        name: The file that keeps the record is ``NAME.json``.
        header: What the record says first, as JSON.
        cells: The pieces, in the order in which they start; names are unique.
        finish: From the numbers of all cells, by name, to the rest of the record, as JSON.
    """

    name: str
    header: Mapping[str, Any]
    cells: tuple[Cell, ...]
    finish: Callable[[Mapping[str, Any]], Mapping[str, Any]]
