"""Layers of every kind, torch's beside ours, and ways to read what they give."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from steadyrnn.constraints.base import Constraint
from steadyrnn.constraints.free import Free
from steadyrnn.constraints.registry import CONSTRAINTS
from steadyrnn.layers.gru import GRU
from steadyrnn.layers.lstm import LSTM
from steadyrnn.layers.rnn import RNN

__all__ = [
    "KINDS",
    "PAIRS",
    "Counting",
    "assert_explained",
    "assert_state_kept",
    "constrained",
    "layer_names",
    "states_of",
    "tensors_of",
    "zero_states",
]

PAIRS: dict[str, tuple[Callable[..., nn.Module], Callable[..., nn.Module], dict[str, Any]]] = {
    "rnn-tanh": (torch.nn.RNN, RNN, {}),
    "rnn-relu": (torch.nn.RNN, RNN, {"nonlinearity": "relu"}),
    "gru": (torch.nn.GRU, GRU, {}),
    "lstm": (torch.nn.LSTM, LSTM, {}),
}
"""torch's class, ours, and the arguments that both have."""

KINDS: dict[str, Callable[..., nn.Module]] = {
    "rnn-tanh": lambda *a, **k: RNN(*a, **k),
    "rnn-abs": lambda *a, **k: RNN(*a, nonlinearity="abs", **k),
    "rnn-modrelu": lambda *a, **k: RNN(*a, nonlinearity="modrelu", **k),
    "gru": lambda *a, **k: GRU(*a, **k),
    "gru-before": lambda *a, **k: GRU(*a, reset_after=False, **k),
    "lstm": lambda *a, **k: LSTM(*a, **k),
}
"""A layer of each cell and kind of activation."""


def layer_names() -> list[str]:
    """Return the names of :data:`KINDS`."""
    return list(KINDS)


def constrained() -> list[str]:
    """Return the registered constraints that are more than a free matrix."""
    return [name for name, make in CONSTRAINTS.items() if not isinstance(make(), Free)]


def states_of(state: Any) -> tuple[Tensor, ...]:
    """Return the states that a layer returned (or expects) as a tuple."""
    return (state,) if isinstance(state, Tensor) else tuple(state)


def tensors_of(result: tuple[Any, Any]) -> tuple[Tensor, ...]:
    """Return all tensors of a layer's result: outputs (of a packed one its data), then states."""
    output, state = result
    return (output.data if isinstance(output, PackedSequence) else output, *states_of(state))


def zero_states(layer: nn.Module, rows: int) -> Any:
    """Return zero initial states in the form that the layer expects."""
    places = layer.num_layers * (2 if layer.bidirectional else 1)
    state = next(layer.parameters()).new_zeros(places, rows, layer.hidden_size)
    return (state, state.clone()) if isinstance(layer, LSTM | torch.nn.LSTM) else state


def assert_explained(layer: nn.Module, x: Tensor, choice: str) -> None:
    """Check that a layer says on which engine it would run and why, and says the same once it ran."""
    assert f"has not run yet (or compiled only); it would run on engine {choice}" in layer.explain()
    layer(x)
    assert layer.explain() == f"{type(layer).__name__} ran on engine {choice}"


@contextmanager
def assert_state_kept(module: nn.Module) -> Iterator[None]:
    """Check that whatever happens inside leaves every parameter and buffer as it was."""
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    yield
    after = module.state_dict()
    assert list(before) == list(after)
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())


class Counting(Constraint):
    """Any matrix, as ``raw0 + raw1``, counting how often its value is requested."""

    count = 0

    def raw(self, rows: int, columns: int) -> tuple[Tensor, ...]:
        self.fix_shape(rows, columns)
        return torch.randn(rows, columns) / columns, torch.zeros(rows, columns)

    def forward(self, *raw: Tensor) -> Tensor:
        type(self).count += 1
        return raw[0] + raw[1]

    def invert(self, matrix: Tensor) -> tuple[Tensor, ...]:
        return matrix.clone(), torch.zeros_like(matrix)

    def violation(self, matrix: Tensor) -> Tensor:
        return matrix.new_zeros(())
