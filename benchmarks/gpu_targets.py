"""What the layers are to reach on an H200, the floor no engine can go below, and a verdict on measured rows."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

Row = dict[str, Any]

PEAK = {"float32": 67e12, "bfloat16": 990e12}
"""Operations a second of the unit that multiplies numbers of a dtype, on an H200."""
BANDWIDTH = 4.8e12
"""Bytes a second to and from its memory."""
BYTES = {"float32": 4, "bfloat16": 2}
GATES = {"rnn": 1, "gru": 3, "lstm": 4}
RANK = 32  # of a Spectral weight with 16 + 16 reflectors

CUDNN_HAS, CUDNN_LACKS, GATED = ("rnn-relu", "rnn-tanh"), ("rnn-leaky_relu", "rnn-abs"), ("gru", "lstm")
BOTH, TRAINING = ("forward", "training"), ("training",)


class Target(NamedTuple):
    """A promise about the rows it names: the figure of each must be at most, or at least, ``limit``."""

    words: str
    figure: str  # of FIGURES
    limit: float
    kinds: tuple[str, ...]
    sizes: tuple[int, ...]
    batch: int
    dtype: str
    modes: tuple[str, ...] = TRAINING
    factored: bool = False


TARGETS = (
    Target("no slower than cuDNN: at most 1.1 of its time", "slower", 1.1, CUDNN_HAS, (64, 128), 128, "float32", BOTH),
    Target(
        "activations it lacks, beside its ReLU: at most 1.1", "like_relu", 1.1, CUDNN_LACKS, (64, 128), 128, "float32", BOTH
    ),
    Target("wide layers: 3 times as fast", "faster", 3.0, CUDNN_HAS, (512, 1024), 128, "float32"),
    Target("bfloat16: 5 times as fast", "faster", 5.0, CUDNN_HAS, (64, 128, 256, 512, 1024), 128, "bfloat16"),
    Target("large batch: 2 times as fast", "faster", 2.0, CUDNN_HAS, (128,), 1024, "float32"),
    Target("factored: 4 times as fast as dense", "faster", 4.0, ("rnn-relu",), (512, 1024), 128, "float32", TRAINING, True),
    Target("factored, bfloat16: 8 times as fast", "faster", 8.0, ("rnn-relu",), (512, 1024), 128, "bfloat16", TRAINING, True),
    Target("GRU and LSTM: 2 times as fast", "faster", 2.0, GATED, (256, 512), 128, "float32"),
)
"""Speeds."""
QUOTIENT = 2.0
"""Of every row: error by that of the reference loop in the same dtype, or by 16 units of rounding if that is more."""


def floor(kind: str, size: int, batch: int, dtype: str, inputs: int, factored: bool) -> dict[str, float]:
    """Return microseconds that a step takes at least: its operations at the peak, or its gates and outputs through memory.

    With gradients, the recurrent product is there three times and the input's twice, and memory is gone through twice.
    """
    gates = GATES[kind.partition("-")[0]]
    recurrent = 2 * batch * gates * size * (2 * RANK if factored else size)
    given = 2 * batch * gates * size * inputs
    moved = batch * (gates + 1) * size * BYTES[dtype]
    work = {"forward": (recurrent + given, moved), "training": (3 * recurrent + 2 * given, 2 * moved)}
    return {mode: 1e6 * max(flops / PEAK[dtype], memory / BANDWIDTH) for mode, (flops, memory) in work.items()}


def find(rows: Sequence[Row], kind: str, size: int, batch: int, dtype: str, factored: bool) -> Row | None:
    """Return the row of a size, if it was measured."""
    wanted = {"kind": kind, "n": size, "B": batch, "dtype": dtype, "factored": factored}
    return next((row for row in rows if all(row[name] == value for name, value in wanted.items())), None)


def time_of(row: Row | None, peer: str, mode: str) -> float:
    """Return the microseconds of a peer, NaN where there are none."""
    found = None if row is None else row["times"].get(peer, {}).get(mode)
    return math.nan if found is None else float(found)


def figures(target: Target, rows: Sequence[Row]) -> Iterator[tuple[str, float]]:
    """Yield the name and the figure of each row that a target speaks of; NaN where it was not measured."""
    for kind in target.kinds:
        for size in target.sizes:
            row = find(rows, kind, size, target.batch, target.dtype, target.factored)
            peer = "torch-relu" if target.figure == "like_relu" else "torch"
            for mode in target.modes:
                ours, theirs = time_of(row, "ours", mode), time_of(row, peer, mode)
                yield f"{kind} n={size} {mode}", theirs / ours if target.figure == "faster" else ours / theirs


def quotient(row: Row) -> float:
    """Return a row's error by what the reference loop's stands for; NaN where there is none."""
    error = row["errors"].get("ours")
    unit = {"float32": 2.0**-24, "bfloat16": 2.0**-8}[row["dtype"]]
    return math.nan if error is None else error / max(row["errors"]["reference"], 16 * unit)


def verdict(rows: Sequence[Row]) -> list[tuple[str, str, str]]:
    """Return, for each target, met, MISSED or not measured, its words, and its worst figure."""
    told = []
    for target in TARGETS:
        found = [(name, value) for name, value in figures(target, rows) if not math.isnan(value)]
        missing = sum(math.isnan(value) for _, value in figures(target, rows))
        told.append(_judged(target.words, found, target.limit, missing, target.figure == "faster"))
    errors = [(row["label"], quotient(row)) for row in rows]
    there = [(name, value) for name, value in errors if not math.isnan(value)]
    told.append(_judged(f"error at most {QUOTIENT} of the reference's", there, QUOTIENT, len(errors) - len(there), False))
    return told


def _judged(
    words: str, found: list[tuple[str, float]], limit: float, missing: int, larger: bool
) -> tuple[str, str, str]:  # fmt: skip
    if not found:
        return "not measured", words, ""
    name, worst = (min if larger else max)(found, key=lambda pair: pair[1])
    met = worst >= limit if larger else worst <= limit
    missed = [value for _, value in found if not (value >= limit if larger else value <= limit)]
    more = f"; {len(missed)} of {len(found)} miss it" if missed else ""
    lacking = f"; {missing} not measured" if missing else ""
    return "met" if met and not missing else "MISSED" if not met else "in part", words, f"{worst:.2f} ({name}){more}{lacking}"
