"""Many small networks trained as a group, beside the same ones trained one by one: ``python benchmarks/bench_grouped.py``."""

import copy
import time
from collections.abc import Callable
from typing import Any

import torch
from measure import options, pairs, save, show

import steadyrnn as sr
from steadyrnn.models.group import group, ungroup
from steadyrnn.tasks.base import Task
from steadyrnn.tasks.tensors import Part, TensorRegression
from steadyrnn.train.grouped import train_group
from steadyrnn.train.settings import OptimizerSettings, TrainSettings
from steadyrnn.train.trainer import train

NETWORKS, UNITS, BATCH = 36, 14, 10

LAYERS: dict[str, Callable[..., Any]] = {
    "RNN, relu": lambda **own: sr.RNN(2, UNITS, nonlinearity="relu", **own),
    "RNN, relu, polar": lambda **own: sr.RNN(2, UNITS, nonlinearity="relu", transition="polar", **own),
    "LSTM": lambda **own: sr.LSTM(2, UNITS, **own),
    "RNN, tanh": lambda **own: sr.RNN(2, UNITS, **own),
    "GRU": lambda **own: sr.GRU(2, UNITS, **own),
}


def make_tasks(steps: int, dtype: torch.dtype) -> list[Task]:
    """Return a task for each network, with data of its own: two channels in, two out, at every step."""
    tasks: list[Task] = []
    for seed in range(NETWORKS):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(steps, 10 * BATCH, 2, generator=generator, dtype=dtype)  # ten batches an epoch
        part = Part(x, x.cumsum(0).tanh())
        tasks.append(TensorRegression(part, Part(x[:, :BATCH], part.target[:, :BATCH]), seed=seed))
    return tasks


def make_models(name: str, dtype: torch.dtype) -> list[sr.SequenceModel]:
    """Return the networks, each from a seed of its own."""
    models = []
    for seed in range(NETWORKS):
        torch.manual_seed(seed)
        models.append(sr.SequenceModel(LAYERS[name](dtype=dtype), 2, readout="each"))
    return models


def settings_of(updates: int) -> TrainSettings:
    """Return settings of some optimizer steps, with a validation at their end."""
    return TrainSettings(
        steps=updates, batch_size=BATCH, validate_every=updates, device="cpu", optimizer=OptimizerSettings(lr=0.01)
    )


def difference(name: str, steps: int, updates: int, dtype: torch.dtype) -> float:
    """Return the largest relative difference between weights after both ways of training, over all networks."""
    tasks, models, settings = make_tasks(steps, dtype), make_models(name, dtype), settings_of(updates)
    many = group(models)
    train_group(many, tasks, settings)
    worst = 0.0
    for model, task, grouped in zip(models, tasks, ungroup(many), strict=True):
        train(model, task, settings)
        ours, theirs = (torch.cat([p.detach().flatten() for p in own.parameters()]) for own in (grouped, model))
        worst = max(worst, float((ours - theirs).norm() / theirs.norm()))
    return worst


def measure(name: str, steps: int, updates: int, repeats: int) -> dict[str, Any]:
    """Return a row: the time of both ways of training, and how far their weights are apart after five updates in float64."""
    tasks, models, settings = make_tasks(steps, torch.float32), make_models(name, torch.float32), settings_of(updates)

    def grouped() -> None:
        train_group(group(models), tasks, settings)

    def separate() -> None:
        for model, task in zip(models, tasks, strict=True):
            train(copy.deepcopy(model), task, settings)

    result = pairs(grouped, separate, repeats, time.process_time)  # others may use the machine
    return {
        "networks": NETWORKS, "n": UNITS, "B": BATCH, "T": steps, "updates": updates, "layer": name, **result,
        "times_faster": 1 / result["ratio"], "times_faster_low": 1 / result["ratio_high"],
        "apart_after_5": difference(name, steps, 5, torch.float64),
    }  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = options(__doc__)
    parser.set_defaults(repeats=3)
    parser.add_argument("--steps", type=int, default=100, help="T, time steps of a sequence")
    parser.add_argument("--updates", type=int, default=60, help="optimizer steps of a training")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    rows: list[dict[str, Any]] = []
    length = "" if chosen.steps == parser.get_default("steps") else f"{chosen.steps}-steps-"
    for name in LAYERS:
        rows.append(measure(name, chosen.steps, chosen.updates, chosen.repeats))
        save(f"grouped-{length}{chosen.threads}-threads", rows)  # row by row: the slow ones come last
    show(rows)


if __name__ == "__main__":
    main()
