"""Factors of the gradient's error for a part of a long run, whose outputs see as many inputs as their runs did."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from .gradients import GradientNorm

__all__ = ["Spread"]

_GRID = 256
"""Contexts from here on are rounded down by less than this part of them, so that few factors are computed."""


@dataclass(frozen=True)
class Spread:
    """Factors of a smooth layer, each of which depends on how many inputs the gradient of its output sees.

    Behind the first windows these numbers repeat from window to window, so that nothing of the length of the series is made.

    Args:
        norms: In which the factor is known; the least counts.
        contexts: How many inputs the gradients of the first outputs see, infinite where they see all.
        cycle: How many of the last ones are those of all later outputs, again and again; 0 where there are no later ones.

    Example:
        >>> from steadyrnn.bounds.gradients import layer_constants
        >>> norm = GradientNorm(layer_constants(0.5, 0.0, 1.0, 1.0, bias=True), 1.0, 1.0, 1.0)
        >>> Spread((norm,), torch.tensor([1.0, math.inf])).each() > 0
        tensor([ True, False])
    """

    norms: Sequence[GradientNorm]
    contexts: Tensor
    cycle: int = 0

    def weigh(self, arrived: Tensor) -> float:
        """Return the sum of all cotangents' norms, (T, B), each times the factor of its output."""
        factors, each = self.each().to(arrived.device), arrived.sum(dim=1)
        later = each[len(factors) :]
        total = (each[: len(factors)] * factors).sum()
        if len(later):
            total = total + (pad(later, (0, -len(later) % self.cycle)).view(-1, self.cycle) * factors[-self.cycle :]).sum()
        return float(total)

    def each(self) -> Tensor:
        """Return the factor of every context."""
        rate = max(norm.constants.rate for norm in self.norms)
        peak = 1 if rate == 0 else math.ceil(-1 / math.log(rate))  # from there on a factor falls with its context
        place = self.contexts
        size = 2.0 ** torch.floor(torch.log2(place.clamp(min=_GRID, max=2.0**60))) / _GRID
        coarse = torch.where(place >= max(peak, _GRID) * (1 + 2 / _GRID), torch.floor(place / size) * size, place)
        distinct, which = coarse.unique(return_inverse=True)
        factors = [self._factor(context) for context in distinct.tolist()]
        return torch.tensor(factors, dtype=torch.float64, device="cpu")[which]

    def _factor(self, context: float) -> float:
        return 0.0 if math.isinf(context) else min(norm.factor(int(context)) for norm in self.norms)
