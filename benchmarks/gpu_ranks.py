"""The optimizer step in a group of one rank beside the step without a group: ``python benchmarks/gpu_ranks.py``, on a GPU.

The group is what torchrun makes for one process: gradients go through the buffer of the exchange and NCCL, and what ranks tell
one another is read after each step, as the trainer does. Each recipe is measured eagerly and captured as a CUDA graph. Both
sides take whole steps in turn, with their batches, and the ratio is the median over the turns. The goal is 1.03.
"""

import copy
import os
import socket
import statistics
import time
from dataclasses import replace
from typing import Any

import torch
from gpu_graph import recipes
from measure import save, show
from torch import nn

from steadyrnn.train.device import join_on
from steadyrnn.train.ranks import ALONE, Ranks, leave
from steadyrnn.train.settings import TrainSettings
from steadyrnn.train.step import Stepper

STEPS, TURNS = 40, 7
CHOSEN = (
    "addition 100, spectral relu 64, batch 50",
    "addition 784, lstm 128, batch 128",
    "copy, delay 200, spectral gru 128, batch 128",
)


def be_one_of_one() -> None:
    """Set what torchrun would, unless it has."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
    numbers = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "LOCAL_WORLD_SIZE": 1, "MASTER_PORT": port}
    for name, value in {**numbers, "MASTER_ADDR": "127.0.0.1"}.items():
        os.environ.setdefault(name, str(value))


def make_stepper(model: nn.Module, task: Any, settings: TrainSettings, ranks: Ranks, said: list[str]) -> Stepper:
    """Return a stepper with a copy of the model; ``said`` gets why its steps are not captured."""
    own = copy.deepcopy(model)
    return Stepper(own, task, settings, own, lambda done, why: said.append(why), ranks)


def seconds(stepper: Stepper, first: int, size: int) -> float:
    """Return the time of a step, its batch and the news of other ranks included."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for number in range(first, first + STEPS):
        stepper.step(number + 1, stepper.task.train_batch(number, size), 1.0)
        if stepper.exchange is not None:
            stepper.exchange.signal_to_end()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / STEPS


def largest_difference(one: nn.Module, other: nn.Module) -> float:
    """Return the largest difference of two models' parameters."""
    with torch.no_grad():
        return max(float((a - b).abs().max()) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def measure(name: str, model: nn.Module, task: Any, settings: TrainSettings, ranks: Ranks) -> dict[str, Any]:
    """Return the line of a recipe in one mode."""
    said: list[str] = []
    alone = make_stepper(model, task, settings, ALONE, said)
    grouped = make_stepper(model, task, settings, ranks, said)
    size = settings.batch_size
    for stepper in (alone, grouped):
        seconds(stepper, 0, size)
    pairs = [(seconds(alone, turn * STEPS, size), seconds(grouped, turn * STEPS, size)) for turn in range(TURNS)]
    line = {"recipe": name, "graph": settings.graph, "alone_ms": 1e3 * statistics.median(a for a, _ in pairs)}
    line |= {"ranks_ms": 1e3 * statistics.median(b for _, b in pairs)}
    line |= {"ratio": statistics.median(b / a for a, b in pairs), "why_not": "; ".join(filter(None, said))}
    return line | {"difference": largest_difference(alone.model, grouped.model)}


def main() -> None:
    """Measure, print and write."""
    be_one_of_one()
    ranks, device = join_on("cuda")
    lines = []
    made = recipes()
    for name in CHOSEN:
        model, task, settings = made[name]
        model, task = model.to(device), task.to(device)
        for graph in ("off", "auto"):
            lines.append(measure(name, model, task, replace(settings, graph=graph), ranks))
            print(lines[-1], flush=True)
    show(lines)
    save("gpu-ranks", lines)
    leave()


if __name__ == "__main__":
    main()
