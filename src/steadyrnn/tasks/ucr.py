"""Classification of the UCR archive's time series."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from steadyrnn.errors import ArgumentError

from .base import Batch, Interface
from .constant_baseline import class_baseline
from .examples import Examples, Splits, StoredTask, count_held_out
from .hashing import Stream, gaussian, integers
from .locate import data_folder, read_file
from .reshape import features_per_step, time_major
from .scoring import ClassificationTask
from .series_file import read_series
from .settings import UcrSettings
from .ucr_sets import UcrSet, ucr_set

__all__ = ["Ucr", "read_ucr"]

_MOST = {"noise": 10.0, "shift": 1.0}


class Ucr(StoredTask, ClassificationTask):
    r"""Name the class of a time series; the 21 sets of the paper's Table 4.

    A series of L numbers, z-normalized in the archive, is read D numbers per step: input (L/D, B, D), with D the largest
    divisor of L up to :math:`\sqrt{L}` (:func:`~steadyrnn.tasks.reshape.features_per_step`), except for 50words, where the
    table has 27 steps of 10. Labels become classes 0..C-1 in ascending order. Training and test series are those of the
    archive's release of 2015, which the paper used, read from the files of 2018: for three sets that exchanges TRAIN and TEST.
    20 % of the training series are held out, drawn by the seed; the paper does not give its draw.

    The paper's networks have one output for each integer from 0 to the largest label, so some outputs never are right;
    ``paper_outputs`` adds as many, behind those of the classes, which makes the table's numbers of parameters.

    Args:
        settings: Which set, and how it is read.

    References:
        Zhang, Lei, Dhillon. Stabilizing Gradients for Deep Neural Networks via Efficient SVD Parameterization.
        ICML 2018 (appendix C). https://arxiv.org/abs/1803.09327
        Dau et al. The UCR Time Series Classification Archive. 2018.
    """

    def __init__(self, settings: UcrSettings) -> None:
        super().__init__()
        self.settings, self.known = settings, ucr_set(settings.dataset)
        self.features = _features(settings.features_per_step, self.known)
        train, test = read_ucr(data_folder(settings.data_dir), self.known)
        for name, most in _MOST.items():
            if not 0 <= getattr(settings, name) <= most:
                raise ArgumentError(f"`{name}` must be from 0 to {most:g}, but is {getattr(settings, name)}.")
        self.splits = Splits(train, test, count_held_out(settings.validation, len(train)), settings.seed)
        if settings.refit:
            self.splits.keep_all(train)

    @property
    def interface(self) -> Interface:
        """Several numbers of the series in per step; one logit per class out, from the last step."""
        classes = len(self.known.labels)
        return Interface(self.features, classes + self.known.extra * self.settings.paper_outputs)

    @property
    def baselines(self) -> Mapping[str, float]:
        """Entropy of the test labels, share of the commonest."""
        return class_baseline(self.splits.parts["test"].targets)

    def train_batch(self, step: int, batch_size: int) -> Batch:
        """Return training batch number ``step``, shifted and with noise as drawn for that step."""
        series = self.splits.train_examples(step, batch_size)
        first, x = step * batch_size, series.features
        if self.settings.shift > 0:
            x = _shift(x, round(self.settings.shift * x.shape[1]), self.settings.seed, first)
        if self.settings.noise > 0:
            rows, numbers = (torch.arange(size) for size in x.shape)
            x = x + self.settings.noise * gaussian(self.settings.seed, Stream.NOISE, first + rows.unsqueeze(1), numbers).to(x)
        return self._batch(Examples(x, series.targets))

    def _batch(self, series: Examples) -> Batch:
        return Batch(time_major(series.features, self.features), series.targets)


def _shift(series: Tensor, most: int, seed: int, first: int) -> Tensor:
    """Return series (B, L), each later or earlier by up to ``most`` numbers; its first or last number is repeated.

    Example:
        >>> _shift(torch.arange(5.0).repeat(3, 1), 1, seed=4, first=0)
        tensor([[1., 2., 3., 4., 4.],
                [0., 0., 1., 2., 3.],
                [0., 1., 2., 3., 4.]])
    """
    rows, length = series.shape
    drawn = integers(seed, Stream.SHIFT, first + torch.arange(rows), 0, 2 * most + 1) - most
    places = torch.arange(length) - drawn.unsqueeze(1)  # (B, L)
    return series.gather(1, places.clamp(0, length - 1).to(series.device))


def read_ucr(folder: Path, known: UcrSet) -> tuple[Examples, Examples]:
    """Return the series to train and to test on, in the split of 2015."""
    train, test = (
        Examples(*read_series(read_file(folder, path), folder / path, rows, known.length, known.labels))
        for path, rows in zip(known.paths(), known.counts(), strict=True)
    )
    return train, test


def _features(asked: int | None, known: UcrSet) -> int:
    """Return how many numbers each step reads."""
    if asked is None:
        return known.features or features_per_step(known.length)
    if asked < 1 or known.length % asked:
        raise ArgumentError(f"`features_per_step` must be a divisor of the length {known.length}, but is {asked}.")
    return asked
