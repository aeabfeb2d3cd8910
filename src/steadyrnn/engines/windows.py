"""Where windows of time lie."""

from typing import NamedTuple

__all__ = ["Windows"]


class Windows(NamedTuple):
    """Where windows lie: window j covers times jC to jC + k + C - 1, and its first k outputs matter in window 0 only."""

    warmup: int  # k
    chunk: int  # C
    number: int  # J

    def depth(self, sweeps: int) -> int:
        """Return how many steps run one after another."""
        return self.warmup + self.chunk * (1 + sweeps)
