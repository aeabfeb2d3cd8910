"""How an Elman cell runs whose weight is in factors: as few blocks as hold them."""

from functools import cache
from typing import NamedTuple

from steadyrnn.errors import EngineError
from steadyrnn.gpu.device import clusters_at_once

__all__ = ["HIGHEST_RANK", "THREADS", "WIDEST", "FactoredLayout", "factored_layout"]

HIGHEST_RANK, WIDEST = 64, 4096
"""The most columns of a factor, and the most units, that a cluster holds in registers."""
THREADS = 256
_NUMBERS = 16384  # of a factor that a block holds: 64 registers per thread
_MOST_UNITS = 1024
_ENTRIES = 16  # of the state that a thread finishes in a step


class FactoredLayout(NamedTuple):
    """How ``source/factored.cu`` is launched."""

    blocks: int  # of a cluster
    units: int  # of a block
    rank: int  # columns of a factor, padded
    height: int  # rows of a cluster

    @property
    def items(self) -> int:
        """Units of a thread."""
        return -(-self.units // THREADS)

    @property
    def rows(self) -> int:
        """Rows that there is place for: they are multiplied in pairs."""
        return self.height if self.height == 1 else self.height + self.height % 2

    @property
    def shared(self) -> int:
        """Bytes of shared memory: states, their products, what blocks send, and a factor on its way to registers."""
        parts = 1 if self.blocks == 1 else 1 + 2 * self.blocks
        state = -(-self.units // 128) * 128
        return 4 * (self.rows * (state + parts * self.rank) + self.units * (self.rank + 1))


@cache
def factored_layout(size: int, rank: int, batch: int, processors: int) -> FactoredLayout:
    """Return the layout for ``size`` units and factors of ``rank`` columns: as few blocks as hold the factors.

    Example:
        >>> factored_layout(512, 32, 128, 132)
        FactoredLayout(blocks=1, units=512, rank=32, height=1)
        >>> factored_layout(1024, 32, 128, 132)
        FactoredLayout(blocks=2, units=512, rank=32, height=2)
    """
    padded = max(8, 1 << (rank - 1).bit_length())
    most = min(_MOST_UNITS, _NUMBERS // padded)
    for blocks in (1, 2, 4, 8, 16):
        units = -(-size // (4 * blocks)) * 4
        if units <= most:
            layout = FactoredLayout(blocks, units, padded, 1)
            lanes, tallest = clusters_at_once(blocks, processors), _ENTRIES // layout.items // 2 * 2
            rounds = -(-batch // (lanes * tallest))
            return layout._replace(height=-(-batch // (lanes * rounds)))
    raise EngineError(f"Factors of {size} x {rank} fit no cluster of multiprocessors; use `engine='auto'`.")
