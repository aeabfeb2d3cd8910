"""The copy problem."""

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from steadyrnn.checks import check_positive_int

from .base import Batch, Interface
from .curriculum import GrowingTask
from .hashing import Stream, integers
from .scoring import class_loss, class_scores
from .settings import CopySettings

__all__ = ["Copying"]

_SYMBOLS, _BLANK, _GO = 8, 8, 9  # a_0..a_7 carry the message, a_8 is silence, a_9 asks for the answer
_ALPHABET = 10
_MESSAGE = 10  # symbols to remember


class Copying(GrowingTask):
    r"""Repeat ten symbols after a delay T.

    Of the alphabet :math:`a_0, \dots, a_9`, the input of :math:`T + 20` steps is ten symbols, each uniform on
    :math:`a_0, \dots, a_7`, then :math:`a_8`, except for :math:`a_9` at position :math:`T + 10` (counted from 1). The target is
    :math:`a_8` for :math:`T + 10` steps, then the ten symbols. Symbols come one-hot. Outputs are the ten letters of the same
    alphabet, although :math:`a_9` is never an answer: a network has to learn that too, and the baseline is the same.

    The loss is the cross-entropy of all steps. Knowing all but the message, the best is a uniform guess over eight symbols at
    ten of :math:`T + 20` steps: :math:`10 \ln 8 / (T + 20)`, with an accuracy of 1/8. Accuracy is of the ten symbols alone.

    Training examples never repeat; an epoch is 100 batches.

    Args:
        settings: The delay T and the sizes of the splits.

    Example:
        >>> from steadyrnn.tasks.settings import CopySettings
        >>> task = Copying(CopySettings(delay=100))
        >>> batch = task.train_batch(0, 32)
        >>> symbols = batch.input.argmax(-1)  # (120, 32)
        >>> bool((symbols[:10] == batch.target[-10:]).all())
        True
        >>> round(task.baselines["loss"], 4)
        0.1733

    References:
        Zhang, Lei, Dhillon. Stabilizing Gradients for Deep Neural Networks via Efficient SVD Parameterization. ICML 2018,
        section 7.1; its baseline's alphabet lacks :math:`a_0` (Note [mathematics], section 2.13).
    """

    metric: ClassVar[str] = "accuracy"
    higher_is_better: ClassVar[bool] = True
    settings: CopySettings
    grows = "delay"

    def __init__(self, settings: CopySettings) -> None:
        self.length = check_positive_int("delay", settings.delay) + 2 * _MESSAGE
        super().__init__(settings)

    @property
    def interface(self) -> Interface:
        """Ten features, ten classes at every step."""
        return Interface(inputs=_ALPHABET, outputs=_ALPHABET, reads="each")

    @property
    def baselines(self) -> Mapping[str, float]:
        """What remembers nothing."""
        return {"loss": _MESSAGE * math.log(_SYMBOLS) / self.length, "accuracy": 1 / _SYMBOLS}

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """Return the mean cross-entropy of all steps."""
        return class_loss(output, batch.target)

    def scores(self, output: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Return the sum of cross-entropies over all steps, that of right answers over the last ten, and both numbers."""
        every = class_scores(output, batch.target)
        last = class_scores(output[-_MESSAGE:], batch.target[-_MESSAGE:])
        return {**every, "correct": last["correct"], "recalled": last["count"]}

    def summary(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Return the mean cross-entropy of all steps, and the share of the ten symbols that are right."""
        return {"loss": sums["cross_entropy"] / sums["count"], "accuracy": sums["correct"] / sums["recalled"]}

    def _examples(self, stream: Stream, index: Tensor) -> Batch:
        places = torch.arange(_MESSAGE, device=self.device).unsqueeze(1)  # (10, 1)
        message = integers(self.settings.seed, stream, index, places, below=_SYMBOLS)  # (10, B)
        symbols = torch.full((self.length, len(index)), _BLANK, device=self.device)  # (T + 20, B)
        target = symbols.clone()
        symbols[:_MESSAGE] = message
        symbols[self.settings.delay + _MESSAGE - 1] = _GO  # counted from 0
        target[-_MESSAGE:] = message
        return Batch(input=one_hot(symbols, _ALPHABET).float(), target=target)
