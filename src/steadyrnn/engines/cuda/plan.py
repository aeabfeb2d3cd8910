"""How a recurrence is laid out on a GPU: how many blocks share a weight, how many rows they run, what a lane holds."""

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

__all__ = ["SHARED", "THREADS", "Layout", "Product", "gather_layout", "product_for", "scatter_layout"]

THREADS = 256
"""Of a block: eight warps, so that each lane may have 255 registers."""
_WARPS = THREADS // 32
SHARED = 227 * 1024 - 256
"""Bytes of shared memory that a block may ask for: an H200's, less what a kernel names for itself."""
_SIZES = (1, 2, 4, 8, 16)  # of a cluster; 16 is the most a GPU of compute capability 9.0 runs
_AT_ONCE = {1: 132, 2: 66, 4: 30, 8: 15, 16: 7}  # clusters that an H200 runs side by side, as its driver tells
_MOST_ITEMS = 8


class Product(NamedTuple):
    """How a block multiplies, see ``source/product.cu``."""

    split: int  # lanes that share a result
    depth: int  # entries of a row that a lane holds
    each: int  # results of a lane in the first tile
    each_later: int
    tiles: int  # beyond the first
    warps_k: int
    warps_o: int
    warps_r: int

    @property
    def results(self) -> int:
        """Of a block."""
        return self.warps_o * (32 // self.split) * (self.each + self.tiles * self.each_later)

    @property
    def reach(self) -> int:
        """The length of a row, padded."""
        return self.warps_k * self.split * self.depth

    @property
    def first_floats(self) -> int:
        """Numbers in the first tile."""
        return self.warps_o * self.warps_k * 32 * self.each * self.depth

    @property
    def later_floats(self) -> int:
        """Numbers in all tiles beyond the first: those that lie in shared memory."""
        return self.tiles * self.warps_o * self.warps_k * 32 * self.each_later * self.depth


def product_for(results: int, length: int, rows: int) -> Product:
    """Return how a block finds ``results`` results from vectors of ``length`` for ``rows`` rows.

    A lane holds 16 numbers of a row or fewer and, where there are rows enough, 8 results: then a number read from shared
    memory is used eight times. What 128 registers do not hold goes to shared memory.

    Example:
        >>> product_for(64, 512, 9)
        Product(split=32, depth=16, each=8, each_later=4, tiles=0, warps_k=1, warps_o=8, warps_r=1)
    """
    warps_k = next(k for k in (1, 2, 4, 8) if 512 * k >= length or k == _WARPS)
    part = -(-length // warps_k)
    split = next(s for s in (8, 16, 32) if 16 * s >= part or s == 32)
    depth = -(-part // (4 * split)) * 4
    lanes, warps = 32 // split, _WARPS // warps_k
    for warps_r in (8, 4, 2):
        if warps_r <= min(rows, warps) and warps // warps_r * lanes * 8 >= results:
            return Product(split, depth, 8, 4, 0, warps_k, warps // warps_r, warps_r)
    each = next((e for e in (1, 2, 4, 8) if warps * lanes * e >= results), 8)
    tiles = -(-max(results - warps * lanes * each, 0) // (warps * lanes * 4))
    return Product(split, depth, each, 4, tiles, warps_k, warps, 1)


class Layout(NamedTuple):
    """How one kernel is launched."""

    blocks: int  # of a cluster
    units: int  # of a block
    height: int  # rows of a cluster
    buffers: int  # for the state
    sets: int  # of rows, that take turns
    shared: int  # bytes of shared memory
    product: Product

    @property
    def items(self) -> int:
        """Entries of the state that a thread finishes at once; rounded, since each number is a kernel of its own."""
        wanted = -(-(-(-self.height // self.sets) * self.units) // THREADS)
        return wanted if wanted <= 4 else 6 if wanted <= 6 else _MOST_ITEMS

    @property
    def ahead(self) -> bool:
        """Say whether steps are so short that what they read must be read before."""
        return self.sets == 1 and self.items == 1


def clusters_at_once(blocks: int, processors: int) -> int:
    """Return how many clusters run side by side; clusters of more than two do not fill a GPU.

    Example:
        >>> clusters_at_once(8, 132)
        15
    """
    return _AT_ONCE[blocks] if processors == 132 else max(1, (processors if blocks <= 2 else processors * 9 // 10) // blocks)


def rows_of(batch: int, blocks: int, processors: int, most: int) -> int:
    """Return how many rows a cluster runs: no more rounds than must be, and those alike."""
    at_once = clusters_at_once(blocks, processors)
    rounds = -(-batch // (at_once * most))
    return -(-batch // (at_once * rounds))


def cycles(layout: Layout, batch: int, processors: int) -> float:
    """Return about how many cycles a step of the whole batch takes."""
    product, rows = layout.product, layout.height
    first, later = product.first_floats, product.later_floats
    work = rows * (first / 96 + later / 64) + later / 16
    message = 0.0 if layout.blocks == 1 else 350 + 20 * layout.blocks + rows * layout.blocks * layout.units * 4 / 18
    hidden = 0.0 if layout.sets == 1 else min(message, work / 2)
    rounds = -(-batch // (rows * clusters_at_once(layout.blocks, processors)))
    return rounds * (300 * layout.sets + work + message - hidden)


@cache
def gather_layout(size: int, gates: int, batch: int, processors: int) -> Layout | None:
    """Return the layout of ``source/gather.cu`` for ``size`` units, or None where the weight fits nowhere.

    Example:
        >>> gather_layout(512, 1, 128, 132)[:3]
        (8, 64, 9)
    """
    found = []
    for blocks in _SIZES:
        units = -(-size // (4 * blocks)) * 4
        for buffers in (2, 1) if blocks > 1 else (2,):

            def at(rows: int, units: int = units, blocks: int = blocks, buffers: int = buffers) -> Layout:
                sets = 2 if blocks > 1 and rows >= 8 else 1
                half = -(-rows // sets)
                product = product_for(gates * units, blocks * units, half)
                numbers = half * (sets * units * (buffers * blocks + 1) + product.warps_k * product.results)
                return Layout(blocks, units, rows, buffers, sets, 4 * (numbers + product.later_floats), product)

            found += fitting(at, units, batch, processors)
    return min(found, key=lambda layout: cycles(layout, batch, processors), default=None)


@cache
def scatter_layout(size: int, gates: int, batch: int, processors: int) -> Layout | None:
    """Return the layout of ``source/scatter.cu``, or None where the weight fits nowhere.

    Example:
        >>> scatter_layout(512, 4, 128, 132)[:3]
        (16, 32, 19)
    """
    found = []
    for blocks in _SIZES:
        units = -(-size // (4 * blocks)) * 4

        def at(rows: int, units: int = units, blocks: int = blocks) -> Layout:
            product = product_for(blocks * units, gates * units, rows)
            sent = -(-product.results // units) * units
            numbers = rows * ((blocks * units if blocks > 1 else 0) + sent + (gates + 2) * units) + product.later_floats
            return Layout(blocks, units, rows, 1, 1, 4 * numbers, product)

        found += fitting(at, units, batch, processors)
    return min(found, key=lambda layout: cycles(layout, batch, processors), default=None)


def fitting(at: Callable[[int], Layout], units: int, batch: int, processors: int) -> list[Layout]:
    """Return the layout with as many rows as are wanted or fit, in a list; an empty one if not even one row fits."""
    blocks = at(1).blocks
    wanted = rows_of(batch, blocks, processors, max(1, _MOST_ITEMS * THREADS // units))
    while wanted > 1 and at(wanted).shared > SHARED:
        wanted = math.ceil(wanted / 2)
    layout = at(wanted)
    if layout.shared > SHARED or layout.product.depth > 16:
        return []
    return [layout._replace(height=rows_of(batch, blocks, processors, wanted))]
