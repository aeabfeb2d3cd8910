"""Models, tasks and settings of runs that are made in Python."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from steadyrnn.constraints.ball import SpectralBall
from steadyrnn.jobs.train_model import train_model
from steadyrnn.layers.rnn import RNN
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.tasks.base import Batch
from steadyrnn.tasks.tensors import Part, TensorClassification, TensorRegression
from steadyrnn.train.settings import TrainSettings
from tests.support.tasks import WrappedTask

T, D, N = 6, 2, 3
SETTINGS = TrainSettings(steps=8, batch_size=5, validate_every=2, save_every=2, log_every=1, device="cpu", threads=1)


def part(count: int, seed: int, ragged: bool = True) -> Part:
    random = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, T + 1, (count,), generator=random) if ragged else None
    return Part(torch.randn(T, count, D, generator=random), torch.arange(count) % N, lengths)


def classes(ragged: bool = True) -> TensorClassification:
    return TensorClassification(part(12, 0, ragged), part(6, 1, ragged), part(9, 2, ragged), seed=3)


def numbers() -> TensorRegression:
    x = torch.randn(T, 10, D, generator=torch.Generator().manual_seed(0))
    return TensorRegression(Part(x, x.cumsum(0)), Part(x[:, :4], x[:, :4].cumsum(0)))


def rows() -> TensorRegression:
    x = torch.randn(10, D, generator=torch.Generator().manual_seed(0))
    return TensorRegression(Part(x, x), Part(x, x))


def model(outputs: int = N, readout: str = "last", **options: Any) -> SequenceModel:
    torch.manual_seed(0)
    transition = {"transition": SpectralBall(0.8), "nonlinearity": "relu"} | options
    return SequenceModel(RNN(D, 5, **transition), outputs, readout=readout, dropout_state=0.25)


class Own(nn.Module):
    """A model that no description can name, with a recurrent layer inside."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.rnn, self.readout = RNN(D, 4, transition=SpectralBall(0.5)), nn.Linear(4, N)

    def forward(self, input: Tensor, lengths: Tensor | None = None) -> Tensor:
        output: Tensor = self.readout(self.rnn(3 * input, lengths=lengths)[1][-1])
        return output


class OwnTask(WrappedTask):
    """A task that lives in memory and says nothing of how it is stored."""

    def __init__(self) -> None:
        super().__init__(classes())


def train_until_killed(root: str, step: int) -> None:
    """Train in a process of its own, which ends itself before a step as ``kill -9`` does."""
    draw = TensorClassification.train_batch

    def killing(self: TensorClassification, number: int, batch_size: int) -> Batch:
        if number == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return draw(self, number, batch_size)

    TensorClassification.train_batch = killing  # type: ignore[method-assign]
    train_model(model(), classes(), SETTINGS, Path(root), name="waves", label="ball")


if __name__ == "__main__":
    train_until_killed(sys.argv[1], int(sys.argv[2]))
