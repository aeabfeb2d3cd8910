"""The addition problem."""

from collections.abc import Mapping

import torch
from torch import Tensor

from steadyrnn.checks import check_positive_int
from steadyrnn.errors import ArgumentError

from .base import Batch, Interface
from .curriculum import GrowingTask
from .hashing import Stream, bits, to_integers_, to_uniform_
from .scoring import RegressionTask
from .settings import AdditionSettings

__all__ = ["Addition"]


class Addition(GrowingTask, RegressionTask):
    r"""Add the two marked numbers of a sequence.

    Each step is a pair: a number, uniform on [0, 1), and a mark, which is 1 at two steps and 0 elsewhere. The first mark is at
    one of the first :math:`\lfloor L/2 \rfloor` steps, the second at one of the others, each equally likely. The target is the
    sum of the marked numbers. Answering 1 without looking has the mean squared error
    :math:`\operatorname{var}(U_1 + U_2) = 1/6`.

    Training examples never repeat; an epoch is 100 batches.

    Args:
        settings: The length L and the sizes of the splits.

    Example:
        >>> from steadyrnn.tasks.settings import AdditionSettings
        >>> task = Addition(AdditionSettings(length=100))
        >>> batch = task.train_batch(0, 32)
        >>> numbers, marks = batch.input.unbind(-1)  # each (100, 32)
        >>> torch.allclose((numbers * marks).sum(0), batch.target.squeeze(-1))
        True
        >>> round(task.baselines["loss"], 4)
        0.1667

    References:
        Zhang, Lei, Dhillon. Stabilizing Gradients for Deep Neural Networks via Efficient SVD Parameterization. ICML 2018,
        section 7.1, "with the same settings as" Arjovsky, Shah, Bengio. Unitary evolution recurrent neural networks.
        ICML 2016, who put one mark into each half.
    """

    settings: AdditionSettings
    grows, least = "length", 2

    def __init__(self, settings: AdditionSettings) -> None:
        if check_positive_int("length", settings.length) < 2:
            raise ArgumentError("`length` must be at least 2, a step for each marked number, but is 1.")
        super().__init__(settings)

    @property
    def interface(self) -> Interface:
        """Two features per step, one number from the last."""
        return Interface(inputs=2, outputs=1)

    @property
    def baselines(self) -> Mapping[str, float]:
        """The error of answering 1."""
        return {"loss": 1 / 6}

    def _examples(self, stream: Stream, index: Tensor) -> Batch:
        length, half = self.settings.length, self.settings.length // 2
        places = torch.arange(-2, length, device=self.device).unsqueeze(1)  # (2 + T, 1): second mark, first mark, numbers
        words = bits(self.settings.seed, stream, index, places)  # at once, which takes half of the time
        second = to_integers_(words[0], length - half) + half
        at = torch.stack([to_integers_(words[1], half), second])  # (2, B)
        pairs = words.new_zeros(length, words.shape[1], 2, dtype=torch.float32)
        numbers, marks = pairs.unbind(-1)  # each (T, B)
        numbers.copy_(to_uniform_(words[2:]))
        marks.scatter_(0, at, 1.0)
        a, b = numbers.gather(0, at)
        return Batch(input=pairs, target=(a + b).unsqueeze(-1))
