"""The watch over losses and gradients: a step whose numbers are not finite changes nothing and ends the run."""

import math

import torch
from torch import Tensor

from steadyrnn.errors import TrainingError

__all__ = ["Guard", "not_finite"]


class Guard:
    """Looks at the loss and the gradient norm of every step before the optimizer moves.

    Waiting for a GPU at every step would slow it down. So, if ``waits`` is False, a flag on the device is raised instead, by
    the first step whose numbers are not finite; the optimizer's kernel reads it (:attr:`flag`, its ``found_inf``) and changes
    nothing from that step on. :meth:`check` then raises. Either way the weights are those before that step.

    Args:
        device: Where the numbers are.
        waits: Whether to look at once, which needs the device's answer.

    Example:
        >>> guard = Guard(torch.device("cpu"), waits=False)
        >>> guard.watch(7, torch.tensor(float("nan")), torch.tensor(1.0))
        >>> guard.flag
        tensor(1.)
        >>> guard.check()
        Traceback (most recent call last):
        ...
        steadyrnn.errors.TrainingError: Step 7 is not finite: its loss is nan and the norm of its gradients 1...
    """

    def __init__(self, device: torch.device, waits: bool) -> None:
        self.waits = waits
        self.flag = torch.zeros((), device=device)
        self._step = torch.zeros((), device=device, dtype=torch.int64)
        self._loss, self._norm = (torch.zeros((), device=device, dtype=torch.float64) for _ in range(2))

    def watch(self, step: int, loss: Tensor, norm: Tensor) -> None:
        """Look at step number ``step``: raise at once, or raise the flag."""
        if self.waits:
            if not (math.isfinite(loss) and math.isfinite(norm)):
                raise not_finite(step, float(loss), float(norm))
            return
        bad = ~(loss.isfinite() & norm.isfinite())
        first = bad & (self.flag == 0)
        self._step = torch.where(first, step, self._step)
        self._loss, self._norm = torch.where(first, loss, self._loss), torch.where(first, norm, self._norm)
        self.flag.copy_(torch.maximum(self.flag, bad.to(self.flag)))  # in place: the optimizer holds this tensor

    def check(self) -> None:
        """Raise if a step before was not finite; waits for the device."""
        if not self.waits and bool(self.flag):
            raise not_finite(int(self._step), float(self._loss), float(self._norm))


def not_finite(step: int, loss: float, norm: float) -> TrainingError:
    """Return the error of a step whose loss or gradient is not finite.

    Example:
        >>> str(not_finite(7, float("nan"), 1.0))[:46]
        'Step 7 is not finite: its loss is nan and the '
    """
    return TrainingError(
        f"Step {step} is not finite: its loss is {loss:.6g} and the norm of its gradients {norm:.6g}. The weights are those "
        "before the step. Lower `optimizer.lr`, clip with `clip.norm`, keep the transition's singular values near 1, or look "
        "for NaN in the data."
    )
