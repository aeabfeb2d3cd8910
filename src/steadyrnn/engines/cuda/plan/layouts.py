"""Layouts of the kernels for dense weights: a table of choices, the cycles that each takes, and the cheapest."""

from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import NamedTuple

from steadyrnn.gpu.device import SHARED_BYTES, clusters_at_once

from .products import Product, TensorProduct, product_for, tensor_product_for

__all__ = ["SHARED", "Choice", "Layout", "fits", "gather_layout", "gather_layouts", "scatter_layout", "scatter_layouts"]

SHARED = SHARED_BYTES - 256
"""Bytes of shared memory that a block may ask for, less what a kernel declares for itself."""
_SIZES = (1, 2, 4, 8, 16)  # of a cluster; 16 is the most a GPU of compute capability 9.0 runs
_GROUPS = (2, 3, 4, 5, 6)  # of blocks that share a weight too large for a cluster
_TENSOR_CORES = 0  # in place of a number of warps that share a row
_MOST_ITEMS = 8


class Layout(NamedTuple):
    """How one kernel is launched."""

    blocks: int  # of a cluster
    units: int  # of a block
    height: int  # rows of a cluster
    buffers: int  # for the state
    sets: int  # of rows, that take turns
    shared: int  # bytes of shared memory
    product: Product | TensorProduct
    threads: int = 256  # of a block: eight warps, so that each lane may have 255 registers
    far: bool = False  # whether blocks are more than a cluster has, and run all at once
    sent_bytes: int = 4  # of a number in a message
    posted: bool = False  # whether messages within a cluster go by way of device memory

    @property
    def all_threads(self) -> int:
        """Those that compute and, far from each other, four warps: one announces messages, one fetches them."""
        return self.threads + 128 * self.far

    @property
    def half(self) -> int:
        """Rows of a set."""
        return -(-self.height // self.sets)

    @property
    def slab(self) -> int:
        """Entries of a set's state that a block has: of eights of rows, which the tensor cores read, or of its own."""
        rows = self.half if self.far or isinstance(self.product, Product) else 8 * self.product.eights
        return rows * self.units

    def items(self, vector_io: int) -> int:
        """Return how often a thread finishes ``vector_io`` entries; rounded, since each number is a kernel of its own."""
        wanted = -(-self.half * self.units // (vector_io * self.threads))
        return wanted if wanted <= 4 else 6 if wanted <= 6 else _MOST_ITEMS

    def cycles(self, batch: int, processors: int) -> float:
        """Return about how many cycles a step of the whole batch takes."""
        entries = self.half * self.units * (0.27 + 0.04 * self.product.warps_k)
        slowed = 1.7 if self.threads < 256 else 1.0  # two blocks on a multiprocessor are in each other's way
        alone = 100 + slowed * (entries + self.product.cycles(self.half))
        turn = alone + (0 if self.sets == 1 else 2400 if self.far else 720 + 60 * self.blocks)
        rounds = -(-batch // (self.height * self.at_once(processors)))
        # while one set's messages are on their way, others are multiplied
        return rounds * max(self.sets * turn, alone + self.message)

    @property
    def message(self) -> float:
        """About how many cycles a set's messages are on their way."""
        sent = self.half * self.blocks * self.units * self.sent_bytes
        if self.blocks == 1:
            return 0.0
        if self.far:
            return 3500 + sent / 13
        return 900 + sent / 41 if self.posted else 600 + 60 * self.blocks + sent / 12

    def at_once(self, processors: int) -> int:
        """Return how many tiles of rows run side by side."""
        if self.far:
            return processors // self.blocks
        return clusters_at_once(self.blocks, processors) * (256 // self.threads)


def rows_of(batch: int, at_once: int, most: int) -> int:
    """Return the number of rows per tile where ``at_once`` run side by side: no more rounds than must be, and those alike.

    Example:
        >>> rows_of(128, 15, 100), rows_of(1000, 15, 16)
        (9, 14)
    """
    rounds = -(-batch // (at_once * most))
    return -(-batch // (at_once * rounds))


class Choice(NamedTuple):
    """One way to share out a step of ``source/gather.cu``: what does not follow from sizes."""

    blocks: int  # of a cluster; for those that are ``far``, 0 here, as it depends on the device
    buffers: int  # for the state
    sets: int  # of rows, that take turns
    warps_k: int  # that share a row, or _TENSOR_CORES
    threads: int = 256
    groups: int = 0  # of far blocks that run at once; 0 for a cluster

    @property
    def far(self) -> bool:
        """Whether blocks are more than a cluster has."""
        return self.groups > 0


_WARPS_K = (1, 2, 4, 8, _TENSOR_CORES)
_CHOICES = (
    *(Choice(1, 2, 1, k, threads) for k in _WARPS_K for threads in (256, 128) if 0 < k <= threads // 32 or threads == 256),
    *(Choice(b, buffers, sets, k) for b in _SIZES[1:] for buffers in (2, 1) for sets in (1, 2) for k in _WARPS_K),
    *(Choice(0, 1, 2, k, groups=groups) for groups in _GROUPS for k in _WARPS_K),
)
"""All ways to share out a step; of equally cheap ones the first is chosen."""


def fits(size: int, gates: int) -> bool:
    """Say whether a weight of ``gates`` square matrices fits the chip, forward and for the adjoint.

    Example:
        >>> fits(1024, 1), fits(1024, 4)
        (True, False)
    """
    run = gather_layout(size, gates, 1, 132)
    return run is not None and (gates == 1 or scatter_layout(size, gates, 1, 132) is not None)


@cache
def gather_layout(size: int, gates: int, batch: int, processors: int, narrow: bool = False) -> Layout | None:
    """Return the layout of ``source/gather.cu`` for ``size`` units, or None where the weight fits nowhere.

    Args:
        size: Units.
        gates: Of a unit.
        batch: Rows.
        processors: Multiprocessors of the device.
        narrow: Whether numbers have 16 bits, which the tensor cores support.

    Example:
        >>> gather_layout(512, 1, 128, 132)[:3]
        (8, 64, 9)
    """
    return cheapest(gather_layouts(size, gates, batch, processors, narrow), batch, processors)


def gather_layouts(size: int, gates: int, batch: int, processors: int, narrow: bool = False) -> list[Layout]:
    """Return all layouts that :func:`gather_layout` chooses from."""
    choices = [
        choice._replace(blocks=processors // choice.groups) if choice.far else choice
        for choice in _CHOICES
        if choice.groups <= processors and (narrow or choice.warps_k != _TENSOR_CORES)
    ]
    return fitting_ones((partial(lay_out_gather, size, gates, choice) for choice in choices), batch, processors)


def lay_out_gather(size: int, gates: int, choice: Choice, rows: int) -> Layout | None:
    """Return the layout of a choice with ``rows`` rows per tile, or None where there is none."""
    blocks, buffers, sets, warps_k, threads, _ = choice
    if sets > 1 and rows < 4 * sets:
        return None
    tensor, far = warps_k == _TENSOR_CORES, choice.far
    units, half = units_of(size, blocks, tensor), -(-rows // sets)
    blocks = -(-size // units) if far else blocks
    wide = blocks * units
    product = (
        tensor_product_for(gates * units, wide, half, units)
        if tensor
        else product_for(gates * units, wide, half, warps_k, threads // 32)
    )
    if product is None or (far and product.tiles):
        return None
    if isinstance(product, TensorProduct):  # eights of rows are read whole
        entries = buffers * sets * half * wide + 8 * units if far else buffers * sets * 8 * product.eights * wide
    else:
        entries = buffers * sets * half * wide
    numbers = half * (sets * units + product.warps_k * product.results)
    shared = entries * product.entry_bytes + 4 * numbers + product.later_bytes
    layout = Layout(blocks, units, rows, buffers, sets, shared, product, threads, far, product.entry_bytes)
    posted = layout._replace(posted=True)
    return posted if sets == 1 and not far and posted.message < layout.message else layout


@cache
def scatter_layout(size: int, gates: int, batch: int, processors: int, narrow: bool = False) -> Layout | None:
    """Return the layout of ``source/scatter.cu``, or None where the weight fits nowhere; arguments as above.

    Example:
        >>> scatter_layout(512, 4, 128, 132)[:3]
        (16, 32, 19)
    """
    return cheapest(scatter_layouts(size, gates, batch, processors, narrow), batch, processors)


def scatter_layouts(size: int, gates: int, batch: int, processors: int, narrow: bool = False) -> list[Layout]:
    """Return all layouts that :func:`scatter_layout` chooses from."""
    choices = [(blocks, tensor) for blocks in _SIZES for tensor in ((False, True) if narrow else (False,))]
    return fitting_ones((partial(lay_out_scatter, size, gates, *choice) for choice in choices), batch, processors)


def lay_out_scatter(size: int, gates: int, blocks: int, tensor: bool, rows: int) -> Layout | None:
    """Return the layout of a cluster of ``blocks`` blocks with ``rows`` rows, or None where there is none."""
    units = units_of(size, blocks, tensor)
    own, wide = gates * units, blocks * units
    product = tensor_product_for(wide, own, rows, own) if tensor else product_for(wide, own, rows)
    if product is None:
        return None
    sent = -(-product.results // units) * units
    numbers = rows * ((wide if blocks > 1 else 0) + sent + 2 * units)
    shared = 4 * numbers + (rows + 8 * tensor) * own * product.entry_bytes + product.later_bytes
    return Layout(blocks, units, rows, 1, 1, shared, product)


def units_of(size: int, blocks: int, tensor: bool) -> int:
    """Return the units of a block: all are read 16 bytes at a time, those of a fragment 32 entries."""
    step = 32 if tensor else 4
    return -(-size // (step * blocks)) * step


def cheapest(layouts: list[Layout], batch: int, processors: int) -> Layout | None:
    """Return the layout that takes fewest cycles, and of several the one with the shortest messages; None of none."""
    return min(layouts, key=lambda layout: (layout.cycles(batch, processors), layout.message), default=None)


def fitting_ones(choices: Iterable[Callable[[int], Layout | None]], batch: int, processors: int) -> list[Layout]:
    """Return the layouts of choices that fit, each with as many rows as are wanted or fit."""
    return [layout for choice in choices if (layout := fit_layout(choice, batch, processors)) is not None]


def fit_layout(at: Callable[[int], Layout | None], batch: int, processors: int) -> Layout | None:
    """Return the layout with as many rows as are wanted or fit; None if there is none."""
    for most in (1024, 64, 48, 32, 24, 16, 12, 8, 4, 2, 1):
        example = at(min(most, batch)) or at(8)
        if example is None:
            continue
        layout = at(rows_of(batch, example.at_once(processors), most))
        if layout is not None and layout.shared <= SHARED and layout.half * layout.units <= _MOST_ITEMS * layout.threads:
            return layout
    return None
