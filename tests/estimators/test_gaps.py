"""What an estimator reads to answer is what its network read in training: gaps, steps at once, and behind the end."""

import pytest
import torch
from torch import Tensor, nn

from steadyrnn.estimators.predicting import run_model
from steadyrnn.estimators.preparing import Learned, make_set, make_task
from steadyrnn.tasks.series.settings import SeriesSettings
from tests.tasks.series.made import classes, made, numbers

KINDS = {
    "classification": (classes(8, each=False), ("a", "b"), {}),
    "regression": (numbers(8, each=False), None, {}),
    "forecasting": (None, None, {"window": 9, "stride": 1, "horizon": 1}),
}


class Recorder(nn.Module):
    """Keeps what it is given."""

    seen: list[Tensor] = []  # noqa: RUF012

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, None]:
        self.seen.append(x)
        return x[-1], None


@pytest.mark.parametrize("patch", [1, 2])
@pytest.mark.parametrize("missing", ["interpolate", "mask"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_series_is_read_to_answer_as_it_was_read_in_training(kind: str, missing: str, patch: int) -> None:
    target, names, cut = KINDS[kind]
    lengths = [10] * 8 if cut else [9, 9, 9, 8, 7, 7, 5, 4]  # the longest first, as they are read to answer
    arrays = made(lengths, 2, missing=0.4).series
    settings = SeriesSettings(kind=kind, missing=missing, patch=patch, target="x0,x1" if cut else None, **cut)
    task = make_task(make_set(arrays, target), settings, 0.0, names)
    prepared = task.prepared
    learned = Learned(settings, task.problem, prepared.scaling, prepared.target_scaling, prepared.series.channels)
    every = torch.arange(8) * (len(task.examples["train"]) // 8)  # the first window of each series
    expected = task.examples["train"].batch(task.flat, task.problem, every).input
    Recorder.seen.clear()
    run_model(Recorder(), learned, [one[:9] for one in arrays], "cpu", 1)
    assert torch.equal(torch.cat(Recorder.seen, 1).float(), expected)
    assert bool(torch.stack([torch.from_numpy(one).isnan().any() for one in arrays]).any())
