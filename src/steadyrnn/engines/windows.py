"""Where windows of time lie, by a model of what they cost."""

import math
from functools import lru_cache
from typing import NamedTuple

__all__ = ["OVERHEAD", "SETUP", "Windows", "choose_windows"]

OVERHEAD = {"cpu": 2**18, "cuda": 3 * 2**19}
"""What a step costs however few rows it has, in floating-point operations of its products."""
SETUP = {"cpu": 64, "cuda": 4096}
"""What windows cost however many steps they have, in steps of few rows."""


class Windows(NamedTuple):
    """Where windows lie: window j covers times jC to jC + k + C - 1, and its first k outputs matter in window 0 only."""

    warmup: int  # k
    chunk: int  # C
    number: int  # J

    def depth(self, sweeps: int) -> int:
        """Return how many steps run one after another."""
        return self.warmup + self.chunk * (1 + sweeps)


@lru_cache(1024)  # asked again on every call of a layer
def choose_windows(
    steps: int,
    rows: int,
    warmup: int,
    row_cost: float,
    chunk: int | None = None,
    gamble: bool = True,
    setup: int = 0,
    likely: int | None = None,
    lanes: int = 1,
) -> Windows:
    r"""Choose windows by a model of their cost.

    A step with r rows costs :math:`1 + c r`, in units of what it costs with none. Windows of C steps behind k of warm-up
    then cost :math:`(C + k)(1 + c B T / C)`, which is least for :math:`C = \sqrt{c k B T}`. C is kept at k or more, so that
    work and memory at most double. A warm-up that is sure to be enough is seldom needed: a shorter one that is likely to be
    is taken instead, and where none is known a quarter of the sure one, if that is longer than a quarter of C; sweeps
    repair what it lacks, if anything. Where the sequential run costs no more than windows would, a sweep included if one
    may be needed, there is one window. The number of windows
    and the warm-up are moved a little, so that the last window is a whole one.

    Args:
        steps: T.
        rows: B.
        warmup: The warm-up that is sure to be enough.
        row_cost: c.
        chunk: C, if it is not to be chosen.
        gamble: Whether a shorter warm-up may be tried.
        setup: What windows cost beside their steps.
        likely: A warm-up that will probably be enough, if one is known.
        lanes: How many rows the device runs at the price of one; their number is made a multiple of it, or a bit less.

    Example:
        >>> choose_windows(100_000, 1, warmup=155, row_cost=0.1)
        Windows(warmup=160, chunk=1248, number=80)
        >>> choose_windows(100, 1, warmup=155, row_cost=0.1)
        Windows(warmup=0, chunk=100, number=1)
    """
    work, sweeps = row_cost * rows, 0
    best = _best_chunk(steps, warmup, work) if chunk is None else chunk
    if gamble and (likely is None or likely >= warmup) and 4 * warmup > best:
        likely = -(-warmup // 4)
    if gamble and likely is not None and likely < warmup:
        warmup, sweeps = likely, 1
        best = _best_chunk(steps, warmup, work) if chunk is None else chunk
    sequential = Windows(0, steps, 1)
    if warmup + best >= steps or rows == 0:
        return sequential
    number = -(-(steps - warmup) // best)
    if chunk is not None:
        return Windows(warmup, best, number)
    full = number * rows // lanes * lanes // rows  # 0 where not even one round of lanes is filled
    chosen = _whole_windows(steps, warmup, full or number, lanes if full else 1)
    costs = setup + chosen.depth(sweeps) * (1 + work * chosen.number)
    return chosen if costs < steps * (1 + work) else sequential


def _best_chunk(steps: int, warmup: int, work: float) -> int:
    return max(math.isqrt(math.ceil(work * warmup * steps)), warmup, 1)


def _whole_windows(steps: int, warmup: int, number: int, lanes: int) -> Windows:
    """Return about ``number`` windows without a rest behind the last one, which the warm-up takes."""
    spread = min(number // 8, 32)
    near = range(max(2, number - spread), number + (spread if lanes == 1 else 0) + 1)
    best = min(near, key=lambda count: (max((steps - warmup) % count - warmup // 4, 0), abs(count - number)))
    return Windows(warmup + (steps - warmup) % best, (steps - warmup) // best, best)
