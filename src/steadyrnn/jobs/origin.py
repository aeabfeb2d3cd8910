"""Where a run comes from, and with that how its model and its task are made again."""

from abc import ABC, abstractmethod
from typing import Any

from torch import nn

from steadyrnn.runs.checkpoint import Checkpoint
from steadyrnn.runs.folder import Run
from steadyrnn.tasks.base import Task
from steadyrnn.train.settings import TrainSettings

__all__ = ["Origin", "collect_task_facts"]


class Origin(ABC):
    """How the model and the task of a run are made again.

    Args:
        run: The run.
        task_name: What the task is called.
        model_name: What the model is called.
        train: How it was trained.
    """

    def __init__(self, run: Run, task_name: str, model_name: str, train: TrainSettings) -> None:
        self.run, self.task_name, self.model_name, self.train = run, task_name, model_name, train

    @abstractmethod
    def make_model(self, stored: Checkpoint) -> nn.Module:
        """Return a fresh model; sizes that its checkpoint does not bear out are refused before memory is taken.

        Raises:
            RunError: The run does not say how.
        """

    @abstractmethod
    def make_task(self, data_dir: str | None = None) -> Task:
        """Return the task; ``data_dir`` names another data folder than the run's.

        Raises:
            RunError: The run does not say how.
        """


def collect_task_facts(task: Task, model: nn.Module) -> dict[str, Any]:
    """Return what is noted of any task and model."""
    from_task = {"metric": task.metric, "higher_is_better": task.higher_is_better, "baselines": dict(task.baselines)}
    references, data = task.references(), task.data_facts()
    return {
        **{**from_task, "parameters": sum(parameter.numel() for parameter in model.parameters())},
        **({"references": {name: dict(scores) for name, scores in references.items()}} if references else {}),
        **({"data": dict(data)} if data else {}),
    }
