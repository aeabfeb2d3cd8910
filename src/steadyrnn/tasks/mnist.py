"""MNIST digits: pixel by pixel, permuted, row by row, or flat for networks without time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor

from steadyrnn.errors import ArgumentError, DataError

from .base import Batch, Interface
from .constant_baseline import class_baseline
from .examples import Examples, Splits, StoredTask, count_held_out
from .hashing import Stream, permutation
from .idx import gunzip, read_idx
from .locate import data_folder, read_file
from .reshape import time_major
from .scoring import ClassificationTask, class_loss
from .settings import MnistRowsSettings, MnistSettings, PermutedMnistSettings, PixelMnistSettings

__all__ = ["Mnist", "read_digits"]

SIDE, CLASSES = 28, 10
PIXELS = SIDE * SIDE


@dataclass(frozen=True)
class Layout:
    """How an image becomes a sequence: pixels of a step (None: no time), and their order, (784,)."""

    features: int | None = None
    order: Tensor | None = None


def _rows_layout(settings: MnistRowsSettings) -> Layout:
    return Layout(SIDE)


def _pixels_layout(settings: PixelMnistSettings) -> Layout:
    width = settings.pixels_per_step
    if width < 1 or PIXELS % width:
        raise ArgumentError(f"`pixels_per_step` must be a divisor of {PIXELS}, as 1 or 2, but is {width}.")
    return Layout(width)


def _permuted_layout(settings: PermutedMnistSettings) -> Layout:
    return Layout(_pixels_layout(settings).features, _order_of(settings.permutation))


def _order_of(number: int | str) -> Tensor:
    """Return the order of the pixels, (784,): ours by number, or numpy's by its seed."""
    if isinstance(number, int):
        if not 0 <= number < 1 << 63:
            raise ArgumentError(f"`permutation` must be an integer from 0 to 2^63 - 1, but is {number}.")
        return permutation(number, Stream.SYSTEM, PIXELS)
    source, _, digits = number.partition(":")
    seed = int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 10 else -1
    if source != "numpy" or not 0 <= seed < 1 << 32:
        raise ArgumentError(
            "`permutation` must be an integer, or numpy: with a seed from 0 to 2^32 - 1, as numpy:92916 of the expRNN, "
            f"but is {number[:60]!r}."
        )
    # numpy promises never to change the stream of RandomState (NEP 19)
    return torch.from_numpy(numpy.random.RandomState(seed).permutation(PIXELS)).to(torch.int64)


LAYOUTS: dict[type[MnistSettings], Callable[[Any], Layout]] = {
    MnistSettings: lambda settings: Layout(),
    MnistRowsSettings: _rows_layout,
    PixelMnistSettings: _pixels_layout,
    PermutedMnistSettings: _permuted_layout,
}
"""The layout of each kind of settings."""


class Mnist(StoredTask, ClassificationTask):
    """Handwritten digits, ten classes; grey values are divided by 255. The kind of settings says how an image is read.

    ========================== ==================== ======================================
    settings                   input                source
    ========================== ==================== ======================================
    ``PixelMnistSettings``     (784, B, 1)          Zhang et al., Table 2; 392 steps of 2
    ``PermutedMnistSettings``  (784, B, 1)          the same in a fixed random order
    ``MnistRowsSettings``      (28, B, 28)          one image row per step
    ``MnistSettings``          (B, 784)             Zhang et al., Figure 5 (MLP, ResNet)
    ========================== ==================== ======================================

    The permutation ``numpy:92916`` is that of the code of Lezcano-Casado and Martinez-Rubio (expRNN), which the asRNN took
    over; published numbers on permuted MNIST differ in their order of pixels.

    The loss is the cross-entropy in nats, in training with ``label_smoothing``. The paper trains on all 60,000 and picks by the
    test set; here some are held out.
    With ``test=0.2`` all 70,000 are split anew, as for the paper's Figure 5.
    Images are kept as bytes on the device and converted batch by batch.

    Args:
        settings: Of one of the four kinds.

    References:
        Zhang, Lei, Dhillon. Stabilizing Gradients for Deep Neural Networks via Efficient SVD Parameterization.
        ICML 2018 (section 7.2). https://arxiv.org/abs/1803.09327
    """

    def __init__(self, settings: MnistSettings) -> None:
        super().__init__()
        if not 0 <= settings.label_smoothing < 1:
            raise ArgumentError(f"`label_smoothing` must be at least 0 and below 1, but is {settings.label_smoothing}.")
        self.settings, self.layout = settings, LAYOUTS[type(settings)](settings)
        folder = data_folder(settings.data_dir)
        parts = [read_digits(folder, part, self.layout.order) for part in ("train", "t10k")]
        train, test = parts if settings.test is None else _split_anew(parts, settings.test, settings.seed)
        held = count_held_out(settings.validation, len(train))
        self.splits = Splits(train, test, held, settings.seed)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """Return the mean cross-entropy of a training batch, of smoothed targets where that is wanted."""
        return class_loss(output, batch.target, self.settings.label_smoothing)

    @property
    def interface(self) -> Interface:
        """Pixels of a step in (of an image, where there is no time), ten logits out."""
        width = self.layout.features
        return Interface(width or PIXELS, CLASSES, reads="row" if width is None else "last")

    @property
    def baselines(self) -> Mapping[str, float]:
        """Entropy of the test labels, share of the commonest."""
        return class_baseline(self.splits.parts["test"].targets)

    def _batch(self, digits: Examples) -> Batch:
        pixels = time_major(digits.features, self.layout.features)
        # a division by 255 is a product with the reciprocal on a GPU, and rounds differently from a CPU's
        return Batch(pixels.to(torch.float32) * (1 / 255), digits.targets)


def read_digits(folder: Path, part: str, order: Tensor | None = None) -> Examples:
    """Return the images, uint8 (N, 784), pixels in ``order``, and the labels, int64 (N,), of ``train`` or ``t10k``."""
    names = f"mnist/{part}-images-idx3-ubyte.gz", f"mnist/{part}-labels-idx1-ubyte.gz"
    images, labels = (gunzip(read_file(folder, name), folder / name) for name in names)
    pixels = read_idx(images, folder / names[0], (None, SIDE, SIDE)).flatten(1)
    return _pair(pixels if order is None else pixels[:, order], read_idx(labels, folder / names[1], (None,)), folder / names[1])


def _split_anew(parts: Sequence[Examples], share: float, seed: int) -> tuple[Examples, Examples]:
    """Return the images of all parts to train and to test on, a ``share`` of them drawn for the test."""
    if not 0 < share < 1:
        raise ArgumentError(f"`test` must be between 0 and 1, the share of all images to test on, but is {share}.")
    whole = Examples(torch.cat([part.features for part in parts]), torch.cat([part.targets for part in parts]))
    drawn = permutation(seed, Stream.TEST, len(whole))
    count = count_held_out(float(share), len(whole))
    return whole.take(drawn[count:].sort().values), whole.take(drawn[:count].sort().values)


def _pair(pixels: Tensor, labels: Tensor, where: Path) -> Examples:
    """Return images with their labels, if there are as many of each and every label is a digit."""
    if len(pixels) != len(labels):
        raise DataError(f"{where} must have a label for each of {len(pixels)} images, but has {len(labels)}.")
    if int(labels.max()) >= CLASSES:
        raise DataError(f"{where} must have labels from 0 to {CLASSES - 1}, but has {int(labels.max())}.")
    return Examples(pixels, labels.long())
