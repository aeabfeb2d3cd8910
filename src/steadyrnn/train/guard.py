"""The watch over losses and gradients: a step whose numbers are not finite changes nothing and ends the run."""

import math

import torch
from torch import Tensor
from torch.optim import Optimizer

from steadyrnn.errors import TrainingError

__all__ = ["Guard", "not_finite"]


class Guard:
    """Looks at the loss and the gradient norm of every step before the optimizer moves.

    Waiting for a GPU at every step would slow it down. So, if ``waits`` is False, a flag on the device is raised instead, by
    the first step whose numbers are not finite. A fused optimizer's kernel reads it (:attr:`flag`, its ``found_inf``), and
    :meth:`hold` stops any other: nothing changes from that step on. :meth:`check` then raises. Either way the weights are those
    before that step. All tensors stay in their place, so that a captured step finds them.

    Args:
        device: Where the numbers are.
        waits: Whether to look at once, which needs the device's answer.

    Example:
        >>> guard = Guard(torch.device("cpu"), waits=False)
        >>> guard.begin(7)
        >>> guard.watch(torch.tensor(float("nan")), torch.tensor(1.0))
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
        self._now, self._step = (torch.zeros((), device=device, dtype=torch.int64) for _ in range(2))
        self._loss, self._norm = (torch.zeros((), device=device, dtype=torch.float64) for _ in range(2))

    def begin(self, step: int) -> None:
        """Say which step comes next."""
        self._now.fill_(step)

    def watch(self, loss: Tensor, norm: Tensor) -> None:
        """Look at the step that has begun: raise at once, or raise the flag."""
        if self.waits:
            if not (math.isfinite(loss) and math.isfinite(norm)):
                raise not_finite(int(self._now), float(loss), float(norm))
            return
        bad = ~(loss.isfinite() & norm.isfinite())
        first = bad & (self.flag == 0)
        for kept, now in ((self._step, self._now), (self._loss, loss), (self._norm, norm)):
            kept.copy_(torch.where(first, now, kept))
        self.flag.copy_(torch.maximum(self.flag, bad.to(self.flag)))

    @torch.no_grad()
    def hold(self, optimizer: Optimizer) -> None:
        """Make the coming step of an optimizer change no weight if the flag is up: no gradients, and a rate of 0.

        For optimizers on a GPU whose learning rates are tensors and whose kernels do not read the flag.
        """
        for group in optimizer.param_groups:
            group["lr"].mul_(self.flag == 0)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.copy_(torch.where(self.flag == 0, parameter.grad, 0.0))

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
