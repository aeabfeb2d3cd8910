"""Choose windows of time by a model of what they cost."""

import math
from functools import lru_cache
from typing import NamedTuple

from steadyrnn.engines.windows import Windows

__all__ = ["OVERHEAD", "SETUP", "Plan", "choose_fused", "choose_windows"]

OVERHEAD = {"cpu": 2**18, "cuda": 3 * 2**19}
"""What a step costs however few rows it has, in floating-point operations of its products."""
SETUP = {"cpu": 64, "cuda": 4096}
"""What windows cost however many steps they have, in steps of few rows."""

_HALF = 0.7
"""What a step of a kernel costs when at most half of its rows are there, of its price."""


class Plan(NamedTuple):
    """Windows and what they are expected to cost, in units of a step of few rows."""

    windows: Windows
    cost: float


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
) -> Plan:
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
        >>> choose_windows(100_000, 1, warmup=155, row_cost=0.1).windows
        Windows(warmup=160, chunk=1248, number=80)
        >>> choose_windows(100, 1, warmup=155, row_cost=0.1).windows
        Windows(warmup=0, chunk=100, number=1)
    """
    work, sweeps = row_cost * rows, 0
    best = _best_chunk(steps, warmup, work) if chunk is None else chunk
    if gamble and (likely is None or likely >= warmup) and 4 * warmup > best:
        likely = -(-warmup // 4)
    if gamble and likely is not None and likely < warmup:
        warmup, sweeps = likely, 1
        best = _best_chunk(steps, warmup, work) if chunk is None else chunk
    sequential = Plan(Windows(0, steps, 1), steps * (1 + work))
    if warmup + best >= steps or rows == 0:
        return sequential
    number = -(-(steps - warmup) // best)
    if chunk is not None:
        return Plan(Windows(warmup, best, number), 0.0)
    full = number * rows // lanes * lanes // rows  # 0 where not even one round of lanes is filled
    chosen = _whole_windows(steps, warmup, full or number, lanes if full else 1)
    costs = setup + chosen.depth(sweeps) * (1 + work * chosen.number)
    return Plan(chosen, costs) if costs < sequential.cost else sequential


@lru_cache(1024)
def choose_fused(
    steps: int, rows: int, warmup: int, lanes: int, step_cost: float, chunk: int | None = None, gamble: bool = True,
    setup: int = 0, likely: int | None = None, sparing: bool = False,
) -> Plan:  # fmt: skip
    """Choose windows for a kernel that runs ``lanes`` rows side by side, each step of them at one price.

    The last window may be cut off: the kernel stops at the end of time. Arguments are those of :func:`choose_windows`, with

    Args:
        steps: T.
        rows: B, above 0.
        warmup: The warm-up that is sure to be enough.
        lanes: Rows that run side by side.
        step_cost: What a step of them costs, in units of a step of few rows; of half as many, seven tenths of it.
        chunk: C, if it is not to be chosen.
        gamble: Whether a shorter warm-up may be tried.
        setup: What windows cost beside their steps.
        likely: A warm-up that will probably be enough, if one is known.
        sparing: Whether windows are to be no shorter than warm-ups, so that memory for all steps at most doubles.

    Example:
        >>> choose_fused(100_000, 1, warmup=155, lanes=200, step_cost=2.0).windows
        Windows(warmup=155, chunk=500, number=200)
    """
    sweeps = 0
    if gamble and likely is not None and likely < warmup:
        warmup, sweeps = likely, 1
    best = Plan(Windows(0, steps, 1), math.inf)
    for halves in (1, 2, 4, 6, 8):
        size = max(-(-(steps - warmup) // max(halves * lanes // (2 * rows), 2)), warmup if sparing else 0)
        size = size if chunk is None else chunk
        number = 0 if size < 1 else -(-(steps - warmup) // size)
        if number < 2:
            continue
        found = Windows(warmup, size, number)
        passes = _HALF if 2 * number * rows <= lanes else -(-number * rows // lanes)
        best = min(best, Plan(found, setup + found.depth(sweeps) * step_cost * passes), key=lambda plan: plan.cost)
    return best


def _best_chunk(steps: int, warmup: int, work: float) -> int:
    return max(math.isqrt(math.ceil(work * warmup * steps)), warmup, 1)


def _whole_windows(steps: int, warmup: int, number: int, lanes: int) -> Windows:
    """Return about ``number`` windows without a rest behind the last one, which the warm-up takes."""
    spread = min(number // 8, 32)
    near = range(max(2, number - spread), number + (spread if lanes == 1 else 0) + 1)
    best = min(near, key=lambda count: (max((steps - warmup) % count - warmup // 4, 0), abs(count - number)))
    return Windows(warmup + (steps - warmup) % best, (steps - warmup) // best, best)
