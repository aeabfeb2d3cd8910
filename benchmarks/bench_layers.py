"""A training step of RNN, GRU and LSTM beside torch.nn's, time and peak memory: ``python benchmarks/bench_layers.py``."""

import argparse
import resource

import torch
from measure import pairs, peak_memory, save, show
from torch import Tensor, nn

import steadyrnn as sr

SHAPES = [(784, 128, 128), (300, 32, 512), (100, 64, 256), (200, 1, 64)]
FACTORED = [(100, 64, 1024, 16), (50, 64, 2048, 32)]
LONG = (10_000, 8, 64)


def torch_layer(kind: str, size: int) -> nn.RNNBase:
    """Return torch's layer with as many inputs as units."""
    layer: nn.RNNBase = getattr(nn, kind)(size, size)
    return layer


def our_layer(kind: str, size: int, transition: str, recompute: bool = False) -> nn.Module:
    """Return our layer; ``transition`` is "free", or the reflectors a side of a Spectral candidate weight."""
    constraint = "free" if transition == "free" else sr.Spectral(reflectors=int(transition), radius=0.01)
    layer: nn.Module = getattr(sr, kind)(size, size, transition=constraint, recompute=recompute)
    return layer


def step(layer: nn.Module, x: Tensor, last: bool = False) -> None:
    """Run one forward and backward, as training does: from every output, or from the last state only."""
    layer.zero_grad(set_to_none=True)
    output, state = layer(x)
    used = (state[0] if isinstance(state, tuple) else state) if last else output
    del output, state
    used.square().mean().backward()


def check(kind: str) -> None:
    """Refuse to measure a layer that does not compute what torch's does."""
    theirs = torch_layer(kind, 16)
    ours = sr.from_torch(theirs)
    x = torch.randn(20, 4, 16)
    step(ours, x)
    step(theirs, x)
    for name, p in theirs.named_parameters():
        torch.testing.assert_close(dict(ours.named_parameters())[name].grad, p.grad)


def measure(kind: str, shape: tuple[int, int, int], transition: str, repeats: int, memory: bool) -> dict[str, object]:
    """Return one row of the table."""
    steps, batch, size = shape
    x = torch.randn(steps, batch, size)
    ours, theirs = our_layer(kind, size, transition), torch_layer(kind, size)
    row: dict[str, object] = {"layer": kind, "T": steps, "B": batch, "n": size, "reflectors": transition}
    row |= pairs(lambda: step(ours, x), lambda: step(theirs, x), repeats)
    if memory:
        sizes = [str(number) for number in shape]
        row["ours_MiB"] = peak_memory(__file__, "ours", kind, transition, *sizes)
        row["theirs_MiB"] = peak_memory(__file__, "theirs", kind, transition, *sizes)
        ours_mib, theirs_mib = float(row["ours_MiB"]), float(row["theirs_MiB"])  # type: ignore[arg-type]
        row["memory_ratio"] = ours_mib / theirs_mib if theirs_mib > 1 else None  # below a page or two nothing can be said
    return row


def memory_of_step(whose: str, kind: str, transition: str, steps: str, batch: str, size: str) -> float:
    """Return the MiB that two training steps add to the peak of this process."""
    x, last = torch.randn(int(steps), int(batch), int(size)), whose.endswith("-last")
    if whose.startswith("theirs"):
        layer: nn.Module = torch_layer(kind, int(size))
    else:
        layer = our_layer(kind, int(size), transition, recompute=whose.startswith("recompute"))
    step(layer, torch.randn(2, 1, int(size)))  # libraries loaded, thread pools up
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(2):
        step(layer, x, last)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def long_row(kind: str) -> dict[str, object]:
    """Return the peak memory of a step over a long sequence: torch's, ours, ours with ``recompute=True``."""
    sizes = [str(number) for number in LONG]
    row: dict[str, object] = {"layer": kind, "T": LONG[0], "B": LONG[1], "n": LONG[2]}
    for whose in ("theirs", "ours", "recompute"):
        row[f"{whose}_MiB"] = peak_memory(__file__, f"{whose}-last", kind, "free", *sizes)
    return row


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1, help="torch's threads (2 on an idle machine of 2 cores)")
    parser.add_argument("--repeats", type=int, default=9, help="alternating pairs a row")
    parser.add_argument("--only", default="RNN,GRU,LSTM", help="layers to measure")
    parser.add_argument("--no-memory", action="store_true", help="leave peak memory out")
    parser.add_argument("--memory", nargs=6, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.memory:
        print(memory_of_step(*options.memory))
        return
    rows = []
    for kind in options.only.split(","):
        check(kind)
        for shape in SHAPES:
            for transition in ("free", "16"):
                rows.append(measure(kind, shape, transition, options.repeats, not options.no_memory))
        for steps, batch, size, reflectors in FACTORED:
            rows.append(measure(kind, (steps, batch, size), str(reflectors), options.repeats, not options.no_memory))
    show(rows)
    save(f"layers-{options.threads}-threads", rows)
    if not options.no_memory:
        long = [long_row(kind) for kind in options.only.split(",")]
        print("\npeak memory of a step over a long sequence, gradient from the last state")
        show(long)
        save("memory-long", long)


if __name__ == "__main__":
    main()
