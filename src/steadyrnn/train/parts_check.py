"""Whether the loss of a batch is made up of the losses of its parts as the task says: seen before it is relied on."""

import torch
from torch import Tensor

from steadyrnn.errors import ArgumentError
from steadyrnn.tasks.base import Batch, Task

from .model_call import batch_rows, cut

__all__ = ["check_parts"]


@torch.no_grad()
def check_parts(task: Task, output: Tensor, batch: Batch) -> None:
    r"""Refuse a task whose batches cannot be cut into parts, or that does not say how parts count.

    With the halves :math:`a, b` of a batch it must hold that :math:`w L = w_a L_a + w_b L_b`, with the losses L and the weights
    w of ``batch_weight``, and that :math:`w = w_a + w_b`, up to the rounding of sums of n numbers: :math:`8 \sqrt n u`, which
    they exceed with a probability below :math:`10^{-13}` if rounding errors are independent.

    Args:
        task: The task.
        output: What a model gave for the batch, in any dtype.
        batch: The batch; of one row nothing is seen.

    Raises:
        ArgumentError: It does not hold.

    Example:
        >>> from steadyrnn.tasks.registry import make_task
        >>> task = make_task("addition", length=5)
        >>> check_parts(task, torch.zeros(6, 1), task.train_batch(0, 6))

    References:
        Higham, Mary. A New Approach to Probabilistic Rounding Error Analysis. SIAM J. Sci. Comput. 2019.
    """
    if batch_rows(batch, task.interface) < 2:
        return
    outputs = output.tensor_split(2, 1 if task.interface.reads == "each" else 0)
    halves = [part.batch for part in cut(batch, None, 2, task.interface)]
    whole, weight = task.loss(output, batch), task.batch_weight(batch)
    losses = [task.loss(own, half) for own, half in zip(outputs, halves, strict=True)]
    weights = [task.batch_weight(half) for half in halves]
    terms = [part * share for part, share in zip(losses, weights, strict=True) if float(share) > 0]
    rounding = 8 * torch.finfo(whole.dtype).eps * max(output.numel(), batch.target.numel()) ** 0.5
    size = sum((term.abs() for term in terms), start=torch.zeros_like(whole))
    rest = (whole * weight - sum(terms, start=torch.zeros_like(whole))).abs()
    counted = abs(float(weight) - sum(map(float, weights))) <= rounding * abs(float(weight))
    finite = bool(torch.isfinite(size)) and bool(torch.isfinite(whole * weight))
    if not counted or (finite and bool(rest > rounding * size)):
        raise ArgumentError(
            f"A batch of {type(task).__name__} cannot be cut into parts, which `accumulate` above 1 and several ranks do: its "
            "loss is not the mean of those of its parts by their shares of the rows. Define `batch_weight(batch)` of the task: "
            "what the loss of a batch is divided by, the number of targets that count, say. Where rows of a batch depend on "
            "each other, train with `accumulate` of 1 in one process."
        )
