"""Gradients that can themselves be differentiated: the reference loop's, for the backward of a fast engine."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor, peek_interpreter_stack

from steadyrnn.checks import without_autocast

from .base import Recurrence
from .reference import ReferenceEngine

__all__ = ["fresh", "gradients_of", "reference_gradients", "wants_graph"]


def wants_graph(grads: Sequence[Tensor | None]) -> bool:
    """Say whether, in a backward, a second derivative is wanted, or one for many cotangents at once."""
    many = peek_interpreter_stack() is not None or any(g is not None and is_legacy_batchedtensor(g) for g in grads)
    return torch.is_grad_enabled() or many


def fresh(tensors: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Return a view of each tensor, so that a derivative by one does not run on into what it was made from.

    The state of a second chunk depends on the weight that the first one shares with it; the parts of a factored weight
    depend on one another. Differentiated as they are, such ways would be counted here and again by the caller's graph.
    """
    with torch.enable_grad():
        return [None if tensor is None else tensor.view_as(tensor) for tensor in tensors]


def reference_gradients(
    recurrence: Recurrence, tensors: Sequence[Tensor | None], needs: Sequence[bool], grads: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Return the gradients of ``tensors``, as a graph of plain operations.

    A hand-written backward is not differentiable. Where a second derivative is wanted (``create_graph=True``), the
    reference loop is run again on the same tensors and its graph is used instead: slower, and right to any order.

    Args:
        recurrence: The run; its tensors are those of ``tensors``.
        tensors: Tensors to differentiate by, as :func:`fresh` gives them, None where there is none.
        needs: Which of them need a gradient.
        grads: Gradients of the output and of each final state, None where nothing arrived.
    """

    def run(*_: Tensor | None) -> Sequence[Tensor]:  # they are those of the recurrence
        output, state = ReferenceEngine().run(recurrence)
        return output, *state

    with without_autocast(recurrence.input.device):
        return differentiated(run, tensors, needs, grads)


def gradients_of(
    run: Callable[..., Sequence[Tensor]], tensors: Sequence[Tensor], needs: Sequence[bool], grads: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Return the gradients of ``tensors``, as a graph of plain operations.

    Args:
        run: Computes results from tensors by operations that torch differentiates.
        tensors: What to differentiate by.
        needs: Which of them need a gradient.
        grads: Gradients of the results, None where nothing arrived.

    Example:
        >>> x = torch.ones(1, requires_grad=True)
        >>> with torch.enable_grad():
        ...     gradients_of(lambda t: (t**3,), (x,), (True,), (torch.ones(1),))
        [tensor([3.], grad_fn=<MulBackward0>)]
    """
    return differentiated(run, fresh(tensors), needs, grads)


def differentiated(
    run: Callable[..., Sequence[Tensor]], tensors: Sequence[Tensor | None], needs: Sequence[bool],
    grads: Sequence[Tensor | None],
) -> list[Tensor | None]:  # fmt: skip
    """Return :func:`gradients_of` tensors that are fresh already, None where there is none."""
    with torch.enable_grad():
        results = run(*tensors)
        pairs = [(o, g) for o, g in zip(results, grads, strict=True) if g is not None and o.requires_grad]
        wanted = [t for t, need in zip(tensors, needs, strict=True) if need and t is not None]
        found = iter(
            torch.autograd.grad([o for o, _ in pairs], wanted, [g for _, g in pairs], create_graph=True, allow_unused=True)
            if pairs and wanted
            else [None] * len(wanted)
        )
    return [next(found) if need and t is not None else None for t, need in zip(tensors, needs, strict=True)]
