"""One program's view of the data: where its rows and units lie, and products of its rows with a weight."""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

from typing import Any, NamedTuple

import triton
import triton.language as tl

__all__ = [
    "Memory",
    "Place",
    "Setup",
    "Sizes",
    "at_time",
    "before",
    "load_at",
    "matrix",
    "narrow",
    "product",
    "recur",
    "stay",
    "three_gates",
    "tile_of",
    "vector",
]


class Setup(NamedTuple):
    """What a kernel is compiled for."""

    rows: int  # of a tile, a power of two
    units: int  # of a tile, a power of two
    depth: int  # of a product's block, a power of two
    parts: int  # exchanged vectors per row
    carried: int  # carried vectors per row
    adjoints: int  # adjoint vectors, of a gate's length, a row and time
    precision: str  # of products, Triton's `input_precision`
    upcast: bool  # 16-bit operands, before products: the interpreter multiplies no bfloat16
    wide: bool  # float64 inside, else float32
    keep: bool  # what the adjoint needs
    ragged: bool
    reverse: bool
    factored: bool
    resident: int  # matrices that stay in registers, each one block: all of a weight's, or none
    slope: float  # of leaky relu


class Memory(NamedTuple):
    """Pointers; None where a cell has no use for one. ``P`` units of a gate (half the state for modrelu), ``^`` padded."""

    gates: Any  # (T, B, G * P) input parts, overwritten by what the adjoint needs
    extra: Any  # (T, B, H) what else it needs
    output: Any  # (T, B, H)
    lengths: Any  # (B,)
    theta: Any  # (P,)
    bias: Any  # (H,) of the candidate, inside the reset gate
    weight: Any  # (G, H^, P^), or (G, K^, P^) of factors
    thin: Any  # (H^, K^) of factors
    diagonal: Any  # (G, P^) of factors
    shared: Any  # (2, parts, B^, H^) vectors that every unit of the next product needs
    middle: Any  # (B^, K^) the vector between two factors
    carry: Any  # (2, carried, B^, H^) vectors that a unit hands to itself
    start: Any  # (B, H) initial state, or initial cell
    grad: Any  # (T, B, H) gradient of the output
    adjoint: Any  # (T, B, adjoints * H) gradient of the gates


class Sizes(NamedTuple):
    """Numbers known when a kernel is launched."""

    steps: Any
    batch: Any  # B
    rows: Any  # B^
    width: Any  # H^
    gate: Any  # P
    span: Any  # P^
    rank: Any  # K^


class Place(NamedTuple):
    """Where a program is: its rows and the time."""

    rows: Any  # (rows, 1) int64
    real: Any  # (rows, 1) whether there is such a row
    on: Any  # (rows, 1) whether it runs now
    first: Any  # (rows, 1) whether this is its first step
    time: Any
    earlier: Any  # the time before, in the order of the run
    side: Any  # half of the double buffers that holds the last step's vectors, 0 or 1


@triton.jit
def at_time(time, place, sizes, cols, part, PARTS: tl.constexpr):
    """Return the offsets of tile entries in data (T, B, PARTS * P)."""
    return ((time * sizes.batch + place.rows) * PARTS + part) * sizes.gate + cols


@triton.jit
def load_at(pointer, offsets, mask, SETUP: tl.constexpr):
    """Return a tile in the dtype of the loop, 0 where ``mask`` is not set."""
    tile = tl.load(pointer + offsets, mask=mask, other=0.0)
    return tile.to(tl.float64) if SETUP.wide else tile.to(tl.float32)


@triton.jit
def tile_of(u, place, sizes, PARTS: tl.constexpr, SETUP: tl.constexpr):
    """Return the units of a tile, where they lie now in data (T, B, PARTS * P), and which entries of it run."""
    cols = u + tl.arange(0, SETUP.units)[None, :]
    return cols, at_time(place.time, place, sizes, cols, 0, PARTS), place.on & (cols < sizes.gate)


@triton.jit
def three_gates(memory, at, mask, sizes, SETUP: tl.constexpr):
    """Return the tiles of the first three gates, whose first lies at ``at``."""
    first = load_at(memory.gates, at, mask, SETUP)
    second = load_at(memory.gates, at + sizes.gate, mask, SETUP)
    return first, second, load_at(memory.gates, at + 2 * sizes.gate, mask, SETUP)


@triton.jit
def vector(side, part, PARTS: tl.constexpr, sizes):
    """Return the offset of one vector per row, (B^, H^), in a double buffer (2, PARTS, B^, H^)."""
    return (side * PARTS + part) * sizes.rows * sizes.width


@triton.jit
def matrix(gate, depth, sizes):
    """Return the offset of a gate's matrix (depth, P^) in a weight."""
    return gate * tl.cast(depth, tl.int64) * sizes.span


@triton.jit
def before(history, start, place, sizes, cols, SETUP: tl.constexpr):
    """Return the states (rows, units) that a step came from: of ``history`` (T, B, H), or of ``start`` (B, H)."""
    inside = place.on & (cols < sizes.gate)
    last = load_at(history, at_time(place.earlier, place, sizes, cols, 0, 1), inside & (place.first == 0), SETUP)
    return last + load_at(start, at_time(0, place, sizes, cols, 0, 1), inside & place.first, SETUP)


@triton.jit
def stay(memory, GATE: tl.constexpr, SETUP: tl.constexpr):
    """Return the matrix of a gate as one block, if matrices stay, else nothing of use."""
    inner, cols = tl.arange(0, SETUP.depth)[:, None], tl.arange(0, SETUP.units)[None, :]
    at = (GATE * SETUP.depth + inner) * SETUP.units + cols
    return tl.load(memory.weight + at) if SETUP.resident > GATE else 0


@triton.jit
def product(vectors, weight, block, depth, span, place, cols, STAYS: tl.constexpr, SETUP: tl.constexpr):
    """Return the tile (rows, units) of vectors (B^, depth) times a weight (depth, span); everything is padded.

    Where it ``STAYS``, the weight is one block that is there already. In float32 every block is added up from 0, and then to
    the total: one chain of additions over all of the depth would err by three times as much.
    """
    kind: tl.constexpr = tl.float64 if SETUP.wide else tl.float32
    total = tl.full((SETUP.rows, SETUP.units), 0.0, kind)
    inner = tl.arange(0, SETUP.depth)
    lines = vectors + place.rows * depth + inner[None, :]
    blocks = weight + inner[:, None] * span + cols
    for _ in range(0, SETUP.depth if STAYS else depth, SETUP.depth):
        a, b = tl.load(lines), block if STAYS else tl.load(blocks)
        if SETUP.upcast:
            a, b = a.to(kind), b.to(kind)
        if SETUP.precision == "ieee" and a.dtype == tl.float32:
            # the bound on a sum, of no other use in float32, keeps the compiler from starting it at `total`
            total += tl.dot(a, b, input_precision=SETUP.precision, max_num_imprecise_acc=SETUP.depth, out_dtype=kind)
        else:
            total = tl.dot(a, b, total, input_precision=SETUP.precision, out_dtype=kind)
        lines += SETUP.depth
        blocks += SETUP.depth * span
    return total


@triton.jit
def recur(memory, blocks, part, GATE: tl.constexpr, place, sizes, cols, SETUP: tl.constexpr):
    """Return the tile of the last step's shared vector ``part`` times the weight of a gate."""
    vectors = memory.shared + vector(place.side, part, SETUP.parts, sizes)
    if SETUP.factored:
        weight = memory.weight + matrix(GATE, sizes.rank, sizes)
        total = product(memory.middle, weight, 0, sizes.rank, sizes.span, place, cols, False, SETUP)
        diagonal = load_at(memory.diagonal, GATE * sizes.span + cols, cols < sizes.span, SETUP)
        units = place.rows * sizes.width + GATE * sizes.gate + cols
        total += diagonal * load_at(vectors, units, cols < sizes.gate, SETUP)
    else:
        weight = memory.weight + matrix(GATE, sizes.width, sizes)
        total = product(vectors, weight, blocks[GATE], sizes.width, sizes.span, place, cols, SETUP.resident > 0, SETUP)
    return total


@triton.jit
def narrow(memory, place, sizes, SETUP: tl.constexpr):
    """Multiply the last step's shared vector by the thin factor, where the weight has factors."""
    if SETUP.factored:
        vectors = memory.shared + vector(place.side, 0, SETUP.parts, sizes)
        for r in range(0, sizes.rank, SETUP.units):
            cols = r + tl.arange(0, SETUP.units)[None, :]
            tile = product(vectors, memory.thin, 0, sizes.width, sizes.rank, place, cols, False, SETUP)
            tl.store(memory.middle + place.rows * sizes.rank + cols, tile)
        tl.debug_barrier()
