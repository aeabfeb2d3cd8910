"""The settings of every task, free of torch: the command line reads them to show its help."""

from dataclasses import dataclass

__all__ = ["TASK_SETTINGS", "AdditionSettings", "TaskSettings"]


@dataclass(frozen=True)
class TaskSettings:
    """What every task has.

    Args:
        seed: Numbers the data: examples of a synthetic task, order and validation split of a stored one.
    """

    seed: int = 0


@dataclass(frozen=True)
class AdditionSettings(TaskSettings):
    """The addition problem: add the two marked numbers of a sequence.

    Args:
        length: Steps, L, an even number of at least 2.
        validation: Number of examples.
        test: Number of examples.
    """

    length: int = 100
    validation: int = 1000
    test: int = 1000


TASK_SETTINGS: dict[str, type[TaskSettings]] = {
    "addition": AdditionSettings,
}
"""Every task by name."""
