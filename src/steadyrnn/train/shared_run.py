"""The run folder of several processes: the first one reads and writes it, and tells the others how that went."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from steadyrnn.errors import ArgumentError
from steadyrnn.runs.folder import Run

from .ranks import Ranks

__all__ = ["SharedRun"]


class SharedRun:
    """A run folder, or none, that all processes of a run call as one; of one process it is the folder itself.

    What rank 0 cannot do, a write on a full disk say, is an error on every rank. So none waits for another that has ended.

    Args:
        run: The folder on rank 0, None on the others; None on rank 0, too, where nothing is written.
        ranks: The processes.

    Attributes:
        exists: Whether there is a folder.

    Raises:
        ArgumentError: Another rank was given a folder, too.

    Example:
        >>> from steadyrnn.train.ranks import ALONE
        >>> SharedRun(None, ALONE).exists
        False
    """

    def __init__(self, run: Run | None, ranks: Ranks) -> None:
        self.run, self.ranks = run, ranks
        ranks.agree(self._check_only_first)
        self.exists = bool(ranks.share(run is not None)[0])

    def _check_only_first(self) -> None:
        if self.run is not None and not self.ranks.first:
            raise ArgumentError(
                f"`run` must be None on rank {self.ranks.rank}, but is {self.run.folder}: rank 0 alone writes the folder. Make "
                "or open it there (`run = Run.create(...) if join().first else None`)."
            )

    def log(self, record: Mapping[str, Any], alone: bool = False) -> None:
        """Append a record to the metrics; ``alone`` without a word to other ranks, which may have no such record, or later."""
        if alone:
            if self.run is not None:
                self.run.log(record)
        elif self.exists:
            self.ranks.lead(lambda: self._own.log(record))

    def rewind(self, step: int) -> None:
        """Drop the records of later steps."""
        if self.exists:
            self.ranks.lead(lambda: self._own.rewind(step))

    def save(self, name: str, tensors: Mapping[str, Tensor], facts: Any) -> None:
        """Replace a checkpoint by what rank 0 gives."""
        if self.exists:
            self.ranks.lead(lambda: self._own.save(name, tensors, facts))

    @property
    def _own(self) -> Run:
        if self.run is None:
            raise ArgumentError("Rank 0 alone has the folder of the run.")
        return self.run
