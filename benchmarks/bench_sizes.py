"""Steps of a series per second, and memory, by width and length: ``python benchmarks/bench_sizes.py [--device cuda]``.

Taken are a training step (forward, gradient of the last state, Adam) and an evaluation, on a CPU each figure in a process of
its own. The layer has 16 + 16 reflectors for RNN and GRU, and is free for the LSTM. On a CPU, time is that of the processor,
which does not count what else the machine is doing.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from bench_layers import our_layer
from measure import options, peak, reset_peak, save, show

KINDS = {"RNN": "16", "GRU": "16", "LSTM": "free"}
WIDTHS = (64, 256, 1024)
LENGTHS = (100, 1_000, 10_000)
STEPS = {"cpu": 20_000, "cuda": 200_000}
"""Length times rows, by device."""


def measure(device: str, kind: str, width: int, length: int, rows: int, recompute: bool) -> tuple[float, float, float]:
    """Return the seconds of a training step and of an evaluation, and the MiB that training adds."""
    layer = our_layer(kind, width, KINDS[kind], recompute=recompute).to(device)
    optimizer = torch.optim.Adam(layer.parameters(), lr=1e-3)

    def train(x: torch.Tensor) -> None:
        optimizer.zero_grad(set_to_none=True)
        output, state = layer(x)
        used = state[0] if isinstance(state, tuple) else state
        del output, state
        used.square().mean().backward()
        optimizer.step()

    def evaluate(x: torch.Tensor) -> None:
        with torch.no_grad():
            layer(x)

    train(torch.randn(3, 2, width, device=device))
    x = torch.randn(length, rows, width, device=device)
    before = reset_memory(device)
    train(x)
    memory = read_memory(device) - before
    return clock(device, lambda: train(x)), clock(device, lambda: evaluate(x)), memory


def clock(device: str, run: Callable[[], None], repeats: int = 3) -> float:
    """Return the shortest time of some runs."""
    times = []
    for _ in range(repeats):
        start = read_clock(device)
        run()
        times.append(read_clock(device) - start)
    return min(times)


def read_clock(device: str) -> float:
    """Return the processor's time, or with a GPU the time once that is done."""
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def reset_memory(device: str) -> float:
    """Forget the peak of memory; return what is held, in MiB."""
    if device == "cpu":
        return reset_peak()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated() / 2**20


def read_memory(device: str) -> float:
    """Return the peak of memory, in MiB."""
    return peak() if device == "cpu" else torch.cuda.max_memory_allocated() / 2**20


def in_process(device: str, kind: str, *numbers: int) -> tuple[float, float, float]:
    """Measure in a fresh process."""
    command = [sys.executable, __file__, "--measure", device, kind, *(str(int(number)) for number in numbers)]
    surroundings = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=surroundings)
    train, evaluate, memory = (float(word) for word in done.stdout.split()[-3:])
    return train, evaluate, memory


def row(device: str, kind: str, width: int, length: int, recompute: bool = False) -> dict[str, object]:
    """Return a row of the table."""
    rows = max(1, STEPS[device] // length)
    take = measure if device == "cuda" else in_process  # memory of a GPU is counted by torch
    train, evaluate, memory = take(device, kind, width, length, rows, recompute)
    steps = length * rows
    return {
        "layer": kind + (", recompute" if recompute else ""),
        **{"n": width, "T": length, "B": rows},
        **{"training_per_s": steps / train, "evaluation_per_s": steps / evaluate, "MiB": memory},
    }


def main() -> None:
    """Measure and print."""
    parser = options(__doc__)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--measure", nargs=6, help="one figure in this process: device layer n T B recompute")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    if chosen.measure:
        device, kind, *numbers = chosen.measure
        width, length, rows, recompute = map(int, numbers)
        print(*measure(device, kind, width, length, rows, bool(recompute)))
        return
    found = [row(chosen.device, kind, width, length) for kind in KINDS for width in WIDTHS for length in LENGTHS]
    found += [row(chosen.device, kind, width, LENGTHS[-1], recompute=True) for kind in KINDS for width in WIDTHS[:2]]
    show(found)
    save(f"sizes-{chosen.device}", found)


if __name__ == "__main__":
    main()
