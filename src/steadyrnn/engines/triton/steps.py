"""One step of each cell on a tile of rows: what a loop kernel is given to run forwards."""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import triton
import triton.language as tl

from .pointwise import polar, sigmoid, tanh
from .tiles import at_time, load_at, matrix, narrow, product, recur, three_gates, tile_of, vector

__all__ = ["gru_after_step", "gru_before_step", "lstm_step", "modrelu_step", "rnn_step"]


@triton.jit
def emit(memory, h, cols, place, sizes, HALF: tl.constexpr, HALVES: tl.constexpr, SETUP: tl.constexpr):
    """Write a tile of new states to the output, 0 at padding, and to the next step's side; a row that rests keeps its own."""
    inside = cols < sizes.gate
    tl.store(
        memory.output + at_time(place.time, place, sizes, cols, HALF, HALVES),
        tl.where(place.on, h, 0.0),
        mask=place.real & inside,
    )
    units = place.rows * sizes.width + HALF * sizes.gate + cols
    if SETUP.ragged:
        last = load_at(memory.shared + vector(place.side, 0, SETUP.parts, sizes), units, inside, SETUP)
        h = tl.where(place.on, h, last)
    tl.store(memory.shared + vector(1 - place.side, 0, SETUP.parts, sizes) + units, h, mask=inside)


@triton.jit
def rnn_step(memory, blocks, place, sizes, VALUE: tl.constexpr, SETUP: tl.constexpr):
    r"""Run :math:`h^+ = \varphi(g + W h)`; the pre-activation is kept where requested."""
    narrow(memory, place, sizes, SETUP)
    for u in range(0, sizes.span, SETUP.units):
        cols, at, mask = tile_of(u, place, sizes, 1, SETUP)
        x = load_at(memory.gates, at, mask, SETUP)
        x += recur(memory, blocks, 0, 0, place, sizes, cols, SETUP)
        if SETUP.keep:
            tl.store(memory.gates + at, x, mask=mask)
        emit(memory, VALUE(x, SETUP.slope), cols, place, sizes, 0, 1, SETUP)


@triton.jit
def modrelu_step(memory, blocks, place, sizes, VALUE: tl.constexpr, SETUP: tl.constexpr):
    """Run the Elman step with modReLU: a gate is half of the units, and a tile holds both parts of its pairs."""
    narrow(memory, place, sizes, SETUP)
    for u in range(0, sizes.span, SETUP.units):
        cols, re_at, mask = tile_of(u, place, sizes, 2, SETUP)
        im_at = re_at + sizes.gate
        re, im = load_at(memory.gates, re_at, mask, SETUP), load_at(memory.gates, im_at, mask, SETUP)
        re += recur(memory, blocks, 0, 0, place, sizes, cols, SETUP)
        im += recur(memory, blocks, 0, 1, place, sizes, cols, SETUP)
        if SETUP.keep:
            tl.store(memory.gates + re_at, re, mask=mask)
            tl.store(memory.gates + im_at, im, mask=mask)
        shift = load_at(memory.theta, cols, cols < sizes.gate, SETUP)
        radius, x, y, zero = polar(re, im)
        silent = zero | (radius + shift <= 0)  # so written, NaN is not silent
        emit(memory, tl.where(silent, 0.0, re + shift * x), cols, place, sizes, 0, 2, SETUP)
        emit(memory, tl.where(silent, 0.0, im + shift * y), cols, place, sizes, 1, 2, SETUP)


@triton.jit
def blend(memory, h, z, n, cols, place, sizes, SETUP: tl.constexpr):
    """Write the GRU's new state, and hand it on in the loop's own dtype."""
    new = n + z * (h - n)
    emit(memory, new, cols, place, sizes, 0, 1, SETUP)
    units = place.rows * sizes.width + cols
    carried = memory.carry + vector(1 - place.side, 0, SETUP.carried, sizes) + units
    tl.store(carried, tl.where(place.on, new, h), mask=cols < sizes.gate)


@triton.jit
def gru_after_step(memory, blocks, place, sizes, VALUE: tl.constexpr, SETUP: tl.constexpr):
    """Run the GRU with the reset gate behind the product; r, z, n and that product are kept where requested."""
    for u in range(0, sizes.span, SETUP.units):
        cols, at, mask = tile_of(u, place, sizes, 3, SETUP)
        r, z, n = three_gates(memory, at, mask, sizes, SETUP)
        units = place.rows * sizes.width + cols
        h = load_at(memory.carry + vector(place.side, 0, SETUP.carried, sizes), units, cols < sizes.gate, SETUP)
        r = sigmoid(r + recur(memory, blocks, 0, 0, place, sizes, cols, SETUP), 0.0)
        z = sigmoid(z + recur(memory, blocks, 0, 1, place, sizes, cols, SETUP), 0.0)
        p = recur(memory, blocks, 0, 2, place, sizes, cols, SETUP)
        if memory.bias is not None:
            p += load_at(memory.bias, cols, cols < sizes.gate, SETUP)
        n = tanh(n + r * p, 0.0)
        if SETUP.keep:
            tl.store(memory.gates + at, r, mask=mask)
            tl.store(memory.gates + at + sizes.gate, z, mask=mask)
            tl.store(memory.gates + at + 2 * sizes.gate, n, mask=mask)
            tl.store(memory.extra + at_time(place.time, place, sizes, cols, 0, 1), p, mask=mask)
        blend(memory, h, z, n, cols, place, sizes, SETUP)


@triton.jit
def gru_before_step(memory, blocks, place, sizes, VALUE: tl.constexpr, SETUP: tl.constexpr):
    r"""Run the GRU with the reset gate before the product; r, z, n and :math:`r \circ h` are kept where requested."""
    gated = memory.shared + vector(place.side, 1, SETUP.parts, sizes)
    state = memory.carry + vector(place.side, 0, SETUP.carried, sizes)
    for u in range(0, sizes.span, SETUP.units):
        cols, at, mask = tile_of(u, place, sizes, 3, SETUP)
        r, z = load_at(memory.gates, at, mask, SETUP), load_at(memory.gates, at + sizes.gate, mask, SETUP)
        units = place.rows * sizes.width + cols
        r = sigmoid(r + recur(memory, blocks, 0, 0, place, sizes, cols, SETUP), 0.0)
        z = sigmoid(z + recur(memory, blocks, 0, 1, place, sizes, cols, SETUP), 0.0)
        passed = r * load_at(state, units, cols < sizes.gate, SETUP)
        tl.store(gated + units, passed, mask=cols < sizes.gate)
        tl.store(memory.gates + at + sizes.gate, z, mask=mask)
        if SETUP.keep:
            tl.store(memory.gates + at, r, mask=mask)
            whole = place.real & (cols < sizes.gate)  # padding too: the weight's gradient is one product over all
            at = at_time(place.time, place, sizes, cols, 0, 1)
            tl.store(memory.extra + at, tl.where(place.on, passed, 0.0), mask=whole)
    tl.debug_barrier()
    weight = memory.weight + matrix(2, sizes.width, sizes)
    for u in range(0, sizes.span, SETUP.units):
        cols, at, mask = tile_of(u, place, sizes, 3, SETUP)
        n, z = load_at(memory.gates, at + 2 * sizes.gate, mask, SETUP), load_at(memory.gates, at + sizes.gate, mask, SETUP)
        h = load_at(state, place.rows * sizes.width + cols, cols < sizes.gate, SETUP)
        n = tanh(n + product(gated, weight, blocks[2], sizes.width, sizes.span, place, cols, SETUP.resident > 0, SETUP), 0.0)
        if SETUP.keep:
            tl.store(memory.gates + at + 2 * sizes.gate, n, mask=mask)
        blend(memory, h, z, n, cols, place, sizes, SETUP)


@triton.jit
def lstm_step(memory, blocks, place, sizes, VALUE: tl.constexpr, SETUP: tl.constexpr):
    """Run the LSTM; i, f, g, o and the new cell are kept where requested."""
    for u in range(0, sizes.span, SETUP.units):
        cols, at, mask = tile_of(u, place, sizes, 4, SETUP)
        i, f, g = three_gates(memory, at, mask, sizes, SETUP)
        o = load_at(memory.gates, at + 3 * sizes.gate, mask, SETUP)
        units = place.rows * sizes.width + cols
        c = load_at(memory.carry + vector(place.side, 0, SETUP.carried, sizes), units, cols < sizes.gate, SETUP)
        i = sigmoid(i + recur(memory, blocks, 0, 0, place, sizes, cols, SETUP), 0.0)
        f = sigmoid(f + recur(memory, blocks, 0, 1, place, sizes, cols, SETUP), 0.0)
        g = tanh(g + recur(memory, blocks, 0, 2, place, sizes, cols, SETUP), 0.0)
        o = sigmoid(o + recur(memory, blocks, 0, 3, place, sizes, cols, SETUP), 0.0)
        new = f * c + i * g
        if SETUP.keep:
            tl.store(memory.gates + at, i, mask=mask)
            tl.store(memory.gates + at + sizes.gate, f, mask=mask)
            tl.store(memory.gates + at + 2 * sizes.gate, g, mask=mask)
            tl.store(memory.gates + at + 3 * sizes.gate, o, mask=mask)
            tl.store(memory.extra + at_time(place.time, place, sizes, cols, 0, 1), new, mask=mask)
        emit(memory, o * tanh(new, 0.0), cols, place, sizes, 0, 1, SETUP)
        carried = memory.carry + vector(1 - place.side, 0, SETUP.carried, sizes) + units
        tl.store(carried, tl.where(place.on, new, c), mask=cols < sizes.gate)
