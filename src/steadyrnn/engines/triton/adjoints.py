"""The adjoint of one step of each cell on a tile of rows: what a loop kernel is given to run backwards.

Each adds up the gradient of its state first: what the last step's gates pull back, and what a unit handed to itself. For
a row that rests that is all: it is handed on, and the gates' gradients are 0.
"""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import triton
import triton.language as tl

from .pointwise import polar, pull_sigmoid, pull_tanh, tanh
from .tiles import at_time, before, load_at, matrix, narrow, product, recur, three_gates, tile_of, vector

__all__ = ["gru_after_adjoint", "gru_before_adjoint", "lstm_adjoint", "modrelu_adjoint", "rnn_adjoint"]


@triton.jit
def load_grad(memory, at, mask, SETUP: tl.constexpr):
    """Return the output's own gradient, 0 where there is none."""
    return 0.0 if memory.grad is None else load_at(memory.grad, at, mask, SETUP)


@triton.jit
def put(memory, tile, cols, slot, part, half, place, sizes, SETUP: tl.constexpr):
    """Write a gate's gradient to the history (at ``slot``) and to the next step's side (``half`` of a vector); 0 at rest."""
    tile = tl.where(place.on, tile, 0.0)
    at = at_time(place.time, place, sizes, cols, slot, SETUP.adjoints)
    tl.store(memory.adjoint + at, tile, mask=place.real & (cols < sizes.gate))
    units = place.rows * sizes.width + half * sizes.gate + cols
    tl.store(memory.shared + vector(1 - place.side, part, SETUP.parts, sizes) + units, tile, mask=cols < sizes.gate)


@triton.jit
def load_carried(memory, part, cols, place, sizes, SETUP: tl.constexpr):
    """Return a tile of what the last step handed on."""
    units = place.rows * sizes.width + cols
    return load_at(memory.carry + vector(place.side, part, SETUP.carried, sizes), units, cols < sizes.width, SETUP)


@triton.jit
def hand_on(memory, tile, part, cols, inside, place, sizes, SETUP: tl.constexpr):
    """Write a tile that the next step reads by :func:`load_carried`."""
    units = place.rows * sizes.width + cols
    tl.store(memory.carry + vector(1 - place.side, part, SETUP.carried, sizes) + units, tile, mask=inside)


@triton.jit
def rnn_adjoint(memory, blocks, place, sizes, PULL: tl.constexpr, SETUP: tl.constexpr):
    r"""Run :math:`a = \varphi'(\cdot) \circ (\bar h + W^\top a^+)`."""
    narrow(memory, place, sizes, SETUP)
    for u in range(0, sizes.span, SETUP.units):
        cols, at, mask = tile_of(u, place, sizes, 1, SETUP)
        saved, own = load_at(memory.gates, at, mask, SETUP), load_grad(memory, at, mask, SETUP)
        total = load_carried(memory, 0, cols, place, sizes, SETUP) + recur(memory, blocks, 0, 0, place, sizes, cols, SETUP)
        put(memory, PULL(total + own, saved, SETUP.slope), cols, 0, 0, 0, place, sizes, SETUP)
        hand_on(memory, tl.where(place.on, 0.0, total), 0, cols, cols < sizes.gate, place, sizes, SETUP)


@triton.jit
def modrelu_adjoint(memory, blocks, place, sizes, PULL: tl.constexpr, SETUP: tl.constexpr):
    r"""Run the adjoint of modReLU's pairs: radial parts are kept where active, the rest is scaled.

    The radial parts, the gradient of theta, are added up in the second carried vector.
    """
    narrow(memory, place, sizes, SETUP)
    for u in range(0, sizes.span, SETUP.units):
        cols, re_at, mask = tile_of(u, place, sizes, 2, SETUP)
        im_at, inside = re_at + sizes.gate, cols < sizes.gate
        re, im = load_at(memory.gates, re_at, mask, SETUP), load_at(memory.gates, im_at, mask, SETUP)
        re_total = load_carried(memory, 0, cols, place, sizes, SETUP) + recur(memory, blocks, 0, 0, place, sizes, cols, SETUP)
        im_total = load_carried(memory, 0, sizes.gate + cols, place, sizes, SETUP)
        im_total += recur(memory, blocks, 0, 1, place, sizes, cols, SETUP)
        p, q = re_total + load_grad(memory, re_at, mask, SETUP), im_total + load_grad(memory, im_at, mask, SETUP)
        shift = load_at(memory.theta, cols, inside, SETUP)
        radius, x, y, zero = polar(re, im)
        silent = zero | (radius + shift <= 0)
        radial, bend = p * x + q * y, shift / radius
        put(memory, tl.where(silent, 0.0, p + bend * (p - radial * x)), cols, 0, 0, 0, place, sizes, SETUP)
        put(memory, tl.where(silent, 0.0, q + bend * (q - radial * y)), cols, 1, 0, 1, place, sizes, SETUP)
        hand_on(memory, tl.where(place.on, 0.0, re_total), 0, cols, inside, place, sizes, SETUP)
        hand_on(memory, tl.where(place.on, 0.0, im_total), 0, sizes.gate + cols, inside, place, sizes, SETUP)
        summed = load_carried(memory, 1, cols, place, sizes, SETUP) + tl.where(silent | (place.on == 0), 0.0, radial)
        hand_on(memory, summed, 1, cols, inside, place, sizes, SETUP)


@triton.jit
def gru_after_adjoint(memory, blocks, place, sizes, PULL: tl.constexpr, SETUP: tl.constexpr):
    """Run the adjoint of the GRU with the reset gate behind the product; slots are that product, r, z, n."""
    for u in range(0, sizes.span, SETUP.units):
        cols, at, mask = tile_of(u, place, sizes, 3, SETUP)
        one = at_time(place.time, place, sizes, cols, 0, 1)
        r, z, n = three_gates(memory, at, mask, sizes, SETUP)
        p, h = load_at(memory.extra, one, mask, SETUP), before(memory.output, memory.start, place, sizes, cols, SETUP)
        own = load_grad(memory, one, mask, SETUP)
        total = load_carried(memory, 0, cols, place, sizes, SETUP)
        total += recur(memory, blocks, 0, 0, place, sizes, cols, SETUP)
        total += recur(memory, blocks, 1, 1, place, sizes, cols, SETUP)
        total += recur(memory, blocks, 2, 2, place, sizes, cols, SETUP)
        grad = total + own
        d_n = pull_tanh(grad * (1 - z), n, 0.0)
        put(memory, d_n * r, cols, 0, 2, 0, place, sizes, SETUP)
        put(memory, pull_sigmoid(d_n * p, r, 0.0), cols, 1, 0, 0, place, sizes, SETUP)
        put(memory, pull_sigmoid(grad * (h - n), z, 0.0), cols, 2, 1, 0, place, sizes, SETUP)
        d_n = tl.where(place.on, d_n, 0.0)
        slot = at_time(place.time, place, sizes, cols, 3, SETUP.adjoints)
        tl.store(memory.adjoint + slot, d_n, mask=place.real & (cols < sizes.gate))
        hand_on(memory, tl.where(place.on, grad * z, total), 0, cols, cols < sizes.gate, place, sizes, SETUP)


@triton.jit
def gru_before_adjoint(memory, blocks, place, sizes, PULL: tl.constexpr, SETUP: tl.constexpr):
    """Run the adjoint of the GRU with the reset gate before the product: the candidate's has to come first."""
    for u in range(0, sizes.span, SETUP.units):
        cols, at, mask = tile_of(u, place, sizes, 3, SETUP)
        one = at_time(place.time, place, sizes, cols, 0, 1)
        z = load_at(memory.gates, at + sizes.gate, mask, SETUP)
        n = load_at(memory.gates, at + 2 * sizes.gate, mask, SETUP)
        h, own = before(memory.output, memory.start, place, sizes, cols, SETUP), load_grad(memory, one, mask, SETUP)
        total = load_carried(memory, 0, cols, place, sizes, SETUP)
        total += recur(memory, blocks, 0, 0, place, sizes, cols, SETUP)
        total += recur(memory, blocks, 1, 1, place, sizes, cols, SETUP)
        grad = total + own
        put(memory, pull_tanh(grad * (1 - z), n, 0.0), cols, 2, 2, 0, place, sizes, SETUP)
        put(memory, pull_sigmoid(grad * (h - n), z, 0.0), cols, 1, 1, 0, place, sizes, SETUP)
        hand_on(memory, tl.where(place.on, grad * z, total), 1, cols, cols < sizes.gate, place, sizes, SETUP)
    tl.debug_barrier()
    there = 1 - place.side
    gated = memory.shared + vector(there, 2, SETUP.parts, sizes)
    weight = memory.weight + matrix(2, sizes.width, sizes)
    for u in range(0, sizes.span, SETUP.units):
        cols, at, mask = tile_of(u, place, sizes, 3, SETUP)
        r = load_at(memory.gates, at, mask, SETUP)
        h = before(memory.output, memory.start, place, sizes, cols, SETUP)
        units = place.rows * sizes.width + cols
        kept = load_at(memory.carry + vector(there, 1, SETUP.carried, sizes), units, cols < sizes.gate, SETUP)
        pulled = product(gated, weight, blocks[2], sizes.width, sizes.span, place, cols, SETUP.resident > 0, SETUP)
        put(memory, pull_sigmoid(pulled * h, r, 0.0), cols, 0, 0, 0, place, sizes, SETUP)
        hand_on(memory, kept + tl.where(place.on, pulled * r, 0.0), 0, cols, cols < sizes.gate, place, sizes, SETUP)


@triton.jit
def lstm_adjoint(memory, blocks, place, sizes, PULL: tl.constexpr, SETUP: tl.constexpr):
    """Run the adjoint of the LSTM; the cell's gradient is the second carried vector."""
    for u in range(0, sizes.span, SETUP.units):
        cols, at, mask = tile_of(u, place, sizes, 4, SETUP)
        one, inside = at_time(place.time, place, sizes, cols, 0, 1), cols < sizes.gate
        i, f, g = three_gates(memory, at, mask, sizes, SETUP)
        o = load_at(memory.gates, at + 3 * sizes.gate, mask, SETUP)
        y, old = (
            tanh(load_at(memory.extra, one, mask, SETUP), 0.0),
            before(memory.extra, memory.start, place, sizes, cols, SETUP),
        )
        own, cell = load_grad(memory, one, mask, SETUP), load_carried(memory, 1, cols, place, sizes, SETUP)
        total = load_carried(memory, 0, cols, place, sizes, SETUP)
        total += recur(memory, blocks, 0, 0, place, sizes, cols, SETUP)
        total += recur(memory, blocks, 1, 1, place, sizes, cols, SETUP)
        total += recur(memory, blocks, 2, 2, place, sizes, cols, SETUP)
        total += recur(memory, blocks, 3, 3, place, sizes, cols, SETUP)
        grad = total + own
        d_c = cell + pull_tanh(grad * o, y, 0.0)
        put(memory, pull_sigmoid(d_c * g, i, 0.0), cols, 0, 0, 0, place, sizes, SETUP)
        put(memory, pull_sigmoid(d_c * old, f, 0.0), cols, 1, 1, 0, place, sizes, SETUP)
        put(memory, pull_tanh(d_c * i, g, 0.0), cols, 2, 2, 0, place, sizes, SETUP)
        put(memory, pull_sigmoid(grad * y, o, 0.0), cols, 3, 3, 0, place, sizes, SETUP)
        hand_on(memory, tl.where(place.on, 0.0, total), 0, cols, inside, place, sizes, SETUP)
        hand_on(memory, tl.where(place.on, d_c * f, cell), 1, cols, inside, place, sizes, SETUP)
