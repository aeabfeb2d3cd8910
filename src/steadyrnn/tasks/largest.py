"""Find the k-th largest number of a sequence."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from steadyrnn.checks import check_positive_int
from steadyrnn.errors import ArgumentError

from .number_sequence import NumberTask
from .settings import LargestSettings

__all__ = ["Largest", "answer_distribution"]


def answer_distribution(length: int, k: int) -> list[float]:
    r"""Return the probability of each answer 0, ..., N - 1.

    The k-th largest of N independent uniform numbers is at most v when at most k - 1 of them are above v, each of which is so
    with probability :math:`q = (N - 1 - v)/N`:

    .. math::
        P(\text{answer} \le v) = \sum_{j=0}^{k-1} \binom{N}{j} q^j (1 - q)^{N-j} .

    Args:
        length: N.
        k: From 1 to N.

    Example:
        >>> chances = answer_distribution(100, 10)
        >>> round(max(chances), 3), round(-sum(p * math.log(p) for p in chances if p > 0), 3)
        (0.136, 2.484)
    """
    j, v = torch.arange(k, dtype=torch.float64), torch.arange(length, dtype=torch.float64).unsqueeze(1)  # (k,), (N, 1)
    above, rest = (length - 1 - v) / length, (v + 1) / length
    # logarithms, since binomials outgrow a float from N = 1030 on
    binomials = math.lgamma(length + 1) - torch.lgamma(j + 1) - torch.lgamma(length - j + 1)
    at_most = (binomials + torch.xlogy(j, above) + torch.xlogy(length - j, rest)).exp().sum(1)  # (N,)
    chances = at_most.diff(prepend=at_most.new_zeros(1)).clamp(min=0)  # rounding may leave -1e-17 of a nought
    result: list[float] = chances.tolist()
    return result


class Largest(NumberTask):
    r"""Find the k-th largest number of a sequence.

    The input is N numbers, each uniform on 0, ..., N - 1 and drawn **with replacement** (of a permutation the answer would
    always be N - k); the target, after the last step, is the k-th largest, equal ones counted as often as they come. The
    paper embeds the numbers in 30 dimensions (``coding="token"``).

    The best constant answer is the most likely one; the best cross-entropy of a constant distribution is its entropy; see
    :func:`answer_distribution`: for k = 10, N = 100 an accuracy of .136 and 2.484 nats.

    Args:
        settings: N, k, the coding and the sizes of the splits.

    Example:
        >>> from steadyrnn.tasks.settings import LargestSettings
        >>> batch = Largest(LargestSettings(length=100, k=1)).train_batch(0, 4)
        >>> bool((batch.target == batch.input.max(0).values).all())
        True

    References:
        Lin, Wang. uRNN: An Approach to Bounded Gradients. Section 4.1, task II, as corrected in Note
        [mathematics], section 3.4.
    """

    def __init__(self, settings: LargestSettings) -> None:
        if check_positive_int("length", settings.length) < 2:
            raise ArgumentError("`length` must be at least 2, or there is one answer only, but is 1.")
        if check_positive_int("k", settings.k) > settings.length:
            raise ArgumentError(f"`k` must be at most the length, {settings.length}, but is {settings.k}.")
        super().__init__(settings, settings.length, settings.length, settings.coding)
        self.settings = settings

    @property
    def baselines(self) -> Mapping[str, float]:
        """The entropy of the answer, and the chance of the most likely one."""
        chances = answer_distribution(self.settings.length, self.settings.k)
        return {"loss": -sum(p * math.log(p) for p in chances if p > 0), "accuracy": max(chances)}

    def _answer(self, numbers: Tensor) -> Tensor:
        return numbers.sort(0, descending=True).values[self.settings.k - 1]
