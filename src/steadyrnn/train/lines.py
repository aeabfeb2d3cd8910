"""Lines of metrics: what a run notes of its training, validations and test."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from steadyrnn.tasks.base import Task

__all__ = ["make_line", "training_values"]


def make_line(kind: str, step: int, epoch_steps: int, time: float, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line of metrics: when, and what.

    Example:
        >>> make_line("validation", 50, 100, 2.5, {"loss": 0.25})
        {'kind': 'validation', 'step': 50, 'epoch': 0.5, 'time': 2.5, 'loss': 0.25}
    """
    return {"kind": kind, "step": step, "epoch": step / epoch_steps, "time": time, **values}


def training_values(
    task: Task, sums: Mapping[str, Tensor] | Mapping[str, float], means: tuple[float, float], rate: float, speed: float
) -> dict[str, Any]:
    """Return what a line of training says.

    Args:
        task: The task.
        sums: Its sums over the latest batch.
        means: The mean loss and the mean norm of the gradients since the line before.
        rate: The learning rate.
        speed: Rows per second since the line before.

    Example:
        >>> from steadyrnn.tasks.registry import make_task
        >>> sums = {"squared_error": torch.tensor(2.0), "count": torch.tensor(8.0)}
        >>> list(training_values(make_task("addition"), sums, (0.3, 1.5), 0.01, 900.0))
        ['loss', 'lr', 'gradient_norm', 'examples_per_second']
    """
    scores = task.summary({name: float(value) for name, value in sums.items()})
    loss, norm = means
    return scores | {"loss": loss, "lr": rate, "gradient_norm": norm, "examples_per_second": speed}
