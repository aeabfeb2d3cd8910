"""Which engine is fastest on the GPU at hand, by what was measured on one: the look-up behind ``engine="auto"``."""

import math
import os
import re
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import torch

from steadyrnn.checks import constant_result

from .calibration_table import VARIABLE, Row, Table, packaged_table, read_table

__all__ = ["GPU", "Fastest", "Measured", "fastest", "gpu_of", "measured", "nearest", "table_in_use", "table_record"]

_STANDS_FOR = {(9, 0): "nvidia-h200"}
"""Tables that devices of a compute capability take which have none of their own."""


class GPU(NamedTuple):
    """A device as torch describes it."""

    name: str
    capability: tuple[int, int]


class Measured(NamedTuple):
    """What a table says of one kind of recurrence."""

    gpu: str  # the device at hand
    device: str  # the one that was measured
    dtype: str
    gradients: bool
    rows: tuple[Row, ...]


class Fastest(NamedTuple):
    """The fastest of some engines, and what that rests on."""

    engine: str
    microseconds: dict[str, float]  # of a step, by engine
    row: Row  # the nearest that was measured
    reason: str


@cache
def gpu_of(index: int) -> GPU:
    """Return the device of a number."""
    return GPU(torch.cuda.get_device_name(index), torch.cuda.get_device_capability(index))


def slug(name: str) -> str:
    """Return a device's name as its file is called.

    Example:
        >>> slug("NVIDIA H200")
        'nvidia-h200'
    """
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def table_in_use(gpu: GPU) -> Table | None:
    """Return the table for a device, None where there is none.

    It is the file that the environment variable names, whatever device that was measured on; else the package's table of
    this device; else, for a device of compute capability 9.0, the H200's.

    Raises:
        DataError: The file cannot be read, or is no table.
    """
    named = os.environ.get(VARIABLE)
    if named:
        return read_table(named)
    own = packaged_table(slug(gpu.name))
    if own is not None or gpu.capability not in _STANDS_FOR:
        return own
    return packaged_table(_STANDS_FOR[gpu.capability])


def table_record(device: torch.device) -> dict[str, str] | None:
    """Return name and checksum of the table by which engines are chosen on ``device``, None where there is none.

    Example:
        >>> table_record(torch.device("cpu")) is None
        True
    """
    if device.type != "cuda":
        return None
    table = table_in_use(gpu_of(torch.cuda.current_device() if device.index is None else device.index))
    return None if table is None else {"name": table.name, "sha256": table.sha256}


@constant_result  # reads files, which a compiler cannot look into
def measured(index: int, cell: str, dtype: str, gradients: bool) -> Measured | None:
    """Return what the table in use for a device says of one kind of recurrence, None if nothing."""
    gpu = gpu_of(index)
    table = table_in_use(gpu)
    rows = None if table is None else table.rows.get((cell, dtype, gradients))
    return None if table is None or rows is None else Measured(gpu.name, table.device, dtype, gradients, rows)


def nearest(value: int, grid: Sequence[int]) -> int:
    """Return the nearest number of an ascending grid by the distance of logarithms; of two as near, the lower.

    Written as comparisons with integers, so that a compiler need not fix a size that changes, but only bound it.

    Example:
        >>> nearest(48, (32, 64)), nearest(4, (1, 16)), nearest(5, (1, 16)), nearest(9999, (32, 64))
        (64, 1, 16, 64)
    """
    found = grid[0]
    for low, high in pairwise(grid):
        if value > math.isqrt(low * high):
            found = high
    return found


def nearest_row(rows: Sequence[Row], size: int, batch: int, rank: int | None) -> Row:
    """Return the row nearest in n, then in rank, where a dense weight counts as one of rank n, then in B."""
    near = nearest(size, sorted({row.size for row in rows}))
    rows = [row for row in rows if row.size == near]
    # a dense weight takes a dense row; one in factors the row of the nearest rank, dense where that is nearer
    ranks = sorted({row.rank for row in rows})
    near = nearest(near if rank is None else rank, ranks)
    rows = [row for row in rows if row.rank == near]
    near = nearest(batch, sorted({row.batch for row in rows}))
    return next(row for row in rows if row.batch == near)


def fastest(
    index: int, cell: str, dtype: str, size: int, batch: int, gradients: bool, candidates: Sequence[str],
    rank: int | None = None,
) -> Fastest | None:  # fmt: skip
    """Return the fastest of some engines by the nearest row of the table in use; None where there is no figure.

    Args:
        index: Number of the device.
        cell: The row that stands for a cell, ``measured_as`` of its record.
        dtype: Of the input, as ``"float32"``.
        size: n, hidden units.
        batch: B.
        gradients: Whether they will be wanted.
        candidates: Engines that can run it, in the order that decides between equal times.
        rank: Of the recurrent weight, if it is given in factors.
    """
    return look_up(measured(index, cell, dtype, gradients), size, batch, rank, candidates)


def look_up(
    known: Measured | None, size: int, batch: int, rank: int | None, candidates: Sequence[str]
) -> Fastest | None:  # fmt: skip
    """Return the fastest of ``candidates`` by the nearest row."""
    if known is None:
        return None
    row = nearest_row(known.rows, size, batch, rank)
    listed = dict(row.microseconds)
    times = {name: listed[name] for name in candidates if name in listed}
    if not times:
        return None
    best = min(times, key=lambda name: times[name])  # the first of the least
    return Fastest(best, times, row, spoken(known, row, best, times))


def spoken(known: Measured, row: Row, best: str, times: dict[str, float]) -> str:
    """Return what a choice rests on, as a clause."""
    where = known.device if known.device == known.gpu else f"{known.device} (this is {known.gpu})"
    size = f"n = {row.size}, B = {row.batch}" + ("" if row.rank == row.size else f", rank {row.rank}")
    kind = f"{known.dtype} {'with' if known.gradients else 'without'} gradients"
    others = ", ".join(f"{name} {time:.1f}" for name, time in times.items() if name != best)
    beside = f" ({others})" if others else ""
    return f"fastest on {where} near {size}, {kind}: {times[best]:.1f} us a step{beside}"
