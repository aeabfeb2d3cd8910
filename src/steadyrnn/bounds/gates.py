"""Bounds on the gates of a recurrent cell whose states and inputs lie in a box; computed in float64 and rounded outwards."""

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from steadyrnn.checks import check_finite, check_interval, check_matrix
from steadyrnn.errors import ArgumentError, CertificateError, ShapeError

from .norms import ROUND_OFF, MaxNorm, above

__all__ = [
    "Bound",
    "Box",
    "Gate",
    "absolute_parts",
    "as_bound",
    "box_radius",
    "check_input_bound",
    "check_norm",
    "gate_rows",
    "perron_weights",
    "round_up",
    "sigmoid_above",
    "sigmoid_below",
    "tanh_above",
]

Bound = float | Tensor
_TINY = 2.0**-1000  # more than what underflows, and nothing beside a number that matters


class Box(Protocol):
    """Bounds on what a cell computes, of whatever gates it has."""

    @property
    def corner(self) -> Tensor:
        """The largest absolute values of all entries of the state, float64."""


class Gate(NamedTuple):
    r"""What a gate :math:`\sigma(W h + U x + b)` sees: :math:`|W|` (H, H), :math:`|U| 1 B_x` (H,), and b (H,)."""

    recurrent: Tensor
    reach: Tensor
    bias: Tensor

    def spread(self, hidden: Tensor) -> Tensor:
        r"""Return :math:`|W| \bar h + |U| 1 B_x`, the most that state and input add to the bias, rounded up."""
        return round_up(self.recurrent @ hidden + self.reach, len(hidden) + 8)

    def highest(self, hidden: Tensor) -> Tensor:
        """Return the largest pre-activation of each unit, rounded up."""
        spread = self.spread(hidden)
        return spread + self.bias + 4 * ROUND_OFF * (spread + self.bias.abs())

    def lowest(self, hidden: Tensor) -> Tensor:
        """Return the smallest pre-activation of each unit, rounded down."""
        spread = self.spread(hidden)
        return self.bias - spread - 4 * ROUND_OFF * (spread + self.bias.abs())


def gate_rows(weight_ih: Tensor, weight_hh: Tensor, bias: Tensor, input_bound: float, gates: int) -> list[Gate]:
    """Return the gates of stacked weights, in their order, in float64.

    Args:
        weight_ih: Shape ``(G H, D)``.
        weight_hh: Shape ``(G H, H)``.
        bias: Shape ``(G H,)``.
        input_bound: Largest absolute value of an entry of the input.
        gates: G.

    Example:
        >>> gate_rows(torch.ones(2, 3), torch.ones(2, 1), torch.zeros(2), 0.5, gates=2)[0].reach
        tensor([1.5000], dtype=torch.float64)
    """
    rows = check_matrix("weight_hh", weight_hh).shape[0]
    size = weight_hh.shape[1]
    if rows != gates * size or size == 0:
        raise ShapeError(f"`weight_hh` must have shape ({gates}H, H), but has {tuple(weight_hh.shape)}.")
    if check_matrix("weight_ih", weight_ih).shape[0] != rows:
        raise ShapeError(f"`weight_ih` must have {rows} rows, as `weight_hh` has, but has shape {tuple(weight_ih.shape)}.")
    if bias.shape != (rows,):
        raise ShapeError(f"`bias` must have shape {(rows,)}, but has {tuple(bias.shape)}.")
    recurrent = check_finite("weight_hh", weight_hh).detach().double().abs()
    reach = check_finite("weight_ih", weight_ih).detach().double().abs().sum(1) * input_bound
    wide = check_finite("bias", bias).detach().double()
    parts = zip(recurrent.split(size), round_up(reach, weight_ih.shape[1] + 8).split(size), wide.split(size), strict=True)
    return [Gate(*part) for part in parts]


def absolute_parts(name: str, weight: Tensor, gates: int, size: int, columns: int | None = None) -> tuple[Tensor, ...]:
    """Return the absolute weights of each gate in float64, each of shape ``(size, columns)``; None is any width.

    Example:
        >>> len(absolute_parts("weight_hh", torch.ones(8, 2), gates=4, size=2))
        4
    """
    rows, width = check_matrix(name, weight).shape
    if rows != gates * size or columns not in (None, width):
        wanted = (gates * size, "any" if columns is None else columns)
        raise ShapeError(f"`{name}` must have shape ({wanted[0]}, {wanted[1]}), but has {tuple(weight.shape)}.")
    return tuple(check_finite(name, weight).detach().double().abs().split(size))


def check_norm(norm: MaxNorm, size: int, state: str) -> Tensor:
    """Return the weights of a norm if there is one for each entry of the state."""
    if norm.size != size:
        raise ShapeError(f"`norm` must weigh the {size} entries of {state}, but has {norm.size} weights.")
    return norm.weights


def box_radius(box: Box, norm: MaxNorm) -> float:
    """Return the largest norm of a state of the box, infinite where an entry has no bound.

    Args:
        box: From :func:`~steadyrnn.bounds.lstm.lstm_box` or :func:`~steadyrnn.bounds.gru.gru_box`.
        norm: With one weight per entry of the state; of an LSTM, those of c come first.

    Example:
        >>> from steadyrnn.bounds.gru import gru_box
        >>> zero = torch.zeros(3, 1)
        >>> box_radius(gru_box(zero, zero, None, None, 1.0, initial_bound=3.0), MaxNorm(torch.ones(1))) >= 3.0
        True
    """
    corner = box.corner
    return above(float((corner / check_norm(norm, len(corner), "the state").to(corner.device)).max()))


def check_input_bound(input_bound: float) -> float:
    """Return the bound on the entries of the input if it is finite and not negative."""
    if not math.isfinite(check_interval("input_bound", input_bound, 0.0, math.inf)):
        raise CertificateError("`input_bound` must be finite: a gate is bounded away from 1 for bounded inputs only.")
    return float(input_bound)


def as_bound(name: str, bound: Bound, like: Tensor) -> Tensor:
    """Return bounds on absolute values, one number or one per unit, as a float64 tensor in the shape of ``like``."""
    wide = torch.as_tensor(bound, dtype=torch.float64, device=like.device).detach()
    if wide.dim() and wide.shape != like.shape:
        raise ShapeError(f"`{name}` must be a number or have shape {tuple(like.shape)}, but has {tuple(wide.shape)}.")
    if not bool((check_finite(name, wide) >= 0).all()):
        raise ArgumentError(f"`{name}` must not be negative: it bounds absolute values.")
    return wide.expand_as(like)


def round_up(values: Tensor, roundings: int) -> Tensor:
    """Return numbers not below what non-negative ``values`` would be without their last ``roundings`` roundings."""
    return values * (1 + roundings * ROUND_OFF) + _TINY


def sigmoid_above(x: Tensor) -> Tensor:
    """Return the logistic function, rounded up."""
    return round_up(x.sigmoid(), 16).clamp(max=1.0)


def sigmoid_below(x: Tensor) -> Tensor:
    """Return the logistic function, rounded down."""
    return (x.sigmoid() * (1 - 16 * ROUND_OFF) - _TINY).clamp(min=0.0)


def tanh_above(x: Tensor) -> Tensor:
    """Return the hyperbolic tangent of non-negative numbers, rounded up."""
    return round_up(x.tanh(), 16).clamp(max=1.0)


def perron_weights(apply: Callable[[Tensor], Tensor], like: Tensor, rounds: int = 1000) -> Tensor:
    r"""Return :math:`v > 0` with a small :math:`\max_j T(v)_j / v_j`, by power iteration.

    For a monotone map T that is homogeneous, this number does not grow from v to T(v): :math:`T(v) \le \lambda v`
    gives :math:`T(T(v)) \le \lambda T(v)`. A small shift keeps every weight positive; the best v met is returned.

    Args:
        apply: T, on vectors of the shape of ``like``.
        like: Any vector of the right size and device.
        rounds: Most applications of T.

    Example:
        >>> matrix = torch.tensor([[0.1, 4.0], [0.01, 0.1]], dtype=torch.float64)
        >>> v = perron_weights(lambda v: matrix @ v, torch.ones(2))
        >>> round(float((matrix @ v / v).max()), 4)
        0.3
    """
    best = v = torch.ones_like(like, dtype=torch.float64)
    lowest = math.inf
    for _ in range(rounds):
        image = apply(v)
        ratio = image / v
        high, low = float(ratio.max()), float(ratio.min())
        if not math.isfinite(high):
            break
        if high < lowest:
            best, lowest = v, high
        if high - low <= 1e-10 * high:
            break
        v = image / image.max() + 1e-9
    return best
