"""What a task is: batches in a fixed order, a loss, scores."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

__all__ = ["Batch", "Interface", "Stage", "StoredData", "Task"]


@dataclass(frozen=True)
class Interface:
    """What a model takes and gives to work on a task; the only thing a model is built from.

    Args:
        inputs: Features of a step, D (of a row where ``reads`` is ``"row"``); of a task of tokens, the width its paper embeds
            them in, or 0 where it leaves that open.
        outputs: Numbers the model gives, N.
        vocabulary: Number of tokens where the input holds tokens, else None.
        reads: ``"last"``: (T, B, D) to (B, N), from the last step. ``"each"``: (T, B, D) to (T, B, N), from every step.
            ``"row"``: (B, D) to (B, N), no time. Tokens have no D.
        carries_state: Whether a batch goes on where the one before it ended, so that states go along.
    """

    inputs: int
    outputs: int
    vocabulary: int | None = None
    reads: str = "last"
    carries_state: bool = False


@dataclass(frozen=True)
class Batch:
    """Some examples: input (T, B, D), (T, B) or (B, D); target as the task's loss takes it; rows' lengths, (B,), if ragged.

    ``fresh`` says that the batch starts a sequence: a state carried from another batch must not reach it.
    """

    input: Tensor
    target: Tensor
    lengths: Tensor | None = None
    fresh: bool = True

    def count_rows(self, interface: Interface) -> int:
        """Return the number of rows, B."""
        return self.input.shape[0 if interface.reads == "row" else 1]


@dataclass(frozen=True)
class StoredData:
    """What a run folder keeps of a task whose data lie in memory, so that it can be made again.

    Args:
        kind: How the task is made again: a key of :data:`~steadyrnn.tasks.stored.STORED`.
        facts: Its settings, as JSON.
        tensors: Its data, by name.
    """

    kind: str
    facts: dict[str, Any]
    tensors: dict[str, Tensor]


@dataclass(frozen=True)
class Stage:
    """A part of a curriculum: some steps on examples that are easier than the task's own, the last part on these.

    Args:
        name: As metrics have it: ``length 50``.
        task: What it trains on. It differs from the task in its examples alone: interface, loss and scores are the same.
        steps: The steps of a run are divided between stages in proportion to these numbers.
        rate: What every learning rate is multiplied by.
        below: The stage is over early when the validation loss on its own ``task`` is below this; None is never. Of the last
            stage it is not read.
    """

    name: str
    task: "Task"
    steps: float = 1.0
    rate: float = 1.0
    below: float | None = None


class Task(ABC):
    """Training batches by number, validation and test in order, a loss and scores.

    Laws. ``train_batch(step, size)`` is a pure function of the task's settings, ``step`` and ``size``: a run that was cut off
    goes on with the batches it would have seen, whatever happened before. Batches of ``split`` come in a fixed order and cover
    it once. Sums from :meth:`scores` add up over batches; :meth:`summary` of the sums does not depend on how they were cut.
    Every tensor is on ``device``; :meth:`to` moves what is stored.
    """

    metric: ClassVar[str]  # a name in `summary`, the one a user watches
    higher_is_better: ClassVar[bool]

    def __init__(self) -> None:
        self.device = torch.device("cpu")

    @property
    @abstractmethod
    def interface(self) -> Interface:
        """What a model must take and give."""

    @property
    @abstractmethod
    def baselines(self) -> Mapping[str, float]:
        """Scores, by the names of :meth:`summary`, of the best constant answer; may be empty."""

    def references(self) -> Mapping[str, Mapping[str, float]]:
        """Return the test scores of simple methods by name, beside which a network is shown; none here."""
        return {}

    def data_facts(self) -> Mapping[str, Any]:
        """Return what is to be noted of the data as JSON, such as files and scaling; nothing here."""
        return {}

    @property
    def ranks_share(self) -> str:
        """What several processes divide of a batch: ``"rows"``, or its steps, ``"time"``.

        With ``"time"`` every step has a target, all rows of a batch have one length, and the loss of a batch is made up of
        those of its steps by :meth:`batch_weight`.
        """
        return "rows"

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The parts of a curriculum, in order; empty where all steps train on the task itself.

        Each has its own part of the steps, with an optimizer and a schedule that start anew. Validation and test are the task's
        own throughout.
        """
        return ()

    @property
    def varies(self) -> bool:
        """Whether training batches have many shapes, so that nothing is worth keeping for each of them."""
        return any(stage.task.varies for stage in self.stages)

    @abstractmethod
    def epoch_steps(self, batch_size: int) -> int:
        """Return how many training batches make an epoch; a task that never repeats names a round number."""

    @abstractmethod
    def train_batch(self, step: int, batch_size: int) -> Batch:
        """Return training batch number ``step``, from 0 on and without end."""

    @abstractmethod
    def batches(self, split: str, batch_size: int) -> Iterator[Batch]:
        """Yield the batches of ``"validation"`` or ``"test"`` (also ``"train"`` where the task has a finite one)."""

    @abstractmethod
    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """Return the scalar to minimize, a mean over the batch."""

    def batch_weight(self, batch: Batch) -> Tensor | float:
        r"""Return what the loss of a batch is divided by, as a mean: by default the number of rows.

        A batch that is cut by rows into parts, of one process (``accumulate``) or of several, has the loss

        .. math:: L = \sum_k \frac{w_k}{\sum_j w_j} L_k

        with the weights :math:`w_k` of its parts. A task whose loss leaves steps out, or counts some more than others, must say
        how much of it a batch has: the number of targets that count, or the sum of their weights. Weights of parts add up to
        that of the batch. A tensor is a scalar on the device.
        """
        return float(batch.count_rows(self.interface))

    @abstractmethod
    def scores(self, output: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Return sums over the batch, each a scalar on the device."""

    @abstractmethod
    def summary(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Return scores from sums added up over batches; contains ``"loss"`` and :attr:`metric`."""

    def stored(self) -> StoredData | None:
        """Return what a run folder keeps, so that the program can score the run; None where a task cannot be stored."""
        return None

    def to(self, device: torch.device | str) -> "Task":
        """Move what the task stores; return the task itself."""
        self.device = torch.device(device)
        return self
