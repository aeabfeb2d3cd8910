"""Which of several processes this one is, when torchrun has started the program; free of torch."""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout

__all__ = ["own_rank", "rank_count", "silent_unless_first"]

_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""What a process that was started with others has, as :mod:`steadyrnn.train.ranks` asks for it."""


def own_rank() -> int:
    """Return the number of this process, 0 of one that was started alone.

    Example:
        >>> own_rank(), rank_count()
        (0, 1)
    """
    return _number("RANK", 0) if rank_count() > 1 else 0


def rank_count() -> int:
    """Return how many processes there are."""
    return _number("WORLD_SIZE", 1) if all(name in os.environ for name in _VARIABLES) else 1


@contextmanager
def silent_unless_first() -> Iterator[None]:
    """Print nothing in any process but the first: what all would say is said once."""
    if own_rank() == 0:
        yield
        return
    nowhere = io.StringIO()
    with redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield


def _number(name: str, otherwise: int) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else otherwise
