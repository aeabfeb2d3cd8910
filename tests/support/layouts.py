"""Recurrences by the layout that they get: which one that is may change with what is measured, that all are tested must not."""

from collections.abc import Callable
from functools import cache

from steadyrnn.engines.cuda.plan.direct import direct_layout
from steadyrnn.engines.cuda.plan.layouts import Layout, gather_layout, scatter_layout

__all__ = ["LAYOUTS", "shape_with"]

_PROCESSORS = 132  # an H200's
_SIZES = (3, 17, 33, 64, 100, 129, 200, 256, 300, 384, 505, 512, 777, 1017, 1024)
_BATCHES = (1, 3, 70, 130, 300, 600, 1000, 2000)

LAYOUTS: dict[str, Callable[[Layout, int], bool]] = {
    "one-block": lambda one, vector_io: one.blocks == 1 and one.threads == 256,
    "two-on-a-multiprocessor": lambda one, vector_io: one.threads == 128,
    "cluster-2": lambda one, vector_io: one.blocks == 2,
    "cluster-4": lambda one, vector_io: one.blocks == 4,
    "cluster-8": lambda one, vector_io: one.blocks == 8,
    "cluster-16": lambda one, vector_io: one.blocks == 16 and not one.far,
    "far": lambda one, vector_io: one.far,
    "later-tiles": lambda one, vector_io: one.product.tiles > 0,
    "one-buffer": lambda one, vector_io: one.buffers == 1 and not one.far,
    "one-set": lambda one, vector_io: one.sets == 1 and one.blocks > 1,
    "two-sets": lambda one, vector_io: one.sets == 2 and not one.far,
    "shared-rows": lambda one, vector_io: one.product.warps_k > 1,
    "ahead": lambda one, vector_io: one.sets == one.items(vector_io) == 1 and one.blocks > 1,
    "most-items": lambda one, vector_io: one.items(vector_io) == 8 // vector_io,
    "six-items": lambda one, vector_io: one.items(vector_io) == 6,
    "posted": lambda one, vector_io: one.posted,
    "handed-over": lambda one, vector_io: one.blocks > 2 and not one.posted and not one.far,
    "one-by-one": lambda one, vector_io: vector_io == 1 and one.blocks > 1,
    "two-by-two": lambda one, vector_io: vector_io == 2 and one.blocks > 1,
    "tensor-cores": lambda one, vector_io: one.product.source == "tensor_product",
    "tensor-cores-later-tiles": lambda one, vector_io: one.product.source == "tensor_product" and one.product.tiles > 0,
    "tensor-cores-far": lambda one, vector_io: one.product.source == "tensor_product" and one.far,
}
"""What layouts of ``source/gather.cu`` may have, by name; a thread finishes ``vector_io`` neighbours at once."""


@cache
def shape_with(name: str, gates: int, narrow: bool = False, adjoint: bool = False) -> tuple[int, int] | None:
    """Return the first size and batch whose layout has what ``name`` says, or None where none of many has."""
    search, wanted = scatter_layout if adjoint else gather_layout, LAYOUTS[name]
    for size in _SIZES if gates == 1 else [size for size in _SIZES if size <= 512]:
        for batch in _BATCHES:
            if gates == 1 and direct_layout(size, batch, _PROCESSORS, narrow) is not None:
                continue  # another kernel's
            layout = search(size, gates, batch, _PROCESSORS, narrow)
            if layout is not None and wanted(layout, 1 + (size % 2 == 0)):
                return size, batch
    return None
