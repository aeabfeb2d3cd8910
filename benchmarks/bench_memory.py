"""Peak memory of a training step beside torch.nn's, one process per measurement: ``python benchmarks/bench_memory.py``."""

import os
import subprocess
import sys

import torch
from bench_layers import FACTORED, SHAPES, our_layer, step, torch_layer
from measure import options, peak, reset_peak, save, show

LONG = (10_000, 8, 64)


def memory_of_step(whose: str, kind: str, transition: str, steps: str, batch: str, size: str) -> float:
    """Return the MiB that two training steps add to the peak of this process."""
    x, last = torch.randn(int(steps), int(batch), int(size)), whose.endswith("-last")
    if whose.startswith("theirs"):
        layer: torch.nn.Module = torch_layer(kind, int(size))
    else:
        layer = our_layer(kind, int(size), transition, recompute=whose.startswith("recompute"))
    step(layer, torch.randn(2, 1, int(size)))  # libraries loaded, thread pools up
    before = reset_peak()
    for _ in range(2):
        step(layer, x, last)
    return peak() - before


def in_process(*arguments: str) -> float:
    """Run :func:`memory_of_step` in a fresh process."""
    command = [sys.executable, __file__, "--measure", *arguments]
    # large blocks from the system and back to it, so that the peak is what is in use, not what malloc has kept
    surroundings = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=surroundings)
    return float(done.stdout.split()[-1])


def row(kind: str, shape: tuple[int, int, int], transition: str) -> dict[str, object]:
    """Return one row of the table: a loss on every output."""
    sizes = [str(number) for number in shape]
    ours, theirs = (in_process(whose, kind, transition, *sizes) for whose in ("ours", "theirs"))
    ratio = ours / theirs if theirs > 1 else None  # a few pages are noise
    result: dict[str, object] = {"layer": kind, "T": shape[0], "B": shape[1], "n": shape[2], "reflectors": transition}
    return result | {"ours_MiB": ours, "theirs_MiB": theirs, "ratio": ratio}


def long_row(kind: str) -> dict[str, object]:
    """Return a row for a long sequence, loss on the last state: torch's, ours, ours with ``recompute=True``."""
    sizes = [str(number) for number in LONG]
    result: dict[str, object] = {"layer": kind, "T": LONG[0], "B": LONG[1], "n": LONG[2]}
    for whose in ("theirs", "ours", "recompute"):
        result[f"{whose}_MiB"] = in_process(f"{whose}-last", kind, "free", *sizes)
    return result


def main() -> None:
    """Measure and print."""
    parser = options(__doc__)
    parser.add_argument("--measure", nargs=6, help="one figure in this process: whose layer reflectors T B n")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    if chosen.measure:
        print(memory_of_step(*chosen.measure))
        return
    kinds = ("RNN", "GRU", "LSTM")
    shapes = [(shape, "free") for shape in SHAPES] + [((t, b, n), str(m)) for t, b, n, m in FACTORED]
    rows = [row(kind, shape, transition) for kind in kinds for shape, transition in shapes]
    show(rows)
    save("memory", rows)
    print("\na long sequence, gradient from the last state")
    long = [long_row(kind) for kind in kinds]
    show(long)
    save("memory-long", long)


if __name__ == "__main__":
    main()
