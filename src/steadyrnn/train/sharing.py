"""What the processes of a run share of a batch: its rows, or its steps of time."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from torch import nn

from steadyrnn.errors import ArgumentError
from steadyrnn.tasks.base import Batch, Interface, Task

from .model_call import rows_of_rank, state_of_rank
from .ranks import Ranks
from .settings import TrainSettings
from .spread_state import whole_state

__all__ = ["OverRanks", "Sharing", "check_time_sharing", "shares_time", "sharing_of"]

OverRanks = Callable[[nn.Module], Callable[..., Any]]
"""Returns what every rank calls with its steps in place of a model."""


class Sharing(ABC):
    """How ranks divide a batch; parts are in the order of ranks.

    Laws: the parts of all ranks make up the batch. ``own_state`` of what ``gather_state`` returned is the state again.
    """

    @abstractmethod
    def part(self, batch: Batch, ranks: Ranks, interface: Interface) -> Batch:
        """Return this rank's part of a batch."""

    @abstractmethod
    def pieces(self, accumulate: int, ranks: Ranks) -> int:
        """Return into how many pieces a rank cuts the rows of its part, so that none is larger than in one process."""

    @abstractmethod
    def scored(self, batches: Iterable[Batch], ranks: Ranks, interface: Interface) -> Iterator[Batch]:
        """Yield what this rank scores of the batches of a split."""

    @abstractmethod
    def gather_state(self, state: Any, ranks: Ranks) -> Any:
        """Return the carried state of the whole batch; all ranks call it."""

    @abstractmethod
    def own_state(self, whole: Any, ranks: Ranks) -> Any:
        """Return what this rank goes on from, of the carried state of a whole batch."""


class Rows(Sharing):
    """Each rank has some of the rows, and their states.

    Example:
        >>> batches = [Batch(torch.zeros(5, rows, 2), torch.zeros(rows, 1)) for rows in (3, 4, 5)]
        >>> [batch.input.shape[1] for batch in Rows().scored(batches, Ranks(0, 2), Interface(2, 1))]
        [3, 5]
    """

    def part(self, batch: Batch, ranks: Ranks, interface: Interface) -> Batch:
        """Return some of the rows."""
        return rows_of_rank(batch, ranks.rank, ranks.size, interface) if ranks.size > 1 else batch

    def pieces(self, accumulate: int, ranks: Ranks) -> int:
        """Return fewer pieces than in one process: there are fewer rows."""
        return -(-accumulate // ranks.size)

    def scored(self, batches: Iterable[Batch], ranks: Ranks, interface: Interface) -> Iterator[Batch]:
        """Yield every so many batches; if they go on from one another, all of them on the first rank."""
        for number, batch in enumerate(batches):
            if ranks.rank == (0 if interface.carries_state else number % ranks.size):
                yield batch

    def gather_state(self, state: Any, ranks: Ranks) -> Any:
        """Put the rows of all ranks together."""
        return whole_state(state, ranks)

    def own_state(self, whole: Any, ranks: Ranks) -> Any:
        """Return the state's rows that belong to the rank's."""
        return state_of_rank(whole, ranks.rank, ranks.size) if ranks.size > 1 else whole


class Time(Sharing):
    """Each rank has some of the steps of all rows; the state behind the last step is on every rank.

    Example:
        >>> batch = Batch(torch.zeros(5, 3, 2), torch.zeros(5, 3, 1))
        >>> [Time().part(batch, Ranks(rank, 2), Interface(2, 1, reads="each")).input.shape[0] for rank in range(2)]
        [3, 2]
    """

    def part(self, batch: Batch, ranks: Ranks, interface: Interface) -> Batch:
        """Return some of the steps; none where there are fewer than ranks."""
        if ranks.size == 1:
            return batch
        if interface.reads != "each" or batch.lengths is not None:
            raise ArgumentError("Ranks share the time of batches with a target at every step and rows of one length only.")
        x, y = (tensor.tensor_split(ranks.size)[ranks.rank] for tensor in (batch.input, batch.target))
        return replace(batch, input=x, target=y)

    def pieces(self, accumulate: int, ranks: Ranks) -> int:
        """Return as many pieces as in one process: each rank has all rows."""
        return accumulate

    def scored(self, batches: Iterable[Batch], ranks: Ranks, interface: Interface) -> Iterator[Batch]:
        """Yield the part of every batch."""
        return (self.part(batch, ranks, interface) for batch in batches)

    def gather_state(self, state: Any, ranks: Ranks) -> Any:
        """Return the state, which is whole."""
        return state

    def own_state(self, whole: Any, ranks: Ranks) -> Any:
        """Return the state: the first rank goes on from it, and compares it with that of the others."""
        return whole


_SHARINGS: dict[str, Sharing] = {"rows": Rows(), "time": Time()}


def sharing_of(task: Task) -> Sharing:
    """Return how ranks divide the batches of a task."""
    return _SHARINGS[task.ranks_share]


def shares_time(task: Task, ranks: Ranks) -> bool:
    """Say whether several processes share the time of a task's batches."""
    return ranks.size > 1 and task.ranks_share == "time"


def check_time_sharing(task: Task, settings: TrainSettings, ranks: Ranks, over_ranks: OverRanks | None) -> None:
    """Refuse what cannot be done by ranks that share time.

    Raises:
        ArgumentError: Nothing is given by which a model runs over ranks, or steps are to be compiled or captured.

    Example:
        >>> from steadyrnn.tasks.registry import make_task
        >>> check_time_sharing(make_task("addition"), TrainSettings(), Ranks(0, 2), None)
    """
    if not shares_time(task, ranks):
        return
    if over_ranks is None:
        raise ArgumentError(
            "Ranks share the time of this task's batches, so `over_ranks` must say what they call: `lambda model: "
            "to_parallel(model, tol, group=True)`. `train_network` and `train_model` give it."
        )
    for name, on in (("compile", settings.compile), ("graph", settings.graph == "on")):
        if on:
            raise ArgumentError(f"`{name}` must be left out where ranks share time: they exchange states within a step.")
