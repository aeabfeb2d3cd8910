"""First weights of a system, where its options ask for others than the layers' own."""

import math
from collections.abc import Callable, Iterator
from typing import cast

import torch
from torch import Tensor, nn

from steadyrnn.constraints.base import Kind
from steadyrnn.constraints.free import Free
from steadyrnn.constraints.slot import Slot
from steadyrnn.constraints.tolerance import membership_tolerance
from steadyrnn.errors import ArgumentError
from steadyrnn.layers.base import RecurrentLayer
from steadyrnn.layers.weights import Transition

from .sequence import SequenceModel
from .settings import ModelSettings

__all__ = ["RECURRENT_STARTS", "draw_gaussian", "freeze_input_and_output", "start_weights"]

Draw = Callable[[int, float], Tensor]


def _orthogonal(size: int, std: float) -> Tensor:
    return torch.nn.init.orthogonal_(torch.empty(size, size))


def _identity(size: int, std: float) -> Tensor:
    return torch.eye(size)


def _gaussian(size: int, std: float) -> Tensor:
    return torch.randn(size, size) * std


def _turned(angles: Tensor, size: int) -> Tensor:
    """Return the rotation of coordinates 0 and 1 by the first angle, 2 and 3 by the second, ...; an odd last one stays."""
    turned, even = torch.eye(size), 2 * torch.arange(len(angles))
    turned[even, even] = turned[even + 1, even + 1] = angles.cos()
    turned[even + 1, even] = angles.sin()
    turned[even, even + 1] = -angles.sin()
    return turned


def _henaff(size: int, std: float) -> Tensor:
    r"""Return a rotation of pairs of coordinates by angles uniform in :math:`\pm\pi`."""
    return _turned(torch.empty(size // 2).uniform_(-math.pi, math.pi), size)


def _cayley(size: int, std: float) -> Tensor:
    r"""Rotate pairs of coordinates by :math:`-\sqrt{(1 - \cos u)/(1 + \cos u)}`, u uniform in :math:`[0, \pi/2]`."""
    return _turned(-(torch.empty(size // 2).uniform_(0, math.pi / 2) / 2).tan(), size)


RECURRENT_STARTS: dict[str, Draw] = {
    "orthogonal": _orthogonal,
    "identity": _identity,
    "gaussian": _gaussian,
    "cayley": _cayley,
    "henaff": _henaff,
}
"""How to draw a square matrix of each start, from its size and, for ``gaussian``, a standard deviation."""


@torch.no_grad()
def start_weights(model: SequenceModel, s: ModelSettings) -> None:
    """Replace the first weights that options name; without such options nothing is drawn and nothing changes.

    Recurrent weights in a set that is kept by projection are projected onto it. Biases of input and output are 0 where
    ``init_std`` is given.

    Args:
        model: Fresh, of a system that is not wrapped.
        s: Complete settings, with ``init`` None where the constraint has read it.

    Raises:
        ArgumentError: The start is outside the system's set.
    """
    rnn = cast(RecurrentLayer, model.rnn)
    if s.init is not None:
        _start_recurrent(rnn, s)
    if s.init_std is not None:
        weights = (item for item in rnn.named_parameters() if item[0].startswith(("weight_ih", "bias")))
        draw_gaussian((*weights, *model.readout.named_parameters()), lambda columns: s.init_std or 0.0)
    if s.output_std is not None:
        for layer in (model.readout, model.skip):
            if layer is not None:
                layer.weight.normal_(0.0, s.output_std)
    if s.init_uniform is not None:
        _start_uniform(model, s.init_uniform)
    if s.input_scale is not None:
        rnn.weight_ih_l0.mul_(s.input_scale)
    for gate, value in _gate_biases(rnn, s):
        for name, parameter in rnn.named_parameters():
            if name.startswith("bias_ih"):
                parameter.view(-1, rnn.hidden_size)[rnn.cell.gates.index(gate)] = value


def freeze_input_and_output(model: SequenceModel) -> None:
    """Let no gradient reach anything but the recurrent weight and what is learned beside it, in and out of a set.

    Example:
        >>> model = sr.SequenceModel(sr.RNN(2, 3, transition="ball"), 1)
        >>> freeze_input_and_output(model)
        >>> [name for name, parameter in model.named_parameters() if parameter.requires_grad]
        ['rnn.transition_l0.h.raw0']
    """
    learned = ("rnn.weight_hh", "rnn.transition", "rnn.initial_", "rnn.activation", "rnn.saturation")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.startswith(learned))


def draw_gaussian(parameters: tuple[tuple[str, nn.Parameter], ...], std: Callable[[int], float]) -> None:
    """Draw weights Gaussian, with a standard deviation by their number of columns, and set biases to 0."""
    for name, parameter in parameters:
        if parameter.dim() < 2 or name.startswith("bias"):
            parameter.zero_()
        else:
            parameter.normal_(0.0, std(parameter.shape[1]))


def _start_recurrent(rnn: RecurrentLayer, s: ModelSettings) -> None:
    """Set every constrained gate, or every gate where all are free, to a matrix of its own."""
    draw = RECURRENT_STARTS[str(s.init)]
    std = rnn.hidden_size**-0.5 if s.recurrent_std is None else s.recurrent_std
    for child in rnn.children():
        if isinstance(child, Transition):
            for slot in child.slots().values():
                if not isinstance(slot.constraint, Free):
                    _assign(slot, draw(rnn.hidden_size, std), str(s.init))
    for name, parameter in rnn.named_parameters(recurse=False):
        if name.startswith("weight_hh"):
            for rows in parameter.split(rnn.hidden_size):
                rows.copy_(draw(rnn.hidden_size, std))


def _assign(slot: Slot, matrix: Tensor, init: str) -> None:
    """Assign a start to a constrained weight, projected where projections keep its set."""
    constraint = slot.constraint
    if constraint.kind is Kind.PROJECTION:
        matrix = constraint.project(matrix)
    elif float(constraint.violation(matrix)) > membership_tolerance(matrix):
        raise ArgumentError(
            f"`init` {init!r} is outside the set of {constraint}. Choose a set that holds orthogonal matrices (center - radius "
            "<= 1 <= center + radius), or leave `init` out."
        )
    slot.assign(matrix)


def _start_uniform(model: SequenceModel, bound: float) -> None:
    """Draw embedding and readout uniform, the readout's bias 0."""
    if model.embedding is not None:
        model.embedding.weight.uniform_(-bound, bound)
    if not model.tied:
        model.readout.weight.uniform_(-bound, bound)
    for name, parameter in model.readout.named_parameters():
        if name == "bias":
            parameter.zero_()


def _gate_biases(rnn: RecurrentLayer, s: ModelSettings) -> Iterator[tuple[str, float]]:
    """Yield gates with their first bias; the forget gate's own comes last."""
    if s.gate_bias is not None:
        yield from ((gate, s.gate_bias) for gate in rnn.cell.gates if gate != rnn.cell.candidate)
    if s.forget_bias is not None:
        yield "f", s.forget_bias
