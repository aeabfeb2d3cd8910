"""Two and four processes over gloo beside one: ``python benchmarks/ranks.py``; loss curves, and what a killed rank leaves.

Every kind of constraint in an Elman network, GRU and LSTM, each trained for 200 steps in float64. The tolerance is the growth
of rounding in the same run: the largest difference of the loss curves of the run in one process and of the same run in 2, 4
and 8 parts (`accumulate`), which add the same numbers in other orders. A curve of ranks may differ from that of one process
by twice as much. A second part kills one of two ranks at a random step, resumes, and compares the weights bit for bit.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from measure import save, show
from torch import Tensor, nn

import steadyrnn as sr
from steadyrnn.constraints.registry import CONSTRAINTS
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.runs.folder import Run
from steadyrnn.tasks.addition import Addition
from steadyrnn.tasks.base import Batch
from steadyrnn.tasks.settings import AdditionSettings
from steadyrnn.train.ranks import join
from steadyrnn.train.settings import ClipSettings, OptimizerSettings, TrainSettings
from steadyrnn.train.trainer import train

STEPS, ROWS = 200, 16
PARTS = (2, 4, 8)


class Sums(Addition):
    """The addition problem in float64; a rank may be killed when it asks for a batch."""

    killed_at: int | None = None

    def train_batch(self, step: int, batch_size: int) -> Batch:
        """Return a batch."""
        if step == self.killed_at and join().rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        batch = super().train_batch(step, batch_size)
        return replace(batch, input=batch.input.double(), target=batch.target.double())

    def batches(self, split: str, batch_size: int) -> Any:
        """Yield the batches of a split."""
        found = super().batches(split, batch_size)
        return (replace(batch, input=batch.input.double(), target=batch.target.double()) for batch in found)


def layers() -> dict[str, Callable[[], nn.Module]]:
    """Return every layer by name."""
    made: dict[str, Callable[[], nn.Module]] = {
        name: partial(lambda kind: sr.RNN(2, 8, transition=kind()), kind) for name, kind in CONSTRAINTS.items()
    }
    return made | {
        "spectral, clip": lambda: sr.RNN(2, 8, transition=sr.Spectral(sigma="clip")),
        "spectral, penalty": lambda: sr.RNN(2, 8, transition=sr.Spectral(sigma="penalty")),
        "gru": lambda: sr.GRU(2, 8),
        "spectral gru": lambda: sr.GRU(2, 8, transition="spectral"),
        "lstm": lambda: sr.LSTM(2, 8),
        "stable-lstm": lambda: sr.LSTM(2, 8, transition="stable-lstm"),
    }


def run(name: str, folder: Path | None, parts: int = 1, dropout: float = 0.0, kill: int | None = None) -> list[float]:
    """Train a network; return its loss at every step, and keep it in a folder if there is one."""
    torch.manual_seed(0)
    model = SequenceModel(layers()[name](), 1, dropout_state=dropout).double()  # type: ignore[arg-type]
    task = Sums(AdditionSettings(length=20, validation=64, test=64))
    task.killed_at = kill
    settings = TrainSettings(
        steps=STEPS, batch_size=ROWS, accumulate=parts, log_every=1, validate_every=STEPS, save_every=10, device="cpu",
        optimizer=OptimizerSettings(lr=3e-3), clip=ClipSettings(norm=1.0, recurrent=0.5),
    )  # fmt: skip
    if not join().first:
        train(model, task, settings)
        return []
    place = Path(tempfile.mkdtemp()) if folder is None else folder
    stored = next(place.rglob("config.json"), None)
    config = {
        "task": {"name": "addition"},
        "model": {"name": "model"},
        "train": json.loads(json.dumps(vars(settings), default=vars)),
    }
    opened = Run.create(place, "addition", "model", config) if stored is None else Run.open(stored.parent, write=True)
    with opened as own:
        train(model, task, settings, run=own, resume=stored is not None)
        return [line["loss"] for line in own.metrics() if line["kind"] == "train"]


def work(what: str, out: Path) -> None:
    """Do what one of several processes does: all curves, or a run that may be killed."""
    if what == "curves":
        curves = {name: run(name, None) for name in layers()}
        if join().first:
            out.write_text(json.dumps(curves), encoding="utf-8")
    else:
        run("exp-lie", out, dropout=0.3, kill=int(what))


def launch(size: int, what: str, out: Path) -> list[int]:
    """Start processes as torchrun does; return their statuses."""
    port = str(random.randint(20000, 60000))
    names = {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    own = [sys.executable, __file__, what, str(out)]
    started = [
        subprocess.Popen(own, env=os.environ | names | {"RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"})
        for rank in range(size)
    ]
    return [process.wait() for process in started]


def distance(a: list[float], b: list[float]) -> float:
    """Return the largest difference of two curves, each relative to its loss."""
    return max(abs(x - y) / abs(x) for x, y in zip(a, b, strict=True))


def compare_curves(root: Path) -> list[dict[str, Any]]:
    """Return a line for each layer."""
    files = {size: root / f"curves-{size}.json" for size in (2, 4)}
    statuses = {size: launch(size, "curves", file) for size, file in files.items()}
    if any(any(found) for found in statuses.values()):
        raise SystemExit(f"a process failed: {statuses}")
    ranks = {size: json.loads(file.read_text(encoding="utf-8")) for size, file in files.items()}
    lines = []
    for name in layers():
        whole = run(name, None)
        growth = max(distance(whole, run(name, None, parts)) for parts in PARTS)
        line: dict[str, Any] = {"layer": name, "steps": len(whole), "last loss": whole[-1], "rounding": growth}
        line |= {f"{size} ranks": distance(whole, ranks[size][name]) for size in ranks}
        line["equal"] = all(line[f"{size} ranks"] <= 2 * max(growth, torch.finfo(torch.float64).eps) for size in ranks)
        lines.append(line)
        print(line, flush=True)
    return lines


def compare_killed(root: Path) -> dict[str, Any]:
    """Kill a rank, resume, and compare with a run that was left alone; dropout and re-centred weights among others."""
    step = random.randrange(20, STEPS)
    whole, killed = root / "whole", root / "killed"
    first = launch(2, str(STEPS + 1), whole)
    ended = launch(2, str(step), killed)
    again = launch(2, str(STEPS + 1), killed)
    tensors: list[dict[str, Tensor]] = [
        Run.open(next(place.rglob("config.json")).parent).load("last").tensors for place in (whole, killed)
    ]
    same = [torch.equal(tensors[0][name], tensors[1][name]) for name in tensors[0]]
    line = {"killed at step": step, "statuses": ended, "resumed": again, "first": first}
    return line | {"tensors": len(same), "equal bit for bit": all(same)}


def main() -> None:
    """Measure, print and write; or do the part of one process."""
    if len(sys.argv) > 1:
        return work(sys.argv[1], Path(sys.argv[2]))
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        lines = compare_curves(Path(folder))
        killed = compare_killed(Path(folder))
    show(lines)
    print(killed)
    save("ranks-cpu", [*lines, killed])


if __name__ == "__main__":
    main()
