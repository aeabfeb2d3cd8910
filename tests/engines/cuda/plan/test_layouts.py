"""How recurrences are laid out on a GPU: every unit, row and number has a place, and what a kernel takes for granted holds."""

from collections.abc import Iterator

import pytest

from steadyrnn.engines.cuda.plan.direct import direct_layout
from steadyrnn.engines.cuda.plan.layouts import SHARED, Layout, fits, gather_layout, rows_of, scatter_layout
from steadyrnn.engines.cuda.plan.products import Product, TensorProduct, product_for, tensor_product_for
from steadyrnn.gpu.device import clusters_at_once

SIZES = (1, 3, 17, 32, 33, 100, 128, 129, 255, 256, 300, 383, 505, 512)
WIDE = (513, 767, 999, 1017, 1024)
BATCHES = (1, 3, 8, 17, 70, 128, 130, 300, 1000, 2048, 5000)
GATES = (1, 3, 4)
MOST = {1: 1024, 3: 512, 4: 512}  # units
PROCESSORS = 132  # an H200's
OTHERS = (78, 114, 148)
KINDS = [(size, gates) for gates in GATES for size in (*SIZES, *WIDE) if size <= MOST[gates]]
GATED = [kind for kind in KINDS if kind[1] > 1]
NARROW = pytest.mark.parametrize("narrow", [False, True], ids=["float32", "16-bit"])
WORDS = 128  # of a matrix that a lane holds: half of its registers


def gathers(size: int, gates: int, narrow: bool, processors: int = PROCESSORS) -> Iterator[tuple[int, Layout]]:
    """Yield each batch and its layout, which there must be."""
    for batch in BATCHES:
        layout = gather_layout(size, gates, batch, processors, narrow)
        assert layout is not None
        yield batch, layout


def scatters(size: int, gates: int, narrow: bool, processors: int = PROCESSORS) -> Iterator[tuple[int, Layout]]:
    """Yield each batch and its layout, which there must be."""
    for batch in BATCHES:
        layout = scatter_layout(size, gates, batch, processors, narrow)
        assert layout is not None
        yield batch, layout


def assert_covers(product: Product | TensorProduct, results: int, length: int, rows: int, warps: int) -> None:
    """Check that a product finds all results, from all entries, for all rows, with all warps and the registers there are."""
    assert product.results >= results
    assert product.later_bytes % 16 == 0  # read 16 bytes at a time, and so is what lies before it
    if isinstance(product, Product):
        assert product.warps_k * product.split * product.depth >= length
        assert product.depth % 4 == 0
        assert product.split in (8, 16, 32)
        assert max(product.each, product.each_later if product.tiles else 0) <= product.split  # else two lanes have one result
        assert {product.each, product.each_later} <= {1, 2, 4, 8}
        assert product.warps_k * product.warps_o * product.warps_r == warps
        assert product.warps_r == 1 or product.tiles == 0  # of later tiles, every warp would need its own copy
        assert product.each * product.depth <= WORDS
    else:
        assert product.piece % 32 == 0
        assert product.warps_k * product.chunks * 32 == length
        assert product.warps_k * product.warps_o == warps
        assert 8 * product.eights >= rows
        assert product.first >= 1
        assert 8 * product.first * product.chunks <= WORDS  # two fragments of four words a chunk


def assert_sound(layout: Layout, size: int, batch: int) -> None:
    """Check what any kernel wants of a layout."""
    assert layout.blocks * layout.units >= size
    assert layout.units % 4 == 0
    assert layout.shared <= SHARED
    assert layout.shared % 16 == 0
    for each in (1, 2):
        assert layout.items(each) * each <= 8
        assert layout.items(each) * each * layout.threads >= layout.half * layout.units
    assert 1 <= layout.height <= batch
    assert layout.half * layout.sets >= layout.height
    assert layout.threads in (128, 256)
    assert layout.far or layout.blocks in (1, 2, 4, 8, 16)


@NARROW
@pytest.mark.parametrize(("size", "gates"), KINDS)
def test_every_unit_and_row_of_a_run_has_a_place_that_fits(size: int, gates: int, narrow: bool) -> None:
    for batch, layout in gathers(size, gates, narrow):
        assert_sound(layout, size, batch)
        assert layout.buffers == 2 or layout.blocks > 1  # without a cluster's barrier, one buffer would be read and written
        assert narrow or isinstance(layout.product, Product)


@NARROW
@pytest.mark.parametrize(("size", "gates"), KINDS)
def test_the_products_of_a_run_cover_the_weight(size: int, gates: int, narrow: bool) -> None:
    for _, layout in gathers(size, gates, narrow):
        wide, warps = layout.blocks * layout.units, layout.threads // 32
        assert_covers(layout.product, gates * layout.units, wide, layout.half, warps)


@NARROW
@pytest.mark.parametrize(("size", "gates"), KINDS)
def test_what_a_run_keeps_in_shared_memory_fits_what_it_asks_for(size: int, gates: int, narrow: bool) -> None:
    for _, layout in gathers(size, gates, narrow):
        product, rows = layout.product, layout.half
        kept = 8 * product.eights if isinstance(product, TensorProduct) and not layout.far else rows
        states = layout.buffers * layout.sets * kept * layout.blocks * layout.units * product.entry_bytes
        sums, held = 4 * product.warps_k * rows * product.results, 4 * layout.sets * rows * layout.units
        assert states + sums + held + product.later_bytes <= layout.shared
        if isinstance(product, TensorProduct) and layout.far:  # eights of rows are read whole, also behind the last there is
            assert states + (8 * product.eights - rows) * layout.units * 2 <= layout.shared


@NARROW
@pytest.mark.parametrize(("size", "gates"), [kind for kind in KINDS if kind[0] > 200])
def test_blocks_that_are_no_cluster_run_all_at_once(size: int, gates: int, narrow: bool) -> None:
    for _, layout in gathers(size, gates, narrow):
        if layout.far:
            assert layout.blocks * layout.at_once(PROCESSORS) <= PROCESSORS
            assert layout.at_once(PROCESSORS) >= 1
            assert layout.product.tiles == 0
            assert layout.buffers == 1
            assert (layout.blocks - 1) * layout.units < size  # none without a unit: all must send


@pytest.mark.parametrize(("size", "gates", "batch"), [(1024, 1, 300), (1017, 1, 70), (505, 4, 300)])
def test_weights_too_large_for_a_cluster_are_shared_by_more_blocks(size: int, gates: int, batch: int) -> None:
    layout = gather_layout(size, gates, batch, PROCESSORS)
    assert layout is not None
    assert layout.far
    assert layout.blocks > 16


@NARROW
@pytest.mark.parametrize(("size", "gates"), GATED)
def test_every_unit_and_row_of_an_adjoint_has_a_place_that_fits(size: int, gates: int, narrow: bool) -> None:
    for batch, layout in scatters(size, gates, narrow):
        assert_sound(layout, size, batch)
        assert not layout.far
        assert layout.sets == 1
        own, wide, rows, product = gates * layout.units, layout.blocks * layout.units, layout.height, layout.product
        assert_covers(product, wide, own, rows, layout.threads // 32)
        sent = -(-product.results // layout.units) * layout.units
        boxes = 4 * rows * (sent + 2 * layout.units + (wide if layout.blocks > 1 else 0))
        assert boxes + rows * own * product.entry_bytes + product.later_bytes <= layout.shared


@NARROW
@pytest.mark.parametrize("processors", [PROCESSORS, *OTHERS])
@pytest.mark.parametrize(("size", "gates"), [(1, 1), (300, 1), (1017, 1), (1024, 1), (505, 3), (512, 3), (129, 4), (512, 4)])
def test_rounds_cover_the_batch(size: int, gates: int, processors: int, narrow: bool) -> None:
    layouts = list(gathers(size, gates, narrow, processors))
    layouts += list(scatters(size, gates, narrow, processors)) if gates > 1 else []
    for batch, layout in layouts:
        tiles, at_once = -(-batch // layout.height), layout.at_once(processors)
        assert tiles * layout.height >= batch
        assert (tiles - 1) * layout.height < batch  # no tile without a row: a kernel reads the length of its first
        assert at_once >= 1
        assert not layout.far or layout.blocks * at_once <= processors


@pytest.mark.parametrize("gates", GATES)
def test_a_layout_exists_up_to_the_largest_size_and_no_further(gates: int) -> None:
    most = MOST[gates]
    for size in (1, most // 2, most - 7, most):
        assert fits(size, gates)
    for size in (most + 1, most + 4, 2 * most):
        assert not fits(size, gates)


@NARROW
@pytest.mark.parametrize(("size", "gates"), [*KINDS, (513, 3), (513, 4), (1025, 1), (4096, 1)])
def test_what_fits_has_layouts_for_every_batch_and_dtype(size: int, gates: int, narrow: bool) -> None:
    layouts = [gather_layout(size, gates, batch, PROCESSORS, narrow) for batch in BATCHES]
    layouts += [scatter_layout(size, gates, batch, PROCESSORS, narrow) for batch in BATCHES] if gates > 1 else []
    if fits(size, gates):
        assert None not in layouts
    elif not narrow:  # 16 bits take half the memory: there, something may be found beyond
        assert None in layouts


@NARROW
@pytest.mark.parametrize("layout", [gather_layout, scatter_layout], ids=["gather", "scatter"])
@pytest.mark.parametrize(("size", "gates", "batch"), [(128, 3, 64), (512, 4, 300), (300, 4, 1)])
def test_layouts_are_deterministic(layout: type, size: int, gates: int, batch: int, narrow: bool) -> None:
    search = layout.__wrapped__  # behind the cache
    assert search(size, gates, batch, PROCESSORS, narrow) == search(size, gates, batch, PROCESSORS, narrow)
    assert search(size, gates, batch, PROCESSORS, narrow) == layout(size, gates, batch, PROCESSORS, narrow)


@pytest.mark.parametrize("warps", [4, 8])
@pytest.mark.parametrize("warps_k", [1, 2, 4])
@pytest.mark.parametrize("rows", [1, 2, 7, 64])
def test_products_of_any_shape_cover_it(rows: int, warps_k: int, warps: int) -> None:
    for results in (1, 4, 12, 32, 100, 512):
        for length in (4, 12, 128, 132, 508, 512):
            product = product_for(results, length, rows, warps_k, warps)
            assert product is not None
            assert_covers(product, results, length, rows, warps)
    assert product_for(4, 512 * warps_k + 4, rows, warps_k, warps) is None


@pytest.mark.parametrize("rows", [1, 8, 9, 24])
def test_products_on_matrix_units_of_any_shape_cover_it(rows: int) -> None:
    for results in (1, 16, 96, 512):
        for length in (32, 96, 128, 544, 1024):
            product = tensor_product_for(results, length, rows, 32)
            if product is not None:
                assert_covers(product, results, length, rows, 8)
    assert tensor_product_for(16, 1024, rows, 64) is not None
    assert tensor_product_for(16, 48, rows, 16) is None


def test_more_rows_than_matrix_units_take_at_once_are_refused() -> None:
    assert tensor_product_for(16, 512, 25, 64) is None


@pytest.mark.parametrize("most", [1, 7, 64])
@pytest.mark.parametrize("at_once", [1, 7, 132])
@pytest.mark.parametrize("batch", BATCHES)
def test_rows_are_no_more_than_allowed_in_as_few_rounds_as_can_be(batch: int, at_once: int, most: int) -> None:
    rows = rows_of(batch, at_once, most)
    assert 1 <= rows <= most
    assert -(-batch // (rows * at_once)) == -(-batch // (most * at_once))


@pytest.mark.parametrize("processors", [1, 16, *OTHERS, PROCESSORS])
@pytest.mark.parametrize("blocks", [1, 2, 4, 8, 16])
def test_clusters_side_by_side_have_a_multiprocessor_for_every_block(blocks: int, processors: int) -> None:
    at_once = clusters_at_once(blocks, processors)
    assert at_once >= 1
    assert blocks * at_once <= max(processors, blocks)


@pytest.mark.parametrize("batch", [1, 131, 264, 265, 600, 2112, 100_000])
@pytest.mark.parametrize("size", [1, 31, 32, 33, 64, 65, 97, 128])
def test_a_weight_that_one_block_holds_has_a_lane_for_every_entry(size: int, batch: int) -> None:
    layout = direct_layout(size, batch, 132)
    assert layout is not None
    assert layout.each * 32 >= size  # results: 32 groups of lanes
    assert layout.depth * 8 >= size  # entries of a row: 8 lanes
    assert layout.depth % 4 == 0  # read four at a time
    assert layout.each * layout.depth <= 64  # registers
    assert layout.each * layout.pack in (1, 2, 4, 8)  # sums that are halved
    assert layout.rows in (1, 2, 4, 8)
    assert layout.rows == 8 or layout.rows * 264 >= batch  # two blocks on each multiprocessor take them all
    assert layout.rows == 1 or layout.rows // 2 * 264 < batch  # and fewer rows would not do


def test_wider_weights_and_matrix_units_are_left_to_another_kernel() -> None:
    assert direct_layout(129, 1, 132) is None
    assert direct_layout(128, 265, 132, narrow=True) is None
    assert direct_layout(128, 264, 132, narrow=True) == direct_layout(128, 264, 132)
