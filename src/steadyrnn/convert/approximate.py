"""One layer in one direction made unitary up to a proven error, where the activation saturates and cannot be silent."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from steadyrnn.activations import Activation
from steadyrnn.bounds.norms import above, spectral_norm_bound
from steadyrnn.bounds.unitary import sigmoid_dilation_error, tanh_dilation_error
from steadyrnn.certificates.layer import Weights
from steadyrnn.linalg.dilation import orthogonal_dilation

from .dilate import SQUARINGS, Ball, Extension

__all__ = ["DILATION_ERRORS", "extend_saturating", "required_silence", "saturating_ball", "stack_error"]


def _sigmoid_error(norm: float, coupling: float, rank: int, silence: float, disturbance: float, horizon: int | None) -> float:
    """Return the error of a sigmoid layer, which contracts for any number of steps."""
    return sigmoid_dilation_error(norm, coupling, rank, silence, disturbance) if rank or disturbance else 0.0


DILATION_ERRORS = {"sigmoid": _sigmoid_error, "tanh": tanh_dilation_error}
"""The bound for each activation, by the name that kernels know it by, to which a unitary network comes arbitrarily close.

Note [mathematics], section 1.6.
"""


@dataclass(frozen=True)
class _Place:
    """What the error of one layer in one direction depends on."""

    norm: float
    coupling: float
    rank: int
    input_gain: float

    @classmethod
    def of(cls, weights: Weights, tolerance: float) -> "_Place":
        """Measure a layer."""
        size = weights.size
        block = orthogonal_dilation(weights.weight_hh, tolerance)[:size, size:]
        norm = above(spectral_norm_bound(weights.weight_hh, SQUARINGS) + weights.slack)
        return cls(norm, above(spectral_norm_bound(block)), block.shape[1], above(spectral_norm_bound(weights.weight_ih)))


def stack_error(
    activation: Activation, places: list[list[_Place]], silence: float, dropout: float, horizon: int | None
) -> float:
    r"""Return a bound on the error of every state of a stack, each layer and direction by itself, in the 2-norm.

    Layer l adds what its own extra units leak to what its input is off by, which is
    :math:`\lVert F \rVert e_{l-1}` per step; both directions below are off by at most the root of their squares.

    Args:
        activation: Sigmoid or tanh.
        places: Each layer, a list of its directions.
        silence: L.
        dropout: Probability between the layers: what is kept is scaled by 1 / (1 - p).
        horizon: Steps, needed by a tanh layer of norm 1.
    """
    worst = below = 0.0
    for layer in places:
        errors = []
        for place in layer:
            disturbance = above(place.input_gain * below) if below else 0.0
            given = (place.norm, place.coupling, place.rank, silence, disturbance, horizon)
            errors.append(DILATION_ERRORS[activation.kernel or ""](*given))
        worst = max(worst, *errors)
        below = above(math.hypot(*errors) / (1 - dropout if dropout < 1 else 1.0))
    return worst


def required_silence(
    activation: Activation,
    layers: list[list[Weights]],
    tolerance: float,
    precision: float,
    dropout: float,
    horizon: int | None,
) -> tuple[float, float]:
    """Return the L that makes the error of a stack at most ``precision``, and the error; both infinite if none does.

    The error is proportional to exp(-L) (sigmoid) or exp(-2 L) (tanh).
    """
    places = [[_Place.of(weights, tolerance) for weights in layer] for layer in layers]
    most = stack_error(activation, places, 0.0, dropout, horizon)
    if not math.isfinite(most):
        return math.inf, math.inf
    rate = activation.tail_rate or 1.0
    silence = max(0.0, (math.log(most / precision) + 1e-9) / rate) if most > 0 else 0.0
    return silence, stack_error(activation, places, silence, dropout, horizon)


def saturating_ball(weights: Weights, initial_bound: float, horizon: int | None) -> Ball:
    """Return the box of the states: entries up to 1, or as large as they start."""
    learned = [float(state.abs().max()) for state in weights.initial]
    largest = max([1.0, initial_bound, *learned])
    return Ball(torch.ones(weights.size, dtype=torch.float64, device="cpu"), largest, largest, horizon, order=math.inf)


def extend_saturating(
    activation: Activation, weight: Tensor, silence: float, largest: float, gamma: float, tolerance: float
) -> Extension:
    r"""Return the orthogonal weight and the biases that keep its extra units within :math:`e^{-L}` of a constant.

    .. math:: b_{2,i} = -L - \lVert \text{row } n + i \text{ of } W_u \rVert_1

    The constant is the activation's lower limit, where the extra units start: 0 for the sigmoid, -1 for tanh. What it sends
    to the first units, :math:`-W_2 (1, \ldots, 1)` for tanh, is added to their bias with the opposite sign;
    Note [mathematics], section 1.6.

    Args:
        activation: Sigmoid or tanh.
        weight: :math:`W`, shape ``(H, H)``.
        silence: L.
        largest: Bound on the entries of every state.
        gamma: Relative error of the sums.
        tolerance: How far from 1 a singular value counts as 1.
    """
    size, full = len(weight), orthogonal_dilation(weight, tolerance)
    rank = len(full) - size
    reach = full[size:].abs().sum(1) * largest
    bias = -(silence + reach) * (1 + 4 * gamma) * (1 + 1e-12)
    if not activation.lower_limit:
        return Extension(
            full,
            bias,
            torch.zeros(size, dtype=torch.float64, device="cpu"),
            torch.zeros(rank, dtype=torch.float64, device="cpu"),
            -silence - 1,
        )
    return Extension(full, bias, full[:size, size:].sum(1), -torch.ones(rank, dtype=torch.float64, device="cpu"), 0.0)
