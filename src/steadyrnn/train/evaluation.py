"""Scores of a model on a split of a task."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from steadyrnn.checks import check_positive_int
from steadyrnn.constraints.slot import cached
from steadyrnn.errors import DataError
from steadyrnn.tasks.base import Task

from .device import autocast as autocast_context
from .model_call import call_model
from .randomness import keep_random_state
from .ranks import ALONE, Ranks
from .sharing import sharing_of

__all__ = ["evaluate", "evaluation_mode"]


def evaluate(
    model: nn.Module,
    task: Task,
    split: str,
    batch_size: int,
    *,
    autocast: str | None = None,
    call: Callable[..., Any] | None = None,
    ranks: Ranks = ALONE,
) -> dict[str, float]:
    """Return the scores of a model on a split, with dropout off; the model and all random states stay as they are.

    Each constraint is evaluated once. Sums stay on the device until the end, in float64.

    Args:
        model: Any module that takes the task's batches; the task's data goes to its device.
        task: The task.
        split: ``"validation"``, ``"test"`` or what else the task has.
        batch_size: Rows of a batch.
        autocast: ``"bfloat16"`` or ``"float16"``; None is full precision.
        call: What to call instead of the model, e.g. the model compiled.
        ranks: The processes that share the batches of the split; all return the same scores. Batches that go on from one
            another are all scored by the first, unless ranks share their time.

    Returns:
        The task's summary: ``"loss"`` and the task's metric at least.

    Example:
        >>> from steadyrnn.tasks.registry import make_task
        >>> scores = evaluate(sr.SequenceModel(sr.RNN(2, 4), 1), make_task("addition", length=10), "test", 100)
        >>> list(scores)
        ['loss']
    """
    check_positive_int("batch_size", batch_size)
    device = next((parameter.device for parameter in model.parameters()), task.device)
    if task.device != device:
        task.to(device)
    with evaluation_mode(model), torch.no_grad(), cached(), keep_random_state():
        sums = _sums(model if call is None else call, task, split, batch_size, autocast, ranks)
    own = dict(zip(sums, torch.stack(list(sums.values())).tolist(), strict=True)) if sums else {}
    total = ranks.add_values(own)
    if not total:
        raise DataError(f"The split {split!r} of the task has no examples, so there is nothing to score.")
    return task.summary(total)


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode; put every part of it back into its own mode afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _sums(
    call: Callable[..., Any], task: Task, split: str, batch_size: int, autocast: str | None, ranks: Ranks
) -> dict[str, Tensor]:
    """Add the task's scores up over this process's batches of a split, carrying states along where the task does."""
    interface, state = task.interface, None
    sums: dict[str, Tensor] = {}
    for batch in sharing_of(task).scored(task.batches(split, batch_size), ranks, interface):
        with autocast_context(autocast, task.device):
            output, state = call_model(call, batch, state, interface)
        for name, value in task.scores(output, batch).items():
            value = value.detach().double()
            sums[name] = sums[name] + value if name in sums else value
    return sums
