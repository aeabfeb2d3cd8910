"""One series over ranks: what a call costs with 1, 2 and 4 processes, and a model of many GPUs.

``python benchmarks/parallel_ranks.py`` measures on the CPU (gloo). ``--device cuda`` measures the constants of one GPU and of
NCCL with one rank. Both add to ``results/parallel-ranks.json``, and write anew what the model predicts from it.
"""

import json
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from measure import RESULTS, environment, options, show
from torch import Tensor, nn

import steadyrnn as sr
from steadyrnn.parallel.ranks import GroupRanks

FILE = RESULTS / "parallel-ranks.json"
GPU = RESULTS / "parallel-cuda-2-20.json"
SIZES, RATE, TOL = {"cpu": 32, "cuda": 128}, 0.9, 1e-6
STEPS = (2**12, 2**14, 2**16)
MODES = ("forward", "train")
SERIES, GPUS, LATENCIES = 10**9, (8, 16, 32, 64, 128, 256, 512), (20e-6, 50e-6, 200e-6)
"""What is predicted: steps of the series, GPUs, and seconds per exchange that are assumed."""
EXCHANGES = {"forward": 7, "train": 10}
"""Calls into torch.distributed of one layer that exchanges states once."""
ARRAYS = {"forward": 3, "train": 5}
"""Arrays as large as the outputs at least: inputs, their part of the pre-activations, outputs; two cotangents."""


class CountingRanks(GroupRanks):
    """The ranks of a group, which count what they wait for."""

    calls = 0

    def gather(self, row: Sequence[float]) -> list[list[float]]:
        """Count, and gather."""
        self.calls += 1
        return super().gather(row)

    def transfer(self, sent: Tensor | None, receiver: int, like: Tensor | None, sender: int) -> Tensor | None:
        """Count, and send."""
        self.calls += 1
        return super().transfer(sent, receiver, like, sender)

    def share(self, tensor: Tensor, source: int) -> Tensor:
        """Count, and broadcast."""
        self.calls += 1
        return super().share(tensor, source)

    def add(self, tensor: Tensor) -> Tensor:
        """Count, and add."""
        self.calls += 1
        return super().add(tensor)


def stable(device: str) -> nn.RNN:
    """Return torch's layer with a Gaussian recurrent weight of spectral norm ``RATE``, the same on all ranks."""
    torch.manual_seed(0)
    size = SIZES[device]
    layer = nn.RNN(size, size)
    with torch.no_grad():
        w = torch.randn(size, size, dtype=torch.float64)
        layer.get_parameter("weight_hh_l0").copy_(w * (RATE * (1 - 1e-6) / torch.linalg.matrix_norm(w, 2)))
    return layer.to(device)


def step(fast: nn.Module, x: Tensor, mode: str) -> None:
    """Run once."""
    if mode == "forward":
        with torch.no_grad():
            fast(x)
        return
    fast.zero_grad(set_to_none=True)
    fast(x)[0].square().mean().backward()


def timed(run: Callable[[], object], repeats: int, clock: Callable[[], float], device: str) -> float:
    """Return the least time of a call in seconds, after one that does not count: others use the machine, too."""
    times = []
    for place in range(repeats + 1):
        if dist.is_initialized():
            dist.barrier()
        wait(device)
        start = clock()
        run()
        wait(device)
        times += [clock() - start] if place else []
    return min(times)


def wait(device: str) -> None:
    """Wait for the device."""
    if device == "cuda":
        torch.cuda.synchronize()


def work(rank: int, size: int, repeats: int, folder: str) -> None:
    """Measure as one of several processes."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store{size}", size), rank=rank, world_size=size)
    rows = []
    for mode in MODES:
        for steps in STEPS:
            fast = sr.to_parallel(stable("cpu"), TOL, group=True)
            counted = CountingRanks(None)
            if size > 1:
                fast._ranks = counted
            x = torch.randn(steps, 1, SIZES["cpu"], generator=torch.Generator().manual_seed(rank))
            run = partial(step, fast, x, mode)
            wall, own = (timed(run, repeats, clock, "cpu") for clock in (time.perf_counter, time.process_time))
            counted.calls = 0
            run()
            sent = fast.report.to_dict()["exchanged"] or {"states": 0, "adjoints": 0, "scalars": 0}
            row = {"ranks": size, "mode": mode, "steps_per_rank": steps, "wall_ms": 1e3 * wall, "own_ms": 1e3 * own}
            layer = fast.report.layers[0]
            row |= {"calls": counted.calls, "repeated": layer.repeated, "exchanges": layer.exchanges, "windows": layer.windows}
            rows.append(row | {"truncation": fast.report.truncation, **sent})
    latency = latencies(GroupRanks(None), "cpu", repeats) if size > 1 else {}
    Path(folder, f"{size}-{rank}.json").write_text(json.dumps({"rows": rows, "latency": latency}))
    dist.destroy_process_group()


def latencies(ranks: GroupRanks, device: str, repeats: int) -> dict[str, float]:
    """Return the seconds of each kind of exchange."""
    ranks.prepare(torch.device(device))
    state, ring = torch.zeros(1, 1, SIZES[device], device=device), (ranks.rank + 1) % ranks.size
    kinds: dict[str, Callable[[], object]] = {
        "gather": lambda: ranks.gather([0.0] * 8), "share": lambda: ranks.share(state, 0), "add": lambda: ranks.add(state),
    }  # fmt: skip
    if ranks.size > 1:
        kinds["transfer"] = lambda: ranks.transfer(state, ring, state, (ranks.rank - 1) % ranks.size)
    return {name: timed(partial(many, run), repeats, time.perf_counter, device) / 50 for name, run in kinds.items()}


def many(run: Callable[[], object]) -> None:
    """Run fifty times, so that the clock is fine enough."""
    for _ in range(50):
        run()


def on_cpu(repeats: int) -> dict[str, Any]:
    """Measure 1, 2 and 4 processes; of each row the slowest rank's wall time and the largest processor time."""
    context, latency = multiprocessing.get_context("spawn"), dict[str, Any]()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for size in (1, 2, 4):
            workers = [context.Process(target=work, args=(rank, size, repeats, folder)) for rank in range(size)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            found = [json.loads(Path(folder, f"{size}-{rank}.json").read_text()) for rank in range(size)]
            latency |= {str(size): found[0]["latency"]} if size > 1 else {}
            for same in zip(*(one["rows"] for one in found), strict=True):
                most = {name: max(row[name] for row in same) for name in same[0] if name != "mode"}
                rows.append(same[0] | most)
    return {"environment": environment(), "size": SIZES["cpu"], "rate": RATE, "tol": TOL, "rows": rows, "latency_s": latency}


def on_gpu(repeats: int) -> dict[str, Any]:
    """Measure one GPU: windows of growing length, a step of the run that repeats, and NCCL with one rank."""
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("nccl", store=dist.FileStore(f"{folder}/store", 1), rank=0, world_size=1)
        torch.cuda.set_device(0)
        fast, rows = sr.to_parallel(stable("cuda"), TOL, group=True), []
        for power in (18, 20, 22, 24):
            x = torch.randn(2**power, 1, SIZES["cuda"], device="cuda")
            for mode in MODES:
                torch.cuda.reset_peak_memory_stats()
                seconds = timed(partial(step, fast, x, mode), repeats, time.perf_counter, "cuda")
                peak = torch.cuda.max_memory_allocated()
                rows.append({"steps": 2**power, "mode": mode, "ms": 1e3 * seconds, "peak_bytes_per_step": peak / 2**power})
                fast.zero_grad(set_to_none=True)
        layer = sr.from_torch(stable("cuda"))
        x = torch.randn(1024, 1, SIZES["cuda"], device="cuda")
        single = {mode: timed(partial(step, layer, x, mode), repeats, time.perf_counter, "cuda") / 1024 for mode in MODES}
        latency = latencies(GroupRanks(None), "cuda", repeats)
        dist.destroy_process_group()
    return {"environment": environment(), "size": SIZES["cuda"], "rows": rows, "step_s": single, "nccl_one_rank_s": latency}


def fit(rows: list[dict[str, Any]], mode: str, group: bool) -> dict[str, float]:
    """Fit processor time = fixed + per_step * T / P, of one process alone or of all in groups, by relative least squares."""
    chosen = [row for row in rows if row["mode"] == mode and (row["ranks"] > 1) == group]
    time_ms = np.array([row["own_ms"] for row in chosen])
    columns = np.array([[1.0, row["steps_per_rank"]] for row in chosen])
    (fixed, per_step), *_ = np.linalg.lstsq(columns / time_ms[:, None], np.ones(len(chosen)), rcond=None)
    misses = np.abs(columns @ [fixed, per_step] / time_ms - 1)
    return {"fixed_s": fixed / 1e3, "per_step_s": per_step / 1e3, "worst_relative_miss": float(misses.max())}


def predict(gpu: dict[str, Any] | None) -> dict[str, Any]:
    """Predict a series of ``SERIES`` steps on many GPUs from the constants of one, and latencies that are assumed."""
    known = {row["mode"]: row for row in json.loads(GPU.read_text())["rows"]}
    rows = []
    for mode in MODES:
        one, exchanges = known[mode], EXCHANGES[mode]
        per_step, repeat = one["parallel_ms"] / one["T"] / 1e3, one["warmup"] * one["layer_ms"] / one["T"] / 1e3
        if gpu is not None:
            repeat = one["warmup"] * gpu["step_s"][mode]
        for gpus in GPUS:
            row = {"mode": mode, "gpus": gpus, "steps_per_gpu": SERIES / gpus, "windows_s": per_step * SERIES / gpus}
            row |= {"repeat_s": repeat, "exchanges": exchanges}
            row["total_s"] = {f"{1e6 * latency:.0f}": row["windows_s"] + repeat + exchanges * latency for latency in LATENCIES}
            row["least_memory_gib"] = 4 * SIZES["cuda"] * ARRAYS[mode] * SERIES / gpus / 2**30
            rows.append(row)
    return {"series": SERIES, "size": SIZES["cuda"], "latencies_us": [1e6 * one for one in LATENCIES], "rows": rows}


def main() -> None:
    """Measure, fit, predict, and write."""
    parser = options(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--output", type=Path, default=FILE)
    wish = parser.parse_args()
    found: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
    found[wish.device] = (on_gpu if wish.device == "cuda" else on_cpu)(wish.repeats)
    if "cpu" in found:
        found["model"] = {
            mode: {name: fit(found["cpu"]["rows"], mode, name == "group") for name in ("alone", "group")} for mode in MODES
        }
    found["prediction"] = predict(found.get("cuda"))
    show(found[wish.device]["rows"])
    wish.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
