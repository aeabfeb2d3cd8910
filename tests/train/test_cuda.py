"""The trainer on a GPU: no waiting at every step, exact resume, a step that is not finite changes nothing."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from steadyrnn.errors import TrainingError
from steadyrnn.layers.rnn import RNN
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.runs.folder import Run
from steadyrnn.tasks.addition import Addition
from steadyrnn.tasks.base import Batch
from steadyrnn.tasks.settings import AdditionSettings
from steadyrnn.train.settings import OptimizerSettings
from steadyrnn.train.step import Stepper
from steadyrnn.train.trainer import train
from tests.train.runs import CASES, BreakAt, Broken, addition, differences, new_run, noisy_probe, tiny

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("case", CASES)
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path, case: str) -> None:
    build, make, settings = CASES[case]
    settings = replace(settings, device="cuda", deterministic=True)

    def start(run: Run, seed: int, **more: object) -> None:
        torch.manual_seed(seed)
        train(build(), make(), settings, run=run, callbacks={"noise": noisy_probe}, **more)  # type: ignore[arg-type]

    whole, broken = new_run(tmp_path, settings), new_run(tmp_path, settings)
    with whole:
        start(whole, 0)
    with broken, pytest.raises(Broken):
        start(broken, 0, progress=BreakAt(8))
    with Run.open(broken.folder, write=True) as again:
        start(again, 99, resume=True)
    assert differences(whole, again) == []
    assert "random.cuda.0" in whole.load("last").tensors


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
def test_a_step_does_not_wait_for_the_device(name: str) -> None:
    task = addition().to("cuda")
    model = SequenceModel(RNN(2, 8), 1).to("cuda")
    stepper = Stepper(model, task, tiny(optimizer=OptimizerSettings(name, momentum=0.9)), model)
    batches = [task.train_batch(step, 8) for step in range(4)]
    stepper.step(1, batches[0], 1.0)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for step in range(1, 4):
            stepper.step(step + 1, batches[step], 0.5)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    stepper.guard.check()


class Poisoned(Addition):
    """Has NaN in one training batch."""

    def train_batch(self, step: int, batch_size: int) -> Batch:
        batch = super().train_batch(step, batch_size)
        return Batch(batch.input * math.nan, batch.target) if step == 4 else batch


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd", "rmsprop"])
def test_nan_ends_a_run_with_the_weights_before_it(name: str) -> None:
    momentum = 0.5 if name in ("sgd", "rmsprop") else 0.0
    optimizer = OptimizerSettings(name, lr=0.01, momentum=momentum)
    settings = tiny(device="cuda", optimizer=optimizer, log_every=14, validate_every=14)
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(SequenceModel(RNN(2, 8), 1))
    task = Poisoned(AdditionSettings(length=10, validation=24, test=24))
    with pytest.raises(TrainingError, match="Step 5 is not finite: its loss is nan"):
        train(models[0], task, replace(settings, save_every=14))
    train(models[1], addition(), replace(settings, steps=4, validate_every=4))
    for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_cuda_run_is_the_cpu_run_up_to_rounding() -> None:
    scores = []
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        scores.append(train(SequenceModel(RNN(2, 8), 1), addition(), tiny(device=device)).test["loss"])
    assert scores[0] == pytest.approx(scores[1], rel=1e-3)
