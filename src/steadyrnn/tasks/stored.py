"""From what a run folder keeps of a task back to the task."""

from collections.abc import Callable, Mapping

from steadyrnn.errors import ArgumentError, not_among

from .base import StoredData, Task
from .series.storing import SERIES
from .series.task import restore_series_task
from .tensors import TensorClassification, TensorRegression

__all__ = ["STORED", "restore_task"]

STORED: Mapping[str, Callable[[StoredData], Task]] = {
    **{one.kind: one.from_stored for one in (TensorClassification, TensorRegression)},
    SERIES: restore_series_task,
}
"""How a task of each kind is made again. A task that returns data of a new kind from ``stored`` is one entry here."""


def restore_task(data: StoredData) -> Task:
    """Return the task that was stored.

    Raises:
        SteadyError: The data are not those of a task.

    Example:
        >>> from steadyrnn.tasks.tensors import Part
        >>> x = torch.randn(5, 4, 2)
        >>> task = TensorRegression(Part(x, x.sum(0)), Part(x, x.sum(0)))
        >>> restore_task(task.stored()).baselines == task.baselines
        True
    """
    if data.kind not in STORED:
        raise ArgumentError(not_among("kind", data.kind, STORED))
    return STORED[data.kind](data)
