"""Time from ``import torch`` to a first layer class, one process per measurement: ``python benchmarks/bench_import.py``."""

import os
import statistics
import subprocess
import sys
import tempfile
import time

from measure import options, save, show

PLAIN = "import torch"
CASES = {
    "import steadyrnn; steadyrnn.RNN": "import steadyrnn; steadyrnn.RNN",
    "a first layer": "import steadyrnn; steadyrnn.RNN(3, 4)(torch.randn(5, 2, 3))",
    "steadyrnn.certify": "import steadyrnn; steadyrnn.certify",
}
HEAVY = ("torch._dynamo", "torch._inductor", "torch.onnx")


def process_seconds(code: str, surroundings: dict[str, str]) -> float:
    """Return how long a fresh process takes to run ``code``."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, env=surroundings)
    return time.perf_counter() - start


def inside_seconds(code: str, surroundings: dict[str, str]) -> tuple[float, list[str]]:
    """Return how long ``code`` takes after ``import torch`` with the garbage collector off, and which heavy modules it loads.

    A collection over all of torch's objects takes longer than the import itself, and may start anywhere.
    """
    program = (
        f"import gc, sys, time, torch; gc.disable(); start = time.perf_counter()\n{code}\n"
        f"print(time.perf_counter() - start, *[name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, env=surroundings, capture_output=True, text=True)
    seconds, *heavy = done.stdout.split()
    return float(seconds), heavy


def row(name: str, code: str, repeats: int, surroundings: dict[str, str]) -> dict[str, object]:
    """Return one row of the table; processes with and without our import take turns."""
    both = f"{PLAIN}; {code}"
    for warm in (PLAIN, both):  # byte code is written
        process_seconds(warm, surroundings)
    times = [(process_seconds(both, surroundings), process_seconds(PLAIN, surroundings)) for _ in range(repeats)]
    inside = [inside_seconds(code, surroundings) for _ in range(repeats)]
    return {
        "what": name,
        "torch_ms": 1e3 * statistics.median(alone for _, alone in times),
        "more_ms": 1e3 * statistics.median(with_ours - alone for with_ours, alone in times),
        "ratio": statistics.median(with_ours / alone for with_ours, alone in times),
        "uncollected_ms": 1e3 * statistics.median(seconds for seconds, _ in inside),
        "heavy": " ".join(sorted({name for _, heavy in inside for name in heavy})),
    }


def main() -> None:
    """Measure and print."""
    chosen = options(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        surroundings = {**kept, "PYTHONPYCACHEPREFIX": folder, "OMP_NUM_THREADS": str(chosen.threads)}
        rows = [row(name, code, chosen.repeats, surroundings) for name, code in CASES.items()]
    show(rows)
    save("import", rows)


if __name__ == "__main__":
    main()
