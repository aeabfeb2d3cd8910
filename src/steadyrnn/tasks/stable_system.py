"""Regression of one number on a Gaussian sequence, with or without a stable system behind it."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from steadyrnn.checks import check_interval, check_positive_int
from steadyrnn.errors import ArgumentError, not_among

from .base import Batch, Interface
from .hashing import Stream, gaussian, uniform
from .scoring import RegressionTask
from .settings import StableSystemSettings
from .splits import EpochOrder, cut, split_counts

__all__ = ["StableSystem", "impulse_response"]

_DEVIATION = 2.0  # of an input: x_t is normal with covariance 4 I
_RANGE = 2.0  # a target is uniform from -2 to 2
_BLOCK = 256  # training examples drawn at a time: their random words need three times the memory of the numbers
_TARGET = -1  # position of that draw; those from 0 on are inputs


def impulse_response(seed: int, length: int, inputs: int, bound: float) -> Tensor:
    r"""Return what a random stable linear system answers to: :math:`y_T = \sum_t k_t x_t`, shape (T, D), in float64.

    The system is drawn as the paper draws its models: :math:`h_t = W h_{t-1} + U x_t` from :math:`h_0 = 0` and
    :math:`y_T = C h_T + D x_T`, with as many states as inputs, entries of W and U normal with variance 1/2, of C and D normal
    with variance 1, and the singular values of W cut off at ``bound``. So :math:`k_t = C W^{T-t} U`, plus D for t = T.

    Example:
        >>> impulse_response(0, length=5, inputs=3, bound=0.75).shape
        torch.Size([5, 3])
    """
    shapes = [(inputs, inputs), (inputs, inputs), (1, inputs), (1, inputs)]
    w, u, c, d = (
        gaussian(seed, Stream.SYSTEM, number, torch.arange(torch.Size(shape).numel()), dtype=torch.float64).view(shape)
        for number, shape in enumerate(shapes)
    )
    left, sigma, right = torch.linalg.svd(w * 0.5**0.5)
    w = left @ (sigma.clamp(max=bound).unsqueeze(1) * right)
    rows = [c]
    for _ in range(length - 1):
        rows.append(rows[-1] @ w)
    kernel: Tensor = torch.cat(rows[::-1]) @ (u * 0.5**0.5)  # (T, D)
    kernel[-1] += d[0]
    return kernel


class StableSystem(RegressionTask):
    r"""Fit one number to a sequence of Gaussian vectors.

    Inputs :math:`x_1, \dots, x_T` are independent, normal with covariance :math:`4 I`. With ``target="uniform"``, as in the
    paper, the target is uniform on [-2, 2] and has nothing to do with them: a random problem to run gradient descent on, with
    nothing to generalize (the best guess for new examples is 0, with error 4/3). The paper's instance has one example, the
    default. With ``target="system"`` the target is the last output of a random stable linear system, see
    :func:`impulse_response`: take some thousand training examples to learn it. There the guess 0 has the error
    :math:`4 \sum_t \lVert k_t \rVert^2`.

    The models that the paper starts from are drawn by its experiment, not here. Training examples are kept in memory, 4 T D
    bytes each; those of the other splits are drawn as they are read.

    Args:
        settings: Sizes, the kind of target, and the number of examples. A batch larger than the training set repeats it.

    Example:
        >>> from steadyrnn.tasks.settings import StableSystemSettings
        >>> task = StableSystem(StableSystemSettings())
        >>> batch = task.train_batch(0, 1)
        >>> batch.input.shape, batch.target.shape
        (torch.Size([200, 1, 32]), torch.Size([1, 1]))
        >>> round(task.baselines["loss"], 4)
        1.3333

    References:
        Miller, Hardt. When Recurrent Models Don't Need To Be Recurrent. Section 7.1 and appendix A.5.
    """

    def __init__(self, settings: StableSystemSettings) -> None:
        super().__init__()
        check_positive_int("length", settings.length)
        check_positive_int("inputs", settings.inputs)
        if settings.target not in ("uniform", "system"):
            raise ArgumentError(not_among("target", settings.target, ("uniform", "system")))
        if check_interval("bound", settings.bound, 0.0, 1.0) == 1:
            raise ArgumentError("`bound` must be below 1, or the system is not stable, but is 1.")
        self.settings = settings
        self._counts = split_counts(settings, "train", "validation", "test")
        self._order = EpochOrder(settings.seed, settings.train)
        self._response: Tensor | None = None
        if settings.target == "system":
            self._response = impulse_response(settings.seed, settings.length, settings.inputs, settings.bound)
        self._kept: Batch | None = None  # the training examples, once they are drawn

    @property
    def interface(self) -> Interface:
        """One number from the last step."""
        return Interface(inputs=self.settings.inputs, outputs=1)

    @property
    def baselines(self) -> Mapping[str, float]:
        """The error of answering 0: the variance of the target."""
        if self._response is None:
            return {"loss": _RANGE**2 / 3}
        return {"loss": _DEVIATION**2 * float(self._response.square().sum())}

    def epoch_steps(self, batch_size: int) -> int:
        """Return how many batches it takes to see every training example."""
        return self._order.steps(batch_size)

    def train_batch(self, step: int, batch_size: int) -> Batch:
        """Return ``batch_size`` training examples, in the epoch's order."""
        rows = self._order.rows(step, batch_size, self.device)
        if self._kept is None:
            blocks = list(self.batches("train", _BLOCK))
            self._kept = Batch(torch.cat([b.input for b in blocks], 1), torch.cat([b.target for b in blocks]))
        return Batch(self._kept.input.index_select(1, rows), self._kept.target.index_select(0, rows))

    def batches(self, split: str, batch_size: int) -> Iterator[Batch]:
        """Yield the batches of ``"train"``, ``"validation"`` or ``"test"``."""
        return (
            self._examples(Stream[split.upper()], torch.arange(rows.start, rows.stop, device=self.device))
            for rows in cut(split, self._counts, batch_size)
        )

    def to(self, device: torch.device | str) -> "StableSystem":
        """Move the system's response, drop the training examples; return the task itself."""
        super().to(device)
        self._kept = None
        self._response = None if self._response is None else self._response.to(self.device)
        return self

    def _examples(self, stream: Stream, index: Tensor) -> Batch:
        seed, length, inputs = self.settings.seed, self.settings.length, self.settings.inputs
        places = torch.arange(length * inputs, device=self.device).view(length, 1, inputs)
        x = _DEVIATION * gaussian(seed, stream, index.unsqueeze(-1), places)  # (T, B, D)
        if self._response is None:
            target = 2 * _RANGE * uniform(seed, stream, index, _TARGET) - _RANGE  # (B,)
        else:
            target = torch.einsum("tbd,td->b", x.double(), self._response).float()
        return Batch(input=x, target=target.unsqueeze(-1))
