"""What came out of a run, as it is returned and as its last checkpoint has it."""

from dataclasses import dataclass

from steadyrnn.runs.folder import Run

from .state import Position, read_position

__all__ = ["Result", "make_result", "read_result"]


@dataclass(frozen=True)
class Result:
    """What came out of a run.

    Attributes:
        last: Scores of the last validation.
        best: Scores of the best validation: by the task's metric, by the loss among equals.
        best_step: Optimizer steps done at that time.
        test: Scores on the test split, of the best weights.
        steps: Optimizer steps done.
        reason: Why the run ended: ``"finished"``, ``"patience"`` or ``"below"``.
        seconds: From start to end, summed over resumes.
        examples_per_second: Rows per second, of training alone.
    """

    last: dict[str, float]
    best: dict[str, float]
    best_step: int
    test: dict[str, float]
    steps: int
    reason: str
    seconds: float
    examples_per_second: float


def make_result(position: Position, window: tuple[int, float] = (0, 0.0)) -> Result:
    """Return the result of a run that stands at its end.

    Args:
        position: Where it stands.
        window: Rows and seconds of training since the last line of metrics.

    Example:
        >>> make_result(Position(step=3, reason="finished", rows=30, training=2.0)).examples_per_second
        15.0
    """
    rows, training = position.rows + window[0], position.training + window[1]
    return Result(
        last=position.validation,
        best=position.best,
        best_step=position.standing.best_step,
        test=position.test,
        steps=position.step,
        reason=position.reason or "",
        seconds=position.elapsed,
        examples_per_second=rows / training if training > 0 else 0.0,
    )


def read_result(run: Run) -> Result | None:
    """Return the result of a run from its last checkpoint, None where it has not ended.

    Raises:
        CheckpointError: The checkpoint is damaged, or was not written by the trainer.
    """
    if "last" not in run.checkpoints():
        return None
    position = read_position(run.load("last").facts)
    return make_result(position) if position.reason is not None else None
