"""From the name of a system to a model that fits a task."""

import math
from collections.abc import Callable
from dataclasses import replace
from pkgutil import resolve_name
from typing import Any, Protocol

import torch
from torch import nn

from steadyrnn.activations import Activation, AdaptiveTanh, LeakyReLU, as_activation
from steadyrnn.errors import ArgumentError, not_among

from .gates import read_gates
from .registry import SYSTEMS, Blueprint
from .sequence import SequenceModel
from .settings import ModelSettings, complete
from .starts import draw_gaussian, freeze_input_and_output, start_weights
from .truncated import Truncated

__all__ = ["TaskInterface", "build_model"]


class TaskInterface(Protocol):
    """What a model is built from; the interface of a task is one."""

    @property
    def inputs(self) -> int:
        """Features of a step or row; of tokens, the size of their embedding, or 0 where that is open."""

    @property
    def outputs(self) -> int:
        """Numbers the model gives."""

    @property
    def vocabulary(self) -> int | None:
        """Number of tokens, None where the input holds features."""

    @property
    def reads(self) -> str:
        """``"last"``, ``"each"`` or ``"row"``."""


def build_model(settings: ModelSettings, interface: TaskInterface) -> nn.Module:
    """Return a fresh model of a named system for a task.

    Layers have one bias vector per gate, as in the papers' counts. Embedded tokens start with a 2-norm of about 1.

    Args:
        settings: The system and its options.
        interface: What the task gives and wants.

    Returns:
        A ``SequenceModel`` (or a ``Truncated`` one) for sequences, an ``MLP`` or ``ResNet`` for rows.

    Raises:
        ArgumentError: No such system, an option it does not have, or a task it does not fit.

    Example:
        >>> from types import SimpleNamespace
        >>> task = SimpleNamespace(inputs=2, outputs=1, vocabulary=None, reads="last")
        >>> model = build_model(ModelSettings("spectral", width=32), task)
        >>> model(torch.randn(10, 5, 2))[0].shape
        torch.Size([5, 1])
    """
    chosen = complete(settings)
    system = SYSTEMS[chosen.name]
    if (interface.reads == "row") != (system.reads == "row"):
        fitting = ", ".join(name for name, other in SYSTEMS.items() if (other.reads == "row") == (interface.reads == "row"))
        given, taken = ("rows", "sequences") if interface.reads == "row" else ("sequences", "rows")
        raise ArgumentError(
            f"`name` is {chosen.name!r}, which takes {taken}, but the task gives {given}. Take one of {fitting}."
        )
    if system.reads == "row":
        return _feed_forward(chosen, interface)
    if not system.wraps:
        return _recurrent(chosen, interface, interface.reads)
    if chosen.readout is not None:
        raise ArgumentError(
            "`readout` is no option of a truncated model: each output is read from the last state of its inputs."
        )
    inner = replace(chosen, name=str(chosen.base), base=None, context=None)
    return Truncated(_recurrent(inner, interface, "last"), chosen.context or 0, interface.reads)


def _recurrent(s: ModelSettings, interface: TaskInterface, reads: str) -> SequenceModel:
    """Return the sequence model of a complete setting."""
    tokens, dropout = interface.vocabulary is not None, _number(s.dropout)
    on_input, between, on_output = (dropout if p is None else p for p in (s.dropout_input, s.dropout_layers, s.dropout_output))
    for name in ("embedding", "tied", "dropout_input"):
        if getattr(s, name) and not tokens:
            raise ArgumentError(f"`{name}` needs a task of tokens, but the input of this one holds numbers.")
    width, layers = s.width or 0, s.layers or 0
    size = (s.embedding or (width if s.tied else interface.inputs) or width) if tokens else interface.inputs
    layer, transition = _resolve(s)
    kwargs: dict[str, Any] = {
        **{"transition": transition, "bias": "single"},
        **{"learn_initial_state": bool(s.learn_initial_state), "dropout": between if layers > 1 else 0.0},
    }
    if s.nonlinearity is not None:
        kwargs["nonlinearity"] = _activation(s)
    if s.reset_after is not None:
        kwargs["reset_after"] = s.reset_after
    model = SequenceModel(
        layer(size, width, layers, **kwargs), interface.outputs, vocab_size=interface.vocabulary,
        readout=_readout(s, reads), tied=bool(s.tied), skip=bool(s.skip), dropout_embedding=on_input if tokens else 0.0,
        dropout_state=on_output, dropout_logits=_number(s.dropout_logits),
    )  # fmt: skip
    if model.embedding is not None and not model.tied:
        with torch.no_grad():  # torch's tokens have norm sqrt(size), and drown the state of a network that keeps norms
            model.embedding.weight.mul_(size**-0.5)
    if "init" in _blueprint(s).arguments:  # which the constraint has read
        _start_as_irnn(model, s)
        s = replace(s, init=None, init_std=None)
    start_weights(model, s)
    if s.frozen:
        freeze_input_and_output(model)
    return model


def _feed_forward(s: ModelSettings, interface: TaskInterface) -> nn.Module:
    """Return the network without time of a complete setting."""
    network, weight = _resolve(s)
    members = s.depth if s.blocks is None else s.blocks
    model: nn.Module = network(
        interface.inputs, s.width, interface.outputs, members,
        activation=_activation(s), weight=weight, dropout=_number(s.dropout),
    )  # fmt: skip
    return model


def _resolve(s: ModelSettings) -> tuple[Callable[..., Any], Any]:
    """Return the class of a system's network and a fresh constraint, or one per gate, as its record names them."""
    blueprint = _blueprint(s)
    arguments = {name: getattr(s, name) for name in blueprint.arguments}
    constraint = resolve_name(blueprint.constraint)(**arguments)
    if s.gates is not None:  # a constraint is a template: each gate gets a copy
        constraint = dict.fromkeys(read_gates(s.gates, blueprint.gates), constraint)
    return resolve_name(blueprint.network), constraint


def _blueprint(s: ModelSettings) -> Blueprint:
    blueprint = SYSTEMS[s.name].blueprint
    if blueprint is None:  # one that wraps another is built around it
        raise ArgumentError(f"`name` is {s.name!r}, which wraps another system and cannot be wrapped.")
    return blueprint


def _activation(s: ModelSettings) -> Activation:
    if s.slope is not None:
        return LeakyReLU(s.slope)
    if s.saturation_basis is not None and s.saturation_start is not None:
        return AdaptiveTanh(s.saturation_basis, s.saturation_start)
    return as_activation(str(s.nonlinearity))


@torch.no_grad()
def _start_as_irnn(model: SequenceModel, s: ModelSettings) -> None:
    r"""Draw input and output weights Gaussian, with biases 0.

    The standard deviation is 0.001 beside an identity (Le, Jaitly, Hinton) and :math:`1/\sqrt{N}` beside an orthogonal
    weight, where the paper (Zhang, Lei, Dhillon) names none.
    """

    def std(columns: int) -> float:
        usual = 0.001 if s.init == "identity" else 1 / math.sqrt(columns)
        return usual if s.init_std is None else s.init_std

    weights = [(name, p) for name, p in model.rnn.named_parameters() if name.startswith(("weight_ih", "bias"))]
    draw_gaussian((*weights, *model.readout.named_parameters()), std)


def _readout(s: ModelSettings, reads: str) -> str:
    """Return what the readout reads: as the task wants, or the mean where one answer is wanted."""
    if s.readout is None:
        return reads
    if s.readout not in ("last", "mean"):
        raise ArgumentError(not_among("readout", s.readout, ("last", "mean")))
    if reads == "each":
        raise ArgumentError(f"`readout` is {s.readout!r}, but the task wants an answer at every step. Leave it out.")
    return s.readout


def _number(value: float | None) -> float:
    return 0.0 if value is None else value
