"""The stages of a run: which task its batches come from, for how many steps, at which rates."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from steadyrnn.errors import ArgumentError
from steadyrnn.tasks.base import Stage, Task

__all__ = ["PlannedStage", "divide_steps", "plan_stages"]


@dataclass(frozen=True)
class PlannedStage:
    """A stage with the steps that it has in a run.

    Args:
        name: As metrics have it; empty where a run has one stage, its task.
        task: What batches come from.
        steps: Optimizer steps, at most.
        rate: What every learning rate is multiplied by.
        below: Validation loss on ``task`` at which it is over early; None of the last stage.
    """

    name: str
    task: Task
    steps: int
    rate: float = 1.0
    below: float | None = None


def plan_stages(task: Task, total: int) -> tuple[PlannedStage, ...]:
    """Return the stages of a run, one at least.

    Args:
        task: A task, with stages or without.
        total: Optimizer steps of all stages together.

    Raises:
        ArgumentError: There are fewer steps than stages.

    Example:
        >>> from steadyrnn.tasks.registry import make_task
        >>> [(stage.name, stage.steps) for stage in plan_stages(make_task("addition", length=200, curriculum="auto"), 1000)]
        [('length 50', 400), ('length 100', 200), ('length 200', 400)]
    """
    stages = task.stages
    if not stages:
        return (PlannedStage("", task, total),)
    if total < len(stages):
        raise ArgumentError(
            f"`steps` must be at least the number of stages of the task, {len(stages)}, but is {total}. Give more, or a task "
            "without a curriculum."
        )
    return tuple(
        PlannedStage(stage.name, stage.task, steps, stage.rate, None if stage is stages[-1] else stage.below)
        for stage, steps in zip(stages, divide_steps(total, stages), strict=True)
    )


def divide_steps(total: int, stages: Sequence[Stage]) -> list[int]:
    """Return how many of ``total`` steps each stage has: its share up to rounding, and at least one."""
    count, sums = len(stages), list(accumulate(stage.steps for stage in stages))
    ends = [0]
    for place, share in enumerate(sums, start=1):
        ends.append(min(max(round(total * share / sums[-1]), ends[-1] + 1), total - (count - place)))
    return [end - start for start, end in pairwise(ends)]
