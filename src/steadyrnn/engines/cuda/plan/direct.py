"""How an Elman cell runs whose weight one block holds."""

from functools import cache
from typing import NamedTuple

__all__ = ["DIRECT_THREADS", "DirectLayout", "direct_layout"]

_WIDEST = 128  # units whose weight a block holds: 64 registers per thread, so that two blocks run on a multiprocessor
DIRECT_THREADS = 256
_AT_ONCE, _MOST_ROWS = 2, 8  # blocks that run on a multiprocessor, rows of a block
_SPLIT = 8  # lanes that share a result


class DirectLayout(NamedTuple):
    """How ``source/packed.cu`` is compiled."""

    each: int  # results of a lane
    depth: int  # entries of a row that a lane holds
    pack: int  # rows that are multiplied at once
    items: int  # entries of the state that a thread finishes

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return self.pack * self.items

    @property
    def defined(self) -> dict[str, int]:
        """What the sources want defined, except for the variant."""
        return {"threads": DIRECT_THREADS, "blocks": 1, **self._asdict()}


@cache
def direct_layout(size: int, batch: int, processors: int, narrow: bool = False) -> DirectLayout | None:
    """Return the layout for ``size`` units, or None where another kernel is for them: wider, or for the tensor cores.

    Args:
        size: Units.
        batch: Rows.
        processors: Multiprocessors of the device.
        narrow: Whether numbers have 16 bits: the tensor cores are then faster, unless each block has one row.

    Example:
        >>> direct_layout(128, 128, 132), direct_layout(64, 1024, 132).rows, direct_layout(129, 1, 132)
        (DirectLayout(each=4, depth=16, pack=1, items=1), 4, None)
    """
    least = -(-batch // (_AT_ONCE * processors))
    rows = next((rows for rows in (1, 2, 4) if rows >= least), _MOST_ROWS)
    if size > _WIDEST or (narrow and rows > 1):
        return None
    each = next(each for each in (1, 2, 4) if each * (DIRECT_THREADS // _SPLIT) >= size)
    pack = min(rows, _SPLIT // each)
    return DirectLayout(each, -(-size // (4 * _SPLIT)) * 4, pack, rows // pack)
