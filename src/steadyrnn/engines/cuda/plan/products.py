"""How a block multiplies: what each lane holds of a matrix, on the float32 units or on the tensor cores."""

from typing import NamedTuple

__all__ = ["Product", "TensorProduct", "product_for", "tensor_product_for"]

_WARPS = 8


class Product(NamedTuple):
    """See ``source/product.cu``."""

    split: int  # lanes that share a result
    depth: int  # entries of a row that a lane holds
    each: int  # results of a lane in the first tile
    each_later: int
    tiles: int  # beyond the first
    warps_k: int
    warps_o: int
    warps_r: int

    @property
    def source(self) -> str:
        """The file's name."""
        return "product"

    @property
    def entry_bytes(self) -> int:
        """Of a number in a vector."""
        return 4

    @property
    def results(self) -> int:
        """Of a block."""
        return self.warps_o * (32 // self.split) * (self.each + self.tiles * self.each_later)

    @property
    def later_bytes(self) -> int:
        """Bytes of shared memory for the tiles beyond the first."""
        return 4 * self.tiles * self.warps_o * self.warps_k * 32 * self.each_later * self.depth

    def cycles(self, rows: int) -> float:
        """Return about how many cycles the product of ``rows`` rows takes."""
        first, later = self.warps_o * self.warps_k * 32 * self.each * self.depth, self.later_bytes // 4
        warps = self.warps_o * self.warps_k
        loads = warps * (1 + self.tiles) * self.depth / 4 * self.split / 8
        moves = warps * (shuffles(self.each, self.split) + self.tiles * shuffles(self.each_later, self.split))
        multiplying = (first / 0.82 + later / 0.74) / 128 / (1 if self.each == 8 or rows > 1 else 0.8)
        reading = loads + moves
        return 1.25 * (rows * (max(multiplying, reading) + reading / 4) + later / 16 + 20 * self.split.bit_length())


def shuffles(each: int, split: int) -> int:
    """Return how many numbers each lane gives away to add up ``each`` results of ``split`` lanes.

    Example:
        >>> shuffles(8, 32)
        9
    """
    return each - 1 + (split // each).bit_length() - 1 if split >= each else split.bit_length() - 1


class TensorProduct(NamedTuple):
    """See ``source/tensor_product.cu``."""

    piece: int
    chunks: int  # of 32 entries that a warp holds of a row
    first: int  # tiles of 16 results in registers
    tiles: int  # beyond those
    warps_k: int
    warps_o: int
    eights: int  # of rows

    @property
    def source(self) -> str:
        """The file's name."""
        return "tensor_product"

    @property
    def entry_bytes(self) -> int:
        """Of a number in a vector."""
        return 2

    @property
    def results(self) -> int:
        """Of a block."""
        return self.warps_o * 16 * (self.first + self.tiles)

    @property
    def later_bytes(self) -> int:
        """Bytes of shared memory for the tiles beyond the first."""
        return self.tiles * self.warps_o * self.warps_k * self.chunks * 2 * 512

    def cycles(self, rows: int) -> float:
        """Return about how many cycles the product of ``rows`` rows takes."""
        eights = -(-rows // 8)
        loads = 4 * _WARPS * self.chunks * (eights * (1 + self.tiles) + 2 * self.tiles)
        products = 2 * _WARPS * 2 * self.chunks * eights * (self.first + self.tiles)
        chain = 33 * 2 * self.chunks * (1 + self.tiles) / (1 if self.first * eights >= 4 else 2)
        return 1.6 * max(loads, products, chain) + 150


def product_for(results: int, length: int, rows: int, warps_k: int = 1, warps: int = _WARPS) -> Product | None:
    """Return how a block finds ``results`` results from float32 vectors of ``length`` for ``rows`` rows; None if it cannot.

    A lane holds 16 numbers of a row or fewer and, where there are rows enough, 8 results: then a number read from shared
    memory is used eight times. What 128 registers do not hold goes to shared memory. The more warps share a row, the fewer
    lanes do, which makes sums over lanes cheaper and those over warps dearer.

    Example:
        >>> product_for(64, 512, 9)
        Product(split=32, depth=16, each=8, each_later=4, tiles=0, warps_k=1, warps_o=8, warps_r=1)
    """
    part = -(-length // warps_k)
    split = next((s for s in (8, 16, 32) if 16 * s >= part), None)
    if split is None:
        return None
    depth = -(-part // (4 * split)) * 4
    lanes, warps = 32 // split, warps // warps_k
    for warps_r in (8, 4, 2):
        if warps_r <= min(rows, warps) and warps // warps_r * lanes * 8 >= results:
            return Product(split, depth, 8, 4, 0, warps_k, warps // warps_r, warps_r)
    each = next((e for e in (1, 2, 4, 8) if warps * lanes * e >= results), 8)
    tiles = -(-max(results - warps * lanes * each, 0) // (warps * lanes * 4))
    return Product(split, depth, each, 4, tiles, warps_k, warps, 1)


def tensor_product_for(results: int, length: int, rows: int, piece: int) -> TensorProduct | None:
    """Return how a block finds ``results`` results from 16-bit vectors, which lie in pieces; None where it cannot.

    As few warps share a row as can; of three eights of rows, so many that a number read serves two tiles of results: else
    reading takes as long as multiplying.

    Example:
        >>> tensor_product_for(64, 1024, 10, 64)
        TensorProduct(piece=64, chunks=16, first=1, tiles=0, warps_k=2, warps_o=4, eights=2)
    """
    eights = -(-rows // 8)
    found = None
    for warps_k in (1, 2, 4, 8):
        chunks, left = divmod(length, 32 * warps_k)
        if left == 0 and piece % 32 == 0 and 0 < chunks <= 16 and eights <= 3:
            warps_o = _WARPS // warps_k
            wanted = -(-results // (16 * warps_o))
            first = min(wanted, 16 // chunks, max(1, 6 // eights))
            product = TensorProduct(piece, chunks, first, wanted - first, warps_k, warps_o, eights)
            if first == 2 and eights == 3 and wanted == 2:
                return product
            found = found or product
    return found
