"""Every class that a description of a model may name, and how the arguments that make an object are read from it."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, get_type_hints

import torch
from torch import nn

from steadyrnn.activations import NAMED_ACTIVATIONS
from steadyrnn.constraints.registry import CONSTRAINTS, JOINT
from steadyrnn.layers.gru import GRU
from steadyrnn.layers.linear import Linear
from steadyrnn.layers.lstm import LSTM
from steadyrnn.layers.rnn import RNN

from .mlp import MLP
from .resnet import ResNet
from .sequence import SequenceModel
from .truncated import Truncated

__all__ = ["MODULES", "Describable", "describables"]

_OF_THE_MACHINE = ("device", "engine")
"""Arguments that say where a module is computed, and not what: a rebuilt one has their defaults."""
_REFUSED = ("proj_size", "extra")
"""Arguments that our layers have to refuse them."""

Reader = Callable[[Any], Any]


@dataclass(frozen=True)
class Describable:
    """A class whose objects can be described.

    Args:
        family: What it is: ``module``, ``constraint`` or ``activation``.
        name: What descriptions call it.
        cls: The class; a subclass of it is another class.
        arguments: Returns the arguments that make an object.
        hints: The type of each argument.
    """

    family: str
    name: str
    cls: type
    arguments: Callable[[Any], Mapping[str, Any]]
    hints: Mapping[str, Any] = field(repr=False)


def describables() -> list[Describable]:
    """Return every class that can be described: those of modules, and what is registered as constraint or activation.

    Example:
        >>> [one.name for one in describables() if one.family == "activation"][:3]
        ['tanh', 'relu', 'leaky_relu']
    """
    sets = {type(make()).__name__: type(make()) for make in (*CONSTRAINTS.values(), *JOINT.values())}
    made = [Describable("constraint", name, cls, lambda one: one.arguments(), _hints_of(cls)) for name, cls in sets.items()]
    made += [Describable("activation", name, cls, asdict, _hints_of(cls)) for name, cls in NAMED_ACTIVATIONS.items()]
    return [*MODULES, *made]


def _hints_of(cls: type) -> dict[str, Any]:
    """Return the types of the arguments that a class is described by."""
    hints = get_type_hints(cls.__init__)  # type: ignore[misc]
    left_out = {*_OF_THE_MACHINE, *_REFUSED}
    return {name: hints[name] for name in inspect.signature(cls).parameters if name not in left_out}


def _ours(cls: type, **readers: Reader) -> Describable:
    """Return a class of this package: an argument is the attribute of its name, where no reader says otherwise."""
    hints = _hints_of(cls)

    def arguments(module: Any) -> dict[str, Any]:
        return {name: readers[name](module) if name in readers else getattr(module, name) for name in hints}

    return Describable("module", f"steadyrnn.{cls.__name__}", cls, arguments, hints)


def _torchs(cls: type, **more: Any) -> Describable:
    """Return a recurrent layer of torch, whose constructor does not say what it takes."""
    hints = {**dict.fromkeys(("input_size", "hidden_size", "num_layers"), int), **more, "dropout": float, "dtype": torch.dtype}
    hints |= dict.fromkeys(("bias", "batch_first", "bidirectional"), bool)

    def arguments(module: Any) -> dict[str, Any]:
        return {name: _dtype(module) if name == "dtype" else getattr(module, name) for name in hints}

    return Describable("module", f"torch.nn.{cls.__name__}", cls, arguments, hints)


def _dtype(module: Any) -> torch.dtype | None:
    return next((parameter.dtype for parameter in module.parameters()), None)


def _feed_forward(cls: type) -> Describable:
    return _ours(
        cls, activation=lambda model: model.input.nonlinearity, weight=lambda model: dict(_places(model)), dtype=_dtype,
        dropout=lambda model: model.input.dropout.p,
    )  # fmt: skip


def _places(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield the set of the weight at each place of a network without time."""
    yield "input", model.input.linear.weight_set()
    yield "hidden", next(part for part in model.hidden.modules() if isinstance(part, Linear)).weight_set()
    yield "readout", model.readout.weight_set()


_LAYER: dict[str, Reader] = {"transition": lambda layer: layer.transition_sets(), "dtype": _dtype}
_VECTOR: Reader = lambda layer: layer.bias is not None  # noqa: E731

MODULES: tuple[Describable, ...] = (
    _ours(RNN, **_LAYER, nonlinearity=lambda layer: layer.activation),
    _ours(GRU, **_LAYER),
    _ours(LSTM, **_LAYER),
    _ours(Linear, bias=_VECTOR, weight=lambda layer: layer.weight_set(), dtype=_dtype),
    _torchs(nn.RNN, nonlinearity=str),
    _torchs(nn.GRU),
    _torchs(nn.LSTM, proj_size=int),
    _ours(
        SequenceModel,
        out_features=lambda model: model.readout.out_features,
        vocab_size=lambda model: None if model.embedding is None else model.embedding.num_embeddings,
        embedding_size=lambda model: None,  # the layer's input size, the only one that fits
        readout=lambda model: model.reads,
        skip=lambda model: model.skip is not None,
        bias=lambda model: _VECTOR(model.readout),
        dropout_embedding=lambda model: model.dropout_embedding.p,
        dropout_state=lambda model: model.dropout_state.p,
        dropout_logits=lambda model: model.dropout_logits.p,
    ),
    _ours(Truncated),
    _feed_forward(MLP),
    _feed_forward(ResNet),
)
"""Modules that can be described; a new one is one entry here."""
