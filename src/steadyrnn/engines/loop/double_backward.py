"""Gradients that can themselves be differentiated, for the backward of a fast engine."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from steadyrnn.checks import without_autocast

__all__ = ["gradients_of"]


def fresh(tensors: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Return a view of each tensor, so that a derivative by one does not run on into what it was made from.

    The state of a second chunk depends on the weight that the first one shares with it; the parts of a factored weight
    depend on one another. Differentiated as they are, such ways would be counted here and again by the caller's graph.
    """
    with torch.enable_grad():
        return [None if tensor is None else tensor.view_as(tensor) for tensor in tensors]


def gradients_of(
    run: Callable[..., Sequence[Tensor]], tensors: Sequence[Tensor | None], needs: Sequence[bool],
    grads: Sequence[Tensor | None], device: torch.device,
) -> list[Tensor | None]:  # fmt: skip
    """Return the gradients of ``tensors``, as a graph of plain operations.

    A hand-written backward is not differentiable. Where a second derivative is wanted (``create_graph=True``), the same is
    computed again from the same tensors, and that graph is used instead: slower, and right to any order.

    Args:
        run: Computes results from tensors by operations that torch differentiates.
        tensors: What to differentiate by, None where there is none.
        needs: Which of them need a gradient.
        grads: Gradients of the results, None where nothing arrived.
        device: Where tensors are; nothing is cast there, also in a backward under autocast.

    Example:
        >>> x = torch.ones(1, requires_grad=True)
        >>> gradients_of(lambda t: (t**3,), (x,), (True,), (torch.ones(1),), x.device)
        [tensor([3.], grad_fn=<MulBackward0>)]
    """
    views = fresh(tensors)
    with torch.enable_grad(), without_autocast(device):
        results = run(*views)
        pairs = [(o, g) for o, g in zip(results, grads, strict=True) if g is not None and o.requires_grad]
        wanted = [t for t, need in zip(views, needs, strict=True) if need and t is not None]
        found = iter(
            torch.autograd.grad([o for o, _ in pairs], wanted, [g for _, g in pairs], create_graph=True, allow_unused=True)
            if pairs and wanted
            else [None] * len(wanted)
        )
    return [next(found) if need and t is not None else None for t, need in zip(views, needs, strict=True)]
