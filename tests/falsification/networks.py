"""Recurrent networks written out plainly, a batch of them at once: what bounds are measured on."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from steadyrnn.activations import Activation
from steadyrnn.bounds.norms import Ellipsoid, Norm

__all__ = [
    "SHEAR",
    "TWIST",
    "Step",
    "apart",
    "difference",
    "gru_step",
    "jacobian",
    "length",
    "lstm_step",
    "product",
    "run",
    "slope_at",
    "spectral_norm",
    "tail",
]

SHEAR = torch.tensor([[0.5, 10.0], [0.0, 0.4]], dtype=torch.float64)
TWIST = torch.tensor([[-0.51, 0.75], [-0.37, 0.44]], dtype=torch.float64)

Step = Callable[[Tensor, Tensor], Tensor]
"""``step(state, input)``, each (starts, ...)."""


def product(matrix: Tensor, vector: Tensor) -> Tensor:
    """Return matrix times vector; either may be one for all starts."""
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def length(vector: Tensor) -> Tensor:
    """Return the 2-norm of all of a start's entries together."""
    return torch.linalg.vector_norm(vector.flatten(1), dim=1)


def spectral_norm(matrix: Tensor) -> Tensor:
    """Return the spectral norm of each."""
    return torch.linalg.matrix_norm(matrix, ord=2)


def run(activation: Activation, weight: Tensor, driven: Tensor, state: Tensor) -> Tensor:
    """Return the states of h+ = f(W h + v), the first one included: (starts, T + 1, H) for ``driven`` (starts, T, H)."""
    states = [state]
    for drive in driven.unbind(1):
        state = activation.value(product(weight, state) + drive)
        states.append(state)
    return torch.stack(states, dim=1)


def tail(step: Step, state: Tensor, inputs: Iterable[Tensor]) -> Tensor:
    """Return the last state of a run."""
    for x in inputs:
        state = step(state, x)
    return state


def difference(step: Step, state: Tensor, inputs: Tensor, window: int) -> Tensor:
    """Return how far the last state is from that of a run from zero over the last ``window`` inputs (starts, T, ...)."""
    each = inputs.unbind(1)
    return tail(step, state, each) - tail(step, torch.zeros_like(state), each[len(each) - window :])


def jacobian(weight: Tensor, slopes: Tensor) -> Tensor:
    """Return the product of diag(s) W over time, for ``slopes`` (starts, L, H)."""
    size = slopes.shape[-1]
    result = torch.eye(size, dtype=slopes.dtype).expand(len(slopes), size, size)
    for slope in slopes.unbind(1):
        result = slope.unsqueeze(-1) * (weight @ result)
    return result


class Jump(torch.autograd.Function):
    """The slope of an activation with a kink at 0, whose gradient says which side is wanted of a unit on the other."""

    @staticmethod
    def forward(ctx: Any, before: Tensor, slope: Tensor) -> Tensor:
        ctx.save_for_backward(before)
        return slope.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (before,) = ctx.saved_tensors
        return grad * torch.where(grad > 0, before < 1, before > -1), None


def slope_at(activation: Activation, a: Tensor) -> Tensor:
    """Return the slope at a pre-activation."""
    slope = activation.derivative(activation.value(a) if activation.from_output else a)
    return slope if activation.smoothness < math.inf else Jump.apply(a, slope)


def lstm_step(weight_ih: Tensor, weight_hh: Tensor, bias: Tensor) -> Step:
    """Return the step of an LSTM on states (c, h), gates in torch's order i, f, g, o."""

    def step(state: Tensor, x: Tensor) -> Tensor:
        c, h = state.chunk(2, dim=-1)
        i, f, g, o = (product(weight_ih, x) + product(weight_hh, h) + bias).chunk(4, dim=-1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return torch.cat([c, o.sigmoid() * c.tanh()], dim=-1)

    return step


def gru_step(weight_ih: Tensor, weight_hh: Tensor, bias_ih: Tensor, bias_hh: Tensor, reset_after: bool) -> Step:
    """Return the step of a GRU, gates in torch's order r, z, n."""
    last = weight_hh.chunk(3, dim=-2)[2]

    def step(h: Tensor, x: Tensor) -> Tensor:
        r_x, z_x, n_x = (product(weight_ih, x) + bias_ih).chunk(3, dim=-1)
        r_h, z_h, n_h = (product(weight_hh, h) + bias_hh).chunk(3, dim=-1)
        r, z = (r_x + r_h).sigmoid(), (z_x + z_h).sigmoid()
        inner = r * n_h if reset_after else product(last, r * h) + bias_hh.chunk(3, dim=-1)[2]
        return z * h + (1 - z) * (n_x + inner).tanh()

    return step


def sizes(starts: int) -> Tensor:
    """Return a length for each start's difference: for bends small ones are worst, for kinks any."""
    return torch.tensor([1e-4, 1e-2, 0.3, 3.0], dtype=torch.float64).repeat(-(-starts // 4))[:starts].unsqueeze(-1)


def apart(direction: Tensor, norm: Norm | None = None) -> Tensor:
    """Return differences of states (starts, N) along a free direction, each of its own length.

    Where a norm is given, the direction is read in coordinates in which its ball is round.
    """
    gap = sizes(len(direction)) * direction / length(direction).clamp(min=1e-300).unsqueeze(-1)
    if not isinstance(norm, Ellipsoid):
        return gap
    return gap / norm.matrix if norm.matrix.dim() == 1 else product(torch.linalg.inv(norm.matrix), gap)
