"""The share of a training step that making its batch takes, by task: ``python benchmarks/bench_data.py [--device cuda]``.

A batch is a pure function of the step's number, made where the network runs. Nothing waits for a loader. The share is largest
where a network is small, so the network is an RNN of 64 units in every row.
"""

import csv
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from measure import options, save, show

from steadyrnn.errors import DataError, MissingExtraError
from steadyrnn.jobs.recipes import configure
from steadyrnn.models.systems import build_model
from steadyrnn.tasks.base import Task
from steadyrnn.tasks.registry import make_task
from steadyrnn.train.step import Stepper

TASKS: dict[str, dict[str, Any]] = {
    "addition": {"length": 100},
    "copy": {"delay": 100},
    "recall": {},
    "permuted-mnist": {},
    "ptb": {},
    "ucr": {"dataset": "ECG5000"},
    "windows of a file": {},
    "series of a file": {},
}
"""Tasks with their settings; the last two read a CSV file that is written for them."""


def write_series(path: Path, series: int, steps: int) -> None:
    """Write a CSV file of series of two channels, of different lengths if there are several."""
    draw = random.Random(0)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "x", "y", "label"])
        for name in range(series):
            for _ in range(steps if series == 1 else draw.randint(steps // 2, steps)):
                rows.writerow([name, draw.gauss(0, 1), draw.gauss(0, 1), "ab"[name % 2]])


def make(name: str, folder: Path) -> Task:
    """Return a task of the table."""
    path = folder / f"{name}.csv"
    if name == "windows of a file":
        write_series(path, 1, 20_000)
        return make_task("series", data=str(path), channels="x,y", horizon=4)
    if name == "series of a file":
        write_series(path, 300, 200)
        return make_task("series", data=str(path), series="id", target="label")
    return make_task(name, **TASKS[name])


def measure(name: str, task: Task, device: str, steps: int) -> dict[str, Any]:
    """Return the times of a batch and of a step with it: medians over steps, on a CPU in processor time."""
    known = name if name in TASKS and " " not in name else "addition"
    recipe = {"model.width": 64, "train.device": device, "train.graph": "auto"}
    configuration = configure(known, "rnn", recipe)
    settings, task = configuration.train, task.to(device)
    model = build_model(configuration.model, task.interface).to(device)
    stepper = Stepper(model, task, settings, model)

    def wait() -> float:
        if device == "cpu":
            return time.process_time()
        torch.cuda.synchronize()
        return time.perf_counter()

    times = list[tuple[float, float]]()
    for step in range(steps + 5):  # the first ones set up
        start = wait()
        batch = task.train_batch(step, 128)
        middle = wait()
        stepper.step(step + 1, batch, 1.0)
        times.append((middle - start, wait() - middle))
    data, rest = (statistics.median(column) for column in zip(*times[5:], strict=True))
    shape = tuple(task.train_batch(0, 128).input.shape[:2])
    return {
        "task": name,
        "T": shape[0],
        "B": shape[1],
        "batch_ms": 1e3 * data,
        "step_ms": 1e3 * rest,
        "share": data / (data + rest),
    }


def main() -> None:
    """Measure and print."""
    parser = options(__doc__)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in TASKS:
            try:
                rows.append(measure(name, make(name, Path(folder)), chosen.device, 4 * chosen.repeats))
            except (DataError, MissingExtraError) as error:
                print(f"{name}: left out: {error}")
    show(rows)
    save(f"data-{chosen.device}", rows)


if __name__ == "__main__":
    main()
