"""Every task there is goes through the trainer, whole batches and parts of them alike."""

import os
from typing import Any

import pytest
import torch
from torch import nn

from steadyrnn.layers.rnn import RNN
from steadyrnn.models.mlp import MLP
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.tasks.base import Interface
from steadyrnn.tasks.registry import TASKS, make_task
from steadyrnn.tasks.series.records import RawTarget, SeriesSet
from steadyrnn.tasks.series.settings import SeriesSettings
from steadyrnn.tasks.series.task import task_of as task_of_series
from steadyrnn.train.settings import OptimizerSettings
from steadyrnn.train.step import Stepper
from tests.train.runs import tiny

SMALL: dict[str, dict[str, Any]] = {"addition": {"length": 10}, "recall": {"length": 10}, "largest": {"length": 12}}


def task_of(name: str) -> Any:
    if TASKS[name].data == "own":
        values, lengths = torch.randn(200, 3, dtype=torch.float64), torch.arange(1, 20)
        label = RawTarget(("label",), texts=tuple("ab"[row % 2] for row in range(19)))
        names = tuple(map(str, range(19)))
        return task_of_series(SeriesSet(values[:190], lengths, ("x", "y", "z"), names, label), SeriesSettings())
    stored = TASKS[name].data is not None
    if stored and not os.environ.get("STEADYRNN_DATA"):
        pytest.skip("needs data: STEADYRNN_DATA names no folder")
    if name == "mediamill":
        pytest.skip("needs data that may not be passed on")
    return make_task(name, **SMALL.get(name, {}))


def model_of(interface: Interface) -> nn.Module:
    if interface.reads == "row":
        return MLP(interface.inputs, 4, interface.outputs, 1)
    width = interface.inputs if interface.vocabulary is None else 4  # of an embedding any will do
    return SequenceModel(RNN(width, 4), interface.outputs, vocab_size=interface.vocabulary, readout=interface.reads)


@pytest.mark.parametrize("name", TASKS)
def test_gradients_of_a_batch_in_parts_are_those_of_the_batch(name: str) -> None:
    task = task_of(name)
    gradients = []
    for parts in (1, 3):
        torch.manual_seed(0)
        model = model_of(task.interface)
        settings = tiny(batch_size=6, accumulate=parts, optimizer=OptimizerSettings("sgd", lr=0.0))
        stepper = Stepper(model, task, settings, model)
        for step in range(2):  # the second goes on from the first where the task carries states
            sums = stepper.step(step + 1, task.train_batch(step, 6), 1.0, scored=True)
        scores = task.summary({key: float(value) for key, value in sums.items()})
        assert task.metric in scores
        assert "loss" in scores
        gradients.append([parameter.grad for parameter in model.parameters()])
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-6)
