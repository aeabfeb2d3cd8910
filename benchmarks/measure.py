"""What the benchmarks share: alternating pairs, peak memory in a process of its own, a table, a JSON file."""

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"


def options(description: str | None) -> argparse.ArgumentParser:
    """Return the options of every benchmark."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--threads", type=int, default=1, help="torch's threads (2 on an idle machine of 2 cores)")
    parser.add_argument("--repeats", type=int, default=9, help="alternating pairs per row")
    return parser


def pairs(
    ours: Callable[[], Any], theirs: Callable[[], Any], repeats: int = 9, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Time two functions in turn, after one warm-up each; return medians in milliseconds and the median ratio.

    The machine's speed drifts; the ratio of two runs that follow each other does not. A function that takes less than 50
    ms is called as often as fills them. On a machine that others use, ``time.process_time`` is a clock that does not count
    them.
    """
    ours(), theirs()
    start = time.perf_counter()
    theirs()
    calls = max(1, int(0.05 / (time.perf_counter() - start)))
    times: list[tuple[float, float]] = []
    for _ in range(repeats):
        start = clock()
        for _ in range(calls):
            ours()
        middle = clock()
        for _ in range(calls):
            theirs()
        times.append(((middle - start) / calls, (clock() - middle) / calls))
    ratios = sorted(a / b for a, b in times)
    return {
        "ours_ms": 1e3 * statistics.median(a for a, _ in times),
        "theirs_ms": 1e3 * statistics.median(b for _, b in times),
        "ratio": statistics.median(ratios),
        "ratio_low": ratios[len(ratios) // 4],
        "ratio_high": ratios[-1 - len(ratios) // 4],
    }


def reset_peak() -> float:
    """Forget this process's peak memory and return what it holds now, in MiB."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


def peak() -> float:
    """Return this process's peak memory in MiB (of this program alone: ``ru_maxrss`` would begin at its parent's)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def environment() -> dict[str, Any]:
    """Return what the figures depend on besides the code."""
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), ""
    )
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "processor": model,
        **({"device": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}),
    }


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Print rows as a table."""
    names = list(rows[0])
    cells = [[f"{row[n]:.3g}" if isinstance(row[n], float) else str(row[n]) for n in names] for row in rows]
    widths = [max(len(n), *(len(line[i]) for line in cells)) for i, n in enumerate(names)]
    for line in [names, *cells]:
        print("  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)))


def save(name: str, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows to ``results/name.json`` with the command and the environment."""
    RESULTS.mkdir(exist_ok=True)
    command = "python benchmarks/" + " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
    content = {"command": command, "environment": environment(), "rows": list(rows)}
    (RESULTS / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")
