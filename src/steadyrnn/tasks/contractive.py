"""Identification of a contractive system from noisy records."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from steadyrnn.checks import check_interval, check_positive_int

from .base import Batch, Interface, Task
from .contractive_system import ContractiveSystem, calibrate, random_system
from .hashing import Stream, gaussian
from .scoring import square_loss, square_scores
from .settings import ContractiveSettings
from .splits import EpochOrder, cut, split_counts

__all__ = ["Contractive"]

_SPLITS = ("train", "validation", "test")
_CALIBRATION = 20  # records that the biases are set on: hold-out shares are then within .02 of the settings


@dataclass(frozen=True)
class _Records:
    """Inputs (T, R, D), noisy outputs (T, R, N)."""

    input: Tensor
    target: Tensor


class Contractive(Task):
    r"""Learn a contractive ReLU network from Gaussian inputs and noisy outputs.

    The system is :func:`~steadyrnn.tasks.contractive_system.random_system` with its biases set so that each unit is on at
    60 % of the steps. Inputs are standard normal. To each output channel comes Gaussian noise of the variance
    :math:`\operatorname{var}(\text{clean}) / 10^{\text{snr}/10}`, the variance being that of the training records. The
    loss is the mean squared error of all steps; the metric, over all channels c,

    .. math::
        R^2 = 1 - \frac{\sum_c \sum (y_c - \hat y_c)^2}{\sum_c \sum (y_c - \bar y_c)^2} .

    Against noisy outputs no network can expect more than :attr:`ceiling`; a constant has 0.

    Records are drawn in float64 on the CPU when the task is made (a second for the default sizes), and kept in float32. They
    depend on the settings alone, but not to the last bit on another processor.

    Args:
        settings: The system, the noise, and the number and length of the records.

    Example:
        >>> from steadyrnn.tasks.settings import ContractiveSettings
        >>> task = Contractive(ContractiveSettings(length=200, train=50, validation=5, test=20))
        >>> batch = task.train_batch(0, 10)
        >>> batch.input.shape, batch.target.shape
        (torch.Size([200, 10, 2]), torch.Size([200, 10, 2]))
        >>> round(task.ceiling, 4)
        0.9901

    References:
        Emami, Sahraee-Ardakan, Fletcher, Rangan. Input-Output Equivalence of Unitary and Contractive RNNs. NeurIPS 2019;
        the recipe as corrected in Note [mathematics], section 1.7.
    """

    metric: ClassVar[str] = "r2"
    higher_is_better: ClassVar[bool] = True

    def __init__(self, settings: ContractiveSettings) -> None:
        super().__init__()
        for name in ("length", "inputs", "units", "outputs"):
            check_positive_int(name, getattr(settings, name))
        check_interval("epsilon", settings.epsilon, 1e-6, 1.0)
        check_interval("active", settings.active, 0.05, 0.95)
        check_interval("snr", settings.snr, -60.0, 120.0)
        self.settings = settings
        self._counts = split_counts(settings, *_SPLITS)
        self._order = EpochOrder(settings.seed, settings.train)
        self.system, self._records = _draw(settings, self._counts)

    @property
    def interface(self) -> Interface:
        """Every channel at every step."""
        return Interface(inputs=self.settings.inputs, outputs=self.settings.outputs, reads="each")

    @property
    def baselines(self) -> Mapping[str, float]:
        """The mean of each channel of the test records."""
        target = self._records["test"].target.double()
        return {"loss": float((target - target.mean((0, 1))).square().mean()), "r2": 0.0}

    @property
    def ceiling(self) -> float:
        r"""The :math:`R^2` that the system itself has in expectation, :math:`\text{SNR}/(1 + \text{SNR})`."""
        ratio = 10 ** (self.settings.snr / 10)
        return ratio / (1 + ratio)

    def epoch_steps(self, batch_size: int) -> int:
        """Return how many batches it takes to see every training record."""
        return self._order.steps(batch_size)

    def train_batch(self, step: int, batch_size: int) -> Batch:
        """Return ``batch_size`` training records, in the epoch's order."""
        rows, records = self._order.rows(step, batch_size, self.device), self._records["train"]
        return Batch(records.input.index_select(1, rows), records.target.index_select(1, rows))

    def batches(self, split: str, batch_size: int) -> Iterator[Batch]:
        """Yield the batches of ``"train"``, ``"validation"`` or ``"test"``."""
        cuts = cut(split, self._counts, batch_size)
        records = self._records[split]
        return (Batch(records.input[:, rows.start : rows.stop], records.target[:, rows.start : rows.stop]) for rows in cuts)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """Return the mean squared error of all steps and channels."""
        return square_loss(output, batch.target)

    def scores(self, output: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Return the sum of squared errors, their number, and each channel's sums of outputs and of their squares."""
        wide = batch.target.double()  # (T, B, N)
        channels = {
            f"{name}_{channel}": value
            for name, sums in (("sum", wide.sum((0, 1))), ("squares", wide.square().sum((0, 1))))
            for channel, value in enumerate(sums.unbind())
        }
        return {**square_scores(output, batch.target), **channels}

    def summary(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Return the mean squared error and R^2 (NaN where no channel varies)."""
        each = sums["count"] / self.settings.outputs
        names = range(self.settings.outputs)
        variation = sum(sums[f"squares_{channel}"] - sums[f"sum_{channel}"] ** 2 / each for channel in names)
        r2 = 1 - sums["squared_error"] / variation if variation > 0 else math.nan
        return {"loss": sums["squared_error"] / sums["count"], "r2": r2}

    def to(self, device: torch.device | str) -> "Contractive":
        """Move the records; return the task itself."""
        super().to(device)
        self._records = {
            split: _Records(records.input.to(self.device), records.target.to(self.device))
            for split, records in self._records.items()
        }
        return self


def _draw(settings: ContractiveSettings, counts: Mapping[str, int]) -> tuple[ContractiveSystem, dict[str, _Records]]:
    """Return the system and the records of every split."""
    width = settings.inputs + settings.outputs
    places = torch.arange(settings.length * width).view(settings.length, 1, width)
    drawn = {
        split: gaussian(settings.seed, Stream[split.upper()], torch.arange(n).unsqueeze(-1), places, dtype=torch.float64)
        for split, n in counts.items()
    }  # each (T, R, D + N)
    inputs = {split: numbers[..., : settings.inputs] for split, numbers in drawn.items()}
    system = random_system(settings.seed, settings.inputs, settings.units, settings.outputs, settings.epsilon)
    system = calibrate(system, inputs["train"][:, :_CALIBRATION], settings.active)
    clean = {split: system.outputs(input) for split, input in inputs.items()}
    noise = clean["train"].var((0, 1), correction=0).div(10 ** (settings.snr / 10)).sqrt()  # (N,)
    noisy = {split: clean[split] + noise * drawn[split][..., settings.inputs :] for split in counts}
    return system, {split: _Records(inputs[split].float(), noisy[split].float()) for split in counts}
