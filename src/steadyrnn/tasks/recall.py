"""Recall the first number of a sequence."""

import math
from collections.abc import Mapping

from torch import Tensor

from steadyrnn.checks import check_positive_int
from steadyrnn.errors import ArgumentError

from .number_sequence import NumberTask
from .settings import RecallSettings

__all__ = ["Recall"]


class Recall(NumberTask):
    r"""Recall the first number of a sequence.

    The input is N numbers, each uniform on 0, ..., M - 1; the target, after the last step, is the first. Everything after
    the first step is noise to be ignored. The paper embeds the numbers in 30 dimensions (``coding="token"``). A constant
    answer has the cross-entropy :math:`\ln M` and the accuracy 1/M.

    Args:
        settings: N, M, the coding and the sizes of the splits.

    Example:
        >>> from steadyrnn.tasks.settings import RecallSettings
        >>> task = Recall(RecallSettings(length=20, symbols=10))
        >>> batch = task.train_batch(0, 4)
        >>> batch.input.shape, bool((batch.target == batch.input[0]).all())
        (torch.Size([20, 4]), True)

    References:
        Lin, Wang. uRNN: An Approach to Bounded Gradients. Section 4.1, task I.
    """

    def __init__(self, settings: RecallSettings) -> None:
        check_positive_int("length", settings.length)
        if check_positive_int("symbols", settings.symbols) < 2:
            raise ArgumentError("`symbols` must be at least 2, or there is nothing to recall, but is 1.")
        super().__init__(settings, settings.length, settings.symbols, settings.coding)
        self.settings = settings

    @property
    def baselines(self) -> Mapping[str, float]:
        """Scores of a constant answer."""
        return {"loss": math.log(self.settings.symbols), "accuracy": 1 / self.settings.symbols}

    def _answer(self, numbers: Tensor) -> Tensor:
        return numbers[0]
