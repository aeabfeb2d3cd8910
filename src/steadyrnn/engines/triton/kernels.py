"""The loop over time, for every cell and both directions: one program runs a tile of rows from start to end."""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import triton
import triton.language as tl

from .adjoints import gru_after_adjoint, gru_before_adjoint, lstm_adjoint, modrelu_adjoint, rnn_adjoint
from .pointwise import (
    absolute,
    identity,
    leaky_relu,
    pull_absolute,
    pull_identity,
    pull_leaky_relu,
    pull_relu,
    pull_sigmoid,
    pull_tanh,
    relu,
    sigmoid,
    tanh,
)
from .steps import gru_after_step, gru_before_step, lstm_step, modrelu_step, rnn_step
from .tiles import Memory, Place, Setup, Sizes, stay

__all__ = ["FUNCTIONS", "Memory", "Setup", "Sizes", "loop"]

FUNCTIONS = {
    "absolute": (absolute, pull_absolute),
    "identity": (identity, pull_identity),
    "leaky_relu": (leaky_relu, pull_leaky_relu),
    "relu": (relu, pull_relu),
    "sigmoid": (sigmoid, pull_sigmoid),
    "tanh": (tanh, pull_tanh),
    "rnn": (rnn_step, rnn_adjoint),
    "modrelu": (modrelu_step, modrelu_adjoint),
    "gru_after": (gru_after_step, gru_after_adjoint),
    "gru_before": (gru_before_step, gru_before_adjoint),
    "lstm": (lstm_step, lstm_adjoint),
}
"""Activations and steps by name, each with its adjoint."""


@triton.jit
def loop(memory, sizes, STEP: tl.constexpr, VALUE: tl.constexpr, SETUP: tl.constexpr):
    """Run ``STEP`` at every time on a tile of rows.

    ``SETUP.reverse`` says in which order the *forward* run goes; an adjoint is a loop the other way, and says so by
    having a gradient to write (``memory.adjoint``). One barrier per step is all that orders the units of a row: each step
    reads one half of the double buffers and writes the other.
    """
    # offsets reach beyond 2^31
    sizes = Sizes(
        sizes.steps,
        tl.cast(sizes.batch, tl.int64),
        tl.cast(sizes.rows, tl.int64),
        sizes.width,
        sizes.gate,
        sizes.span,
        sizes.rank,
    )
    back: tl.constexpr = memory.adjoint is not None
    downwards: tl.constexpr = SETUP.reverse != back
    rows = tl.program_id(0).to(tl.int64) * SETUP.rows + tl.arange(0, SETUP.rows)[:, None]
    real = rows < sizes.batch
    lengths = tl.load(memory.lengths + rows, mask=real, other=0) if SETUP.ragged else tl.where(real, sizes.steps, 0)
    blocks = (
        stay(memory, 0, SETUP),
        stay(memory, 1, SETUP),
        stay(memory, 2, SETUP),
        stay(memory, 3, SETUP),
    )
    for step in range(sizes.steps):
        time = sizes.steps - 1 - step if downwards else step
        if SETUP.reverse:
            earlier, first = time + 1, lengths == time + 1
        else:
            earlier, first = time - 1, (lengths > 0) & (time == 0)
        place = Place(rows, real, time < lengths, first, time, earlier, step % 2)
        STEP(memory, blocks, place, sizes, VALUE, SETUP)
        tl.debug_barrier()
