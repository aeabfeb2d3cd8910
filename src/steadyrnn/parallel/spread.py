"""Factors of the gradient's error for a part of a long run, whose outputs see as many inputs as their runs did."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from steadyrnn.engines.base import Windows

from .gradients import GradientNorm

__all__ = ["Spread"]

_GRID = 256
"""Contexts from here on are rounded down by less than this part of them, so that few factors are computed."""


@dataclass(frozen=True)
class Spread:
    """Factors of a smooth layer, each of which depends on how many inputs the gradient of its output sees.

    Args:
        norms: In which the factor is known; the least counts.
        contexts: How many inputs each output's gradient sees, (T,), infinite where it sees all.

    Example:
        >>> from steadyrnn.bounds.gradients import layer_constants
        >>> norm = GradientNorm(layer_constants(0.5, 0.0, 1.0, 1.0, bias=True), 1.0, 1.0, 1.0)
        >>> Spread((norm,), torch.tensor([1.0, math.inf])).by_window().flatten() > 0
        tensor([ True, False])
    """

    norms: Sequence[GradientNorm]
    contexts: Tensor

    @property
    def windows(self) -> Windows:
        """One window, whose factors are those of all outputs."""
        return Windows(0, len(self.contexts), 1)

    def by_window(self) -> Tensor:
        """Return the factor of each output, (T, 1, 1)."""
        rate = max(norm.constants.rate for norm in self.norms)
        peak = 1 if rate == 0 else math.ceil(-1 / math.log(rate))  # from there on a factor falls with its context
        place = self.contexts
        size = 2.0 ** torch.floor(torch.log2(place.clamp(min=_GRID, max=2.0**60))) / _GRID
        coarse = torch.where(place >= max(peak, _GRID) * (1 + 2 / _GRID), torch.floor(place / size) * size, place)
        distinct, which = coarse.unique(return_inverse=True)
        factors = [self._factor(context) for context in distinct.tolist()]
        return torch.tensor(factors, dtype=torch.float64, device="cpu")[which].view(-1, 1, 1)

    def _factor(self, context: float) -> float:
        return 0.0 if math.isinf(context) else min(norm.factor(int(context)) for norm in self.norms)
