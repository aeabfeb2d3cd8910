"""A norm of what steps leave over, rounded up."""

import math

import torch
from torch import Tensor

from steadyrnn.bounds.norms import ROUND_OFF, Ellipsoid, MaxNorm, Norm, above
from steadyrnn.checks import multiplies_in_full_float32

__all__ = ["Measure"]

_LIFT = 2.0**40
"""What residuals are multiplied by where float32 squares them, lest they underflow."""


class Measure:
    """A norm of states (H, L, B), rounded up; of an LSTM's, with c as zero."""

    def __init__(self, norm: Norm, size: int, device: torch.device) -> None:
        self.norm, self.upper, self.roundings = norm, above(norm.upper), 64 + 2 * norm.size
        self.factor = 1 + self.roundings * ROUND_OFF
        self.short: Tensor | None = None
        if isinstance(norm, MaxNorm):
            self.scale = 1 / norm.weights[-size:].to(device).view(-1, 1, 1)
        elif isinstance(norm, Ellipsoid) and norm.matrix.dim() == 1:
            self.scale = norm.matrix.to(device).view(-1, 1, 1)
        elif isinstance(norm, Ellipsoid):
            self.scale, self.largest = norm.matrix.to(device), float(norm.matrix.norm())
            if device.type == "cpu":
                self.short = (norm.matrix * _LIFT).float()

    def __call__(self, states: Tensor) -> Tensor:
        """Return the norm of each state, (L, B)."""
        if isinstance(self.norm, MaxNorm):
            return (states * self.scale).abs_().amax(dim=0).mul_(self.factor)
        if not isinstance(self.norm, Ellipsoid):
            return self._lengths(states, torch.float64)
        if self.norm.matrix.dim() == 1:
            return self._lengths(states * self.scale, torch.float64)
        if self.short is not None and multiplies_in_full_float32():  # few digits are enough
            norms = self._of_product(self.short, states.flatten(1).float(), _LIFT).view(states.shape[1:])
            if math.isfinite(float(norms.sum())):
                return norms
        return self._of_product(self.scale, states.flatten(1), 1.0).view(states.shape[1:])

    def _of_product(self, matrix: Tensor, states: Tensor, lift: float) -> Tensor:
        """Return the 2-norm of each product with a matrix, which is ``lift`` times the norm's, rounded up."""
        info = torch.finfo(states.dtype)
        # a product is exact up to its terms' size, not the sum's; and what underflows is lost
        terms = self.roundings * info.eps * self.largest
        lost = self.norm.size**2 * info.tiny * (1 + self.largest)
        norms = self._lengths(matrix @ states, states.dtype).div_(lift)
        return norms.add_(self._lengths(states, states.dtype), alpha=terms).add_(lost)

    def _lengths(self, vectors: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the 2-norm of each of (H, ...) in float64, rounded up: along the first axis much faster than torch's."""
        info = torch.finfo(dtype)
        norms = (vectors * vectors).sum(dim=0).double().sqrt_()
        return norms.mul_(1 + self.roundings * info.eps).add_(math.sqrt(2 * self.norm.size * info.tiny))
