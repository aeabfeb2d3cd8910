"""The optimizer step captured as a CUDA graph beside the eager one: ``python benchmarks/gpu_graph.py``, on a GPU.

A row is a model on a task with its batch size. Both forms take steps in turn, whole steps with their batches, and the ratio is
the median over the turns.
"""

import statistics
import time
from dataclasses import replace
from typing import Any

import torch
from measure import save, show

import steadyrnn as sr
from steadyrnn.constraints import Spectral
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.tasks.registry import make_task
from steadyrnn.train.settings import ClipSettings, OptimizerSettings, TrainSettings
from steadyrnn.train.step import Stepper

STEPS, TURNS = 60, 5


def recipes() -> dict[str, tuple[torch.nn.Module, Any, TrainSettings]]:
    """Return models, tasks and settings by what they are."""

    def settings(batch: int, name: str = "adam") -> TrainSettings:
        return TrainSettings(batch_size=batch, device="cuda", optimizer=OptimizerSettings(name), clip=ClipSettings(norm=1.0))

    def last(layer: sr.RNN | sr.LSTM) -> torch.nn.Module:
        return SequenceModel(layer, 1)

    spectral = Spectral(reflectors=16, radius=0.01)
    saturation = sr.AdaptiveTanh()
    copying = make_task("copy", delay=200)
    inputs, outputs = copying.interface.inputs, copying.interface.outputs
    return {
        "addition 100, spectral relu 64, batch 50": (
            last(sr.RNN(2, 64, nonlinearity="relu", transition=spectral)), make_task("addition", length=100), settings(50)),
        "addition 784, spectral leaky_relu 512, batch 128": (
            last(sr.RNN(2, 512, nonlinearity="leaky_relu", transition=spectral)), make_task("addition", length=784),
            settings(128)),
        "addition 784, cayley adaptive_tanh 256, batch 128, rmsprop": (
            last(sr.RNN(2, 256, nonlinearity=saturation, transition="cayley")), make_task("addition", length=784),
            settings(128, "rmsprop")),
        "addition 784, lstm 128, batch 128": (last(sr.LSTM(2, 128)), make_task("addition", length=784), settings(128)),
        "copy, delay 200, spectral gru 128, batch 128": (
            SequenceModel(sr.GRU(inputs, 128, transition="spectral"), outputs, readout="each"), copying, settings(128)),
    }  # fmt: skip


def seconds(stepper: Stepper, first: int, size: int) -> float:
    """Return the time of a step, its batch included."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for number in range(first, first + STEPS):
        stepper.step(number + 1, stepper.task.train_batch(number, size), 1.0)
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / STEPS


def main() -> None:
    """Measure, print and write."""
    lines = []
    for name, (model, task, settings) in recipes().items():
        model, task = model.to("cuda"), task.to("cuda")
        eager = Stepper(model, task, replace(settings, graph="off"), model)
        said: list[str] = []
        captured = Stepper(model, task, settings, model, lambda done, why, said=said: said.append(why))  # type: ignore[misc]
        for stepper in (eager, captured):
            seconds(stepper, 0, settings.batch_size)
        pairs = [
            (seconds(eager, turn * STEPS, settings.batch_size), seconds(captured, turn * STEPS, settings.batch_size))
            for turn in range(TURNS)
        ]
        line = {"recipe": name, "eager_ms": 1e3 * statistics.median(a for a, _ in pairs)}
        line |= {"captured_ms": 1e3 * statistics.median(b for _, b in pairs), "why_not": "; ".join(filter(None, said))}
        line["ratio"] = statistics.median(b / a for a, b in pairs)
        lines.append(line)
        print(line, flush=True)
    show(lines)
    save("gpu-graph", lines)


if __name__ == "__main__":
    main()
