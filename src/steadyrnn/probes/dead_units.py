"""Dead units: those that no gradient passes through."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from steadyrnn.activations import Activation
from steadyrnn.certificates.layer import Weights
from steadyrnn.errors import ArgumentError, ShapeError

from .unrolled import Unrolled, unroll

__all__ = ["DeadUnits", "dead_units"]


class DeadUnits(NamedTuple):
    """Shares of units with slope 0, from 0 to 1; see :func:`dead_units`."""

    dead: float
    inactive: float


def dead_units(module: nn.Module, input: Tensor, lengths: Tensor | None = None) -> DeadUnits:
    r"""Measure how many units of an RNN pass no gradient on.

    At a unit whose activation has the slope :math:`\varphi' = 0` a gradient ends. ``dead`` is the share of units whose slope
    is 0 at every step of every row: on this input they do nothing, and learn nothing from it. ``inactive`` is the share of
    all (unit, step, row) with slope 0, of which a rectifier always has some. Both are 0 for an activation whose slope is
    never 0 (``abs``, ``leaky_relu`` and, short of underflow, ``tanh``). All layers of a stack count alike.

    Args:
        module: An RNN of this package or of ``torch.nn``, in one direction, or a ``SequenceModel`` of one.
        input: As the module takes it; see :func:`~steadyrnn.probes.gradient_flow.gradient_flow`.
        lengths: Length of each row, shape (B,): what lies behind it does not count. None counts all.

    Raises:
        ArgumentError: The units of the cell have gates, or an activation that mixes units.

    Example:
        >>> rnn = sr.RNN(1, 4, nonlinearity="relu", bias="single", transition=sr.SpectralBall(0.5))
        >>> with torch.no_grad():
        ...     _ = rnn.bias_ih_l0.copy_(torch.tensor([9.0, 9.0, 9.0, -99.0]))
        >>> dead_units(rnn, torch.rand(5, 2, 1))
        DeadUnits(dead=0.25, inactive=0.25)
    """
    run = unroll(module, input)
    seen = _seen(run, lengths)  # (T, B)
    dead, inactive = [], []
    for place, weights in enumerate(run.weights):
        flat = (_slopes(run, place, weights) == 0)[seen]  # (N, H)
        dead.append(flat.all(0))
        inactive.append(flat.double().mean())
    return DeadUnits(float(torch.stack(dead).double().mean()), float(torch.stack(inactive).mean()))


def _seen(run: Unrolled, lengths: Tensor | None) -> Tensor:
    """Return which steps of which rows count, shape (T, B)."""
    rows, device = run.inputs.shape[1], run.inputs.device
    if lengths is None:
        return torch.ones(run.steps, rows, dtype=torch.bool, device=device)
    if tuple(lengths.shape) != (rows,):
        raise ShapeError(f"`lengths` must have shape ({rows},), one for each row, but has {tuple(lengths.shape)}.")
    seen = torch.arange(run.steps, device=device).unsqueeze(1) < lengths.to(device)
    if not bool(seen.any()):
        raise ArgumentError("`lengths` are all 0: there is no step to look at.")
    return seen


def _slopes(run: Unrolled, place: int, weights: Weights) -> Tensor:
    """Return the slope of every unit of a layer at every step, shape (T, B, H)."""
    activation = _elementwise(weights)
    states = torch.stack([layers[place][0] for layers in run.states])  # (T + 1, B, H)
    if activation.from_output:
        return activation.derivative(states[1:])
    below = run.inputs if place == 0 else torch.stack([layers[place - 1][0] for layers in run.states[1:]])
    like = states.double()
    weight_ih, weight_hh = weights.weight_ih.to(like), weights.weight_hh.to(like)
    x = below.to(like) @ weight_ih.mT + like[:-1] @ weight_hh.mT
    for bias in (weights.bias_ih, weights.bias_hh):
        x = x if bias is None else x + bias.to(like)
    x = x.detach().requires_grad_()
    theta = None if weights.theta is None else weights.theta.detach().to(like)
    with torch.enable_grad():
        (slopes,) = torch.autograd.grad(activation.value(x, theta).sum(), x)
    return slopes


def _elementwise(weights: Weights) -> Activation:
    """Return the activation of an RNN, each unit of which has a slope of its own."""
    activation = weights.cell.record.activation
    if activation is None:
        raise ArgumentError(
            f"Dead units are those of an RNN, but the cell is {weights.cell.record.family!r}: units with gates have no one "
            "slope. Look at the gradient by lag instead (`sr.gradient_flow`)."
        )
    if not activation.elementwise:
        raise ArgumentError(f"Dead units need an activation unit by unit, but {activation.name!r} mixes units.")
    return activation
