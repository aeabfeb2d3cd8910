"""A stable layer in windows of time beside its sequential run and torch.nn.RNN's: ``python benchmarks/parallel.py``.

``--device cuda`` for a GPU; ``--only-T 1000,100000 --rates 0.9 --sizes 128 --batches 1 --modes forward`` keep a run short.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from measure import options, save, show
from torch import Tensor, nn

import steadyrnn as sr

TOL = 1e-6
PIECE = 2**15  # cuDNN refuses longer ones, of some widths from 2^16 on
LONG = 5.0  # seconds from which a run is measured once
WARM = 0.2  # seconds


def stable(size: int, rate: float, device: str) -> nn.RNN:
    """Return torch's layer with a Gaussian recurrent weight of spectral norm ``rate``."""
    layer = nn.RNN(size, size)
    with torch.no_grad():
        w = torch.randn(size, size, dtype=torch.float64)
        layer.get_parameter("weight_hh_l0").copy_(w * (rate * (1 - 1e-6) / torch.linalg.matrix_norm(w, 2)))
    return layer.to(device)


def in_pieces(layer: nn.Module, x: Tensor) -> Tensor:
    """Return torch's outputs, in pieces that cuDNN supports."""
    if x.device.type == "cpu" or len(x) <= PIECE:
        output: Tensor = layer(x)[0]
        return output
    outputs, state = [], None
    for piece in x.split(PIECE):
        output, state = layer(piece, state)
        outputs.append(output)
    return torch.cat(outputs)


def forward(run: Callable[[Tensor], Tensor], layer: nn.Module, x: Tensor) -> None:
    """Run without gradients."""
    with torch.no_grad():
        run(x)


def train(run: Callable[[Tensor], Tensor], layer: nn.Module, x: Tensor) -> None:
    """Run forward and backward."""
    layer.zero_grad(set_to_none=True)
    run(x).square().mean().backward()


def wait(x: Tensor) -> None:
    """Wait for the device."""
    if x.device.type == "cuda":
        torch.cuda.synchronize()


def seconds(call: Callable[[], Any], x: Tensor) -> float:
    """Return the time of a call."""
    wait(x)
    start = time.perf_counter()
    call()
    wait(x)
    return time.perf_counter() - start


def median(call: Callable[[], Any], x: Tensor, repeats: int) -> float:
    """Return the median time of a call in milliseconds after a warm-up; a long call is timed once.

    The first calls of a program take longer than others do, which shows where a call takes milliseconds.
    """
    spent = first = seconds(call, x)
    if first > LONG:
        return 1e3 * first
    while spent < WARM:
        spent += seconds(call, x)
    return 1e3 * statistics.median(seconds(call, x) for _ in range(repeats))


@torch.no_grad()
def check(device: str) -> None:
    """Refuse to measure what does not keep its promise."""
    layer = sr.from_torch(stable(32, 0.9, device))
    fast = sr.to_parallel(layer, TOL, chunk=100)
    x = torch.randn(2000, 2, 32, device=device)
    gap = float((fast(x)[0] - layer(x)[0]).norm(dim=-1).max())
    if not gap <= fast.report.truncation + fast.report.rounding or fast.report.windows < 2:
        raise SystemExit(f"broken promise: {gap}, {fast.report}")


_KNOWN: dict[tuple[Any, ...], float] = {}
"""Times of sequential runs, which do not depend on the rate."""


def measure(case: tuple[int, int, int, float], mode: str, device: str, repeats: int, sequential: bool) -> dict[str, Any]:
    """Return one row of the table."""
    steps, batch, size, rate = case
    torch.manual_seed(0)
    theirs = stable(size, rate, device)
    ours = sr.from_torch(theirs)
    fast = sr.to_parallel(ours, TOL)
    x = torch.randn(steps, batch, size, device=device)
    step = {"forward": forward, "train": train}[mode]
    row: dict[str, Any] = {"T": steps, "B": batch, "n": size, "rate": rate, "mode": mode}
    row["parallel_ms"] = median(lambda: step(lambda d: fast(d)[0], ours, x), x, repeats)
    report = fast.report
    for name, run, layer in (("layer", lambda d: ours(d)[0], ours), ("torch", lambda d: in_pieces(theirs, d), theirs)):
        key = (name, *case[:3], mode)
        if key not in _KNOWN:
            _KNOWN[key] = median(lambda: step(run, layer, x), x, repeats) if sequential else float("nan")  # noqa: B023
        row[f"{name}_ms"] = _KNOWN[key]
        row[f"{name}_over_parallel"] = row[f"{name}_ms"] / row["parallel_ms"]
    with torch.no_grad():
        gap = float((fast(x)[0] - ours(x)[0]).norm(dim=-1).max()) if sequential else float("nan")
    row |= {name: getattr(report, name) for name in ("warmup", "chunk", "windows", "sweeps", "depth", "truncation", "rounding")}
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    return row | {"gap": gap, "engine": report.layers[0].engine, "device": name}


def numbers(text: str) -> list[float]:
    """Return comma-separated numbers."""
    return [float(number) for number in text.split(",")]


def main() -> None:
    """Measure and print."""
    parser = options(__doc__)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--only-T", dest="steps", default="1e3,1e4,1e5,1e6", help="lengths to measure")
    parser.add_argument("--rates", default="0.5,0.9,0.99", help="contraction rates")
    parser.add_argument("--sizes", default="64,128", help="units, and as many inputs")
    parser.add_argument("--batches", default="1,8", help="rows")
    parser.add_argument("--modes", default="forward,train")
    parser.add_argument("--most", type=float, default=0, help="leave out inputs of more numbers than this")
    parser.add_argument("--no-sequential", action="store_true", help="measure the windows only")
    parser.add_argument("--name", default="", help="of the file of results")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    check(chosen.device)
    most = chosen.most or (2**27 if chosen.device == "cpu" else 2**31)
    rows = []
    for steps in map(int, numbers(chosen.steps)):
        for batch in map(int, numbers(chosen.batches)):
            for size in map(int, numbers(chosen.sizes)):
                for rate in numbers(chosen.rates):
                    if steps * batch * size > most:
                        continue
                    for mode in chosen.modes.split(","):
                        case = (steps, batch, size, rate)
                        try:
                            rows.append(measure(case, mode, chosen.device, chosen.repeats, not chosen.no_sequential))
                        except torch.OutOfMemoryError:
                            print(f"out of memory, left out: {case} {mode}")
                            torch.cuda.empty_cache()
        save(chosen.name or f"parallel-{chosen.device}", rows)  # what there is, should a longer one fail
    show(rows)


if __name__ == "__main__":
    main()
