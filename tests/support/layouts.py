"""Recurrences by the layout that they get: which one that is may change with what is measured, that all are tested must not."""

from collections.abc import Callable
from functools import cache

from steadyrnn.engines.cuda.direct import direct_layout
from steadyrnn.engines.cuda.plan import Layout, gather_layout, scatter_layout

__all__ = ["LAYOUTS", "shape_with"]

_PROCESSORS = 132  # an H200's
_SIZES = (3, 17, 33, 64, 100, 129, 200, 256, 300, 384, 505, 512, 777, 1017, 1024)
_BATCHES = (1, 3, 70, 130, 300, 600, 1000, 2000)

LAYOUTS: dict[str, Callable[[Layout, int], bool]] = {
    "one-block": lambda one, abreast: one.blocks == 1 and one.threads == 256,
    "two-on-a-multiprocessor": lambda one, abreast: one.threads == 128,
    "cluster-2": lambda one, abreast: one.blocks == 2,
    "cluster-4": lambda one, abreast: one.blocks == 4,
    "cluster-8": lambda one, abreast: one.blocks == 8,
    "cluster-16": lambda one, abreast: one.blocks == 16 and not one.far,
    "far": lambda one, abreast: one.far,
    "later-tiles": lambda one, abreast: one.product.tiles > 0,
    "one-buffer": lambda one, abreast: one.buffers == 1 and not one.far,
    "one-set": lambda one, abreast: one.sets == 1 and one.blocks > 1,
    "two-sets": lambda one, abreast: one.sets == 2 and not one.far,
    "shared-rows": lambda one, abreast: one.product.warps_k > 1,
    "ahead": lambda one, abreast: one.sets == one.items(abreast) == 1 and one.blocks > 1,
    "most-items": lambda one, abreast: one.items(abreast) == 8 // abreast,
    "six-items": lambda one, abreast: one.items(abreast) == 6,
    "posted": lambda one, abreast: one.posted,
    "handed-over": lambda one, abreast: one.blocks > 2 and not one.posted and not one.far,
    "one-by-one": lambda one, abreast: abreast == 1 and one.blocks > 1,
    "two-by-two": lambda one, abreast: abreast == 2 and one.blocks > 1,
    "matrix-units": lambda one, abreast: one.product.source == "tensor_product",
    "matrix-units-later-tiles": lambda one, abreast: one.product.source == "tensor_product" and one.product.tiles > 0,
    "matrix-units-far": lambda one, abreast: one.product.source == "tensor_product" and one.far,
}
"""What layouts of ``source/gather.cu`` may have, by name; a thread finishes ``abreast`` neighbours at once."""


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
