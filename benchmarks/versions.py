"""Two versions of the package in turn: ``python benchmarks/versions.py --before OLD/src``.

Each version runs in a process of its own and keeps its layers there. A row asks the two in turn for the time of a few calls,
and its ratio is the median of the ratios of neighbours, so that a machine that is slow for a while is slow for both. The rows
are those of ``bench_layers.py``, or with ``--device cuda`` those of ``gpu.py``. With the same folder twice the table shows how
far two equal versions are apart: the noise that a difference must exceed. Every row is written to the file of results as it
comes, and one that is there is not measured again. ``--again N`` measures the rows that are above ``ALLOWED`` again, in N more
pairs of processes: which of two equal processes is faster differs from pair to pair, and the ratio of a row is the median over
its pairs of processes.

``--clock device`` adds up the time of the kernels on the GPU instead, from torch's profiler: it repeats within 1 %, where the
time of a short call depends on the host. The time that a call needs on the host is not in it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from measure import RESULTS, save, show
from torch import Tensor, nn
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

CPU_SHAPES = [(784, 128, 128), (300, 32, 512), (100, 64, 256), (200, 1, 64), (10, 3, 8)]
CPU_FACTORED = [(100, 64, 1024, 16), (50, 64, 2048, 32)]
GPU_KINDS = ("RNN-relu", "RNN-tanh", "RNN-leaky_relu", "RNN-abs", "GRU", "LSTM")
ALLOWED = 1.03
"""A row above this ratio is measured again, and counts as slower if it stays there."""
MODES = ("forward", "training")


def rows(device: str) -> Iterator[dict[str, Any]]:
    """Yield what is measured: a layer, its shape, its dtype and its reflectors (0 for a free weight)."""
    if device == "cpu":
        for kind in ("RNN-tanh", "GRU", "LSTM"):
            for T, B, n in CPU_SHAPES:
                for reflectors in (0, min(n, 16)):
                    yield {"kind": kind, "T": T, "B": B, "n": n, "inputs": n, "dtype": "float32", "reflectors": reflectors}
            for T, B, n, reflectors in CPU_FACTORED:
                yield {"kind": kind, "T": T, "B": B, "n": n, "inputs": n, "dtype": "float32", "reflectors": reflectors}
        return
    for B in (128, 16, 1024):
        for n in (64, 128, 256, 512, 1024):
            for kind in GPU_KINDS:
                for dtype in ("float32", "bfloat16"):
                    yield {"kind": kind, "T": 784, "B": B, "n": n, "inputs": 64, "dtype": dtype, "reflectors": 0}
    for n in (256, 512, 1024):
        for dtype in ("float32", "bfloat16"):
            yield {"kind": "RNN-relu", "T": 784, "B": 128, "n": n, "inputs": 64, "dtype": dtype, "reflectors": 16}


def label(row: dict[str, Any]) -> str:
    """Return the name of a row."""
    form = f"/k{row['reflectors']}" if row["reflectors"] else ""
    return f"{row['kind']}/n{row['n']}/B{row['B']}/T{row['T']}/{row['dtype']}{form}"


class Case:
    """One row's layer, input and calls; it lives in the process of one version."""

    def __init__(self, device: str, row: dict[str, Any], clock: str) -> None:
        """Build the layer and the input, and make each call once."""
        import steadyrnn as sr

        self.measure = self.kernel_seconds if clock == "device" else self.seconds

        torch.manual_seed(0)
        kind, _, activation = row["kind"].partition("-")
        options = {"nonlinearity": activation} if activation else {}
        transition = sr.Spectral(reflectors=row["reflectors"], radius=0.01) if row["reflectors"] else "free"
        self.layer: nn.Module = getattr(sr, kind)(row["inputs"], row["n"], transition=transition, **options).to(device)
        self.dtype, self.cuda = getattr(torch, row["dtype"]), device == "cuda"
        self.cast = bool(row["reflectors"]) and row["dtype"] != "float32"  # a factored weight is held in float32
        if not self.cast:
            self.layer.to(self.dtype)
        self.x = torch.randn(row["T"], row["B"], row["inputs"], device=device).to(self.dtype)
        self.cotangent = torch.randn(row["T"], row["B"], row["n"], device=device).to(self.dtype)
        self.calls = {"forward": 1, "training": 1}
        if clock == "device":
            for mode in MODES:
                self.run(mode)
                self.calls[mode] = 5
            return
        for mode, target in zip(MODES, (0.02, 0.05), strict=True):
            self.seconds(mode)
            self.calls[mode] = max(1, min(200, int(target / self.seconds(mode))))
            self.seconds(mode)

    def context(self) -> AbstractContextManager[Any]:
        """Return autocast where the layer is held in another dtype."""
        return torch.autocast("cuda", dtype=self.dtype) if self.cast else nullcontext()

    def run(self, mode: str) -> None:
        """Make one call."""
        if mode == "forward":
            with torch.no_grad(), self.context():
                self.layer(self.x)
            return
        self.layer.zero_grad(set_to_none=True)
        with self.context():
            output: Tensor = self.layer(self.x)[0]
        output.backward(self.cotangent.to(output.dtype))

    def seconds(self, mode: str) -> float:
        """Return the time of one of some calls in a row."""
        if self.cuda:
            torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(self.calls[mode]):
            self.run(mode)
        if self.cuda:
            torch.cuda.synchronize()
        return (time.perf_counter() - begin) / self.calls[mode]

    def kernel_seconds(self, mode: str) -> float:
        """Return the time that the kernels of one call take on the GPU, a kernel's slowest runs left out."""
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
            for _ in range(self.calls[mode]):
                self.run(mode)
            torch.cuda.synchronize()
        times: dict[str, list[float]] = {}
        for event in found.events():
            if event.device_type == DeviceType.CUDA:
                times.setdefault(event.name, []).append(event.device_time_total)
        fast = {name: sorted(some)[: max(1, 3 * len(some) // 4)] for name, some in times.items()}
        return 1e-6 * sum(statistics.fmean(fast[name]) * len(some) for name, some in times.items()) / self.calls[mode]


def work(device: str, clock: str) -> None:
    """Serve one version: each line asks for a row (``{...}``) or for the time of a mode."""
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    case = None
    for line in sys.stdin:
        asked = json.loads(line)
        if isinstance(asked, dict):
            case = None
            torch.cuda.empty_cache()  # both versions hold a large row at once
            case = Case(device, asked, clock)
            print("0", flush=True)
        elif case is not None:
            print(case.measure(asked), flush=True)


class Version:
    """One version of the package in a process of its own."""

    def __init__(self, source: Path, device: str, clock: str) -> None:
        """Start the process; ``source`` is the folder that holds the package."""
        path = os.pathsep.join(filter(None, [str(source.resolve()), os.environ.get("PYTHONPATH", "")]))
        command = [sys.executable, __file__, "--serve", "--device", device, "--clock", clock]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
        )

    def ask(self, what: Any) -> float:
        """Send a row or a mode and return the answer."""
        if self.process.stdin is None or self.process.stdout is None:
            raise SystemExit("a version's process has no pipes")
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"a version ended at {what}")
        return float(answer)


def compile_kernels(sources: list[Path], wanted: list[dict[str, Any]], jobs: int) -> None:
    """Run every row once, short, in ``jobs`` processes per version, so that its kernels are compiled and kept on disk."""

    def serve(source: Path, part: int) -> None:
        version = Version(source, "cuda", "device")
        for row in wanted[part::jobs]:
            version.ask({**row, "T": 32})
        version.process.terminate()

    with ThreadPoolExecutor(jobs * len(sources)) as pool:
        for done in [pool.submit(serve, source, part) for source in sources for part in range(jobs)]:
            done.result()


def take_turns(before: Version, after: Version, mode: str, repeats: int) -> list[tuple[float, float]]:
    """Return pairs of times, old and new; each version goes first in every other pair."""
    times = []
    for number in range(repeats):
        first, second = (before, after) if number % 2 == 0 else (after, before)
        pair = (first.ask(mode), second.ask(mode))
        times.append(pair if first is before else pair[::-1])
    return times


def compare(before: Version, after: Version, row: dict[str, Any], repeats: int) -> dict[str, Any]:
    """Return the medians of both versions and the median ratio of this pair of processes, per mode."""
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda version: version.ask(row), (before, after)))
    found: dict[str, Any] = {"row": label(row)}
    for mode in MODES:
        times = take_turns(before, after, mode, repeats)
        if statistics.median(new / old for old, new in times) > ALLOWED:
            times += take_turns(before, after, mode, 3 * repeats)
        found[f"{mode}_before_ms"] = 1e3 * statistics.median(old for old, _ in times)
        found[f"{mode}_after_ms"] = 1e3 * statistics.median(new for _, new in times)
        found[f"{mode}_ratio"] = statistics.median(new / old for old, new in times)
        found[f"{mode}_ratios"] = [found[f"{mode}_ratio"]]
    return found


def pool_pairs(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Return a row with the ratios of its earlier pairs of processes and of one more."""
    both = dict(second)
    for mode in MODES:
        both[f"{mode}_ratios"] = first.get(f"{mode}_ratios", [first[f"{mode}_ratio"]]) + second[f"{mode}_ratios"]
        both[f"{mode}_ratio"] = statistics.median(both[f"{mode}_ratios"])
    return both


def slower(found: dict[str, dict[str, Any]]) -> list[str]:
    """Return the names of the rows that are above the allowed ratio."""
    return [name for name, row in found.items() if max(row[f"{mode}_ratio"] for mode in MODES) > ALLOWED]


def main() -> None:
    """Measure both versions in turn, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="folder that holds the old package, such as OLD/src")
    parser.add_argument("--after", type=Path, default=Path(__file__).parents[1] / "src", help="the new one; this checkout's")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--clock", default="host", choices=("host", "device"), help="whose time is measured")
    parser.add_argument("--only", default="", help="parts of the names of rows, divided by commas, * for anything")
    parser.add_argument("--repeats", type=int, default=11, help="pairs per row and mode")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no row after this time")
    parser.add_argument("--jobs", type=int, default=0, help="processes per version that compile kernels first (GPU)")
    parser.add_argument("--again", type=int, default=0, help="more pairs of processes for rows above the allowed ratio")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return work(options.device, options.clock)
    if options.before is None:
        parser.error("--before is needed")
    end = time.monotonic() + options.seconds
    sources = [options.before, options.after]
    stored = RESULTS / f"versions-{options.device}{'-kernels' if options.clock == 'device' else ''}.json"
    lines = json.loads(stored.read_text())["rows"] if stored.exists() else []
    found: dict[str, dict[str, Any]] = {line["row"]: line for line in lines}
    parts = [f"*{part}*" for part in options.only.split(",")]
    every = {label(row): row for row in rows(options.device) if any(fnmatchcase(label(row), part) for part in parts)}
    missing = [row for name, row in every.items() if name not in found]
    if options.jobs:
        compile_kernels(sources, missing, options.jobs)
        print(f"compiled after {time.monotonic() - end + options.seconds:.0f} s", file=sys.stderr, flush=True)
    for part in range(1 + options.again):
        wanted = missing if part == 0 else [every[name] for name in slower(found) if name in every]
        before, after = (Version(source, options.device, options.clock) for source in sources)
        for row in wanted:
            if time.monotonic() < end:
                line = compare(before, after, row, options.repeats)
                name = line["row"]
                found[name] = pool_pairs(found[name], line) if name in found else line
                print(f"{name:44} {line['forward_ratio']:.3f} {line['training_ratio']:.3f}", file=sys.stderr, flush=True)
                save(stored.stem, list(found.values()))
        for version in (before, after):
            version.process.terminate()
    show([{key: value for key, value in line.items() if not key.endswith("ratios")} for line in found.values()])
    print(f"{len(found)} rows; slower by more than {ALLOWED - 1:.0%}: {', '.join(slower(found)) or 'none'}")


if __name__ == "__main__":
    main()
