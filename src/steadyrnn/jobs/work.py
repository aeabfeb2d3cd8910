"""A list of independent, seeded pieces of work; free of torch, which the functions of the cells import when they run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import Any

__all__ = ["Cell", "Work"]


@dataclass(frozen=True)
class Cell:
    """One piece of work that depends on no other: the same arguments and seed give the same numbers.

    Args:
        name: Its name among the cells of the same work.
        function: ``package.module:function``, resolved when the cell runs.
        arguments: What the function is called with, JSON values by name.
        seed: Passed as ``seed``; None where the function draws nothing, and has no such argument.

    Example:
        >>> Cell("norm", "math:sqrt").to_dict()
        {'function': 'math:sqrt', 'arguments': {}, 'seed': None}
    """

    name: str
    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None

    def run(self) -> Any:
        """Call the function and return its numbers."""
        drawn = {} if self.seed is None else {"seed": self.seed}
        return resolve_name(self.function)(**self.arguments, **drawn)

    def to_dict(self) -> dict[str, Any]:
        """Return what decides its numbers, as JSON."""
        return {"function": self.function, "arguments": dict(self.arguments), "seed": self.seed}


@dataclass(frozen=True)
class Work:
    """Cells, and how their numbers become a record.

    Args:
        name: The file that keeps the record is ``NAME.json``.
        header: What the record says first, as JSON.
        cells: The pieces, in the order in which they run; names are unique.
        finish: From the numbers of all cells, by name, to the rest of the record, as JSON.
    """

    name: str
    header: Mapping[str, Any]
    cells: tuple[Cell, ...]
    finish: Callable[[Mapping[str, Any]], Mapping[str, Any]]
