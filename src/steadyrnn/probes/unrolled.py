"""A recurrent module as a chain of single steps, with every state on the way: what the probes differentiate."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from steadyrnn.cells.base import State
from steadyrnn.certificates.layer import Weights, read_weights
from steadyrnn.checks import check_finite, without_autocast
from steadyrnn.engines.base import Recurrence
from steadyrnn.engines.reference import ReferenceEngine
from steadyrnn.errors import ArgumentError, ArgumentTypeError, NotFiniteError, ShapeError
from steadyrnn.layers.base import RecurrentLayer
from steadyrnn.layers.sequence import check_input
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.models.tokens import check_tokens

__all__ = ["Layer", "Unrolled", "advance", "as_recurrence", "unroll"]

Layer = RecurrentLayer | nn.RNN | nn.GRU | nn.LSTM
_REFERENCE = ReferenceEngine()


@dataclass(frozen=True)
class Unrolled:
    """One run of a recurrent module.

    ``weights`` are those of every layer, in float64; ``states[t][l]`` is the state of layer l after t steps, each tensor
    (B, H) in the module's dtype, so there are T + 1 of them; ``inputs`` is what the first layer saw, (T, B, D).
    """

    rnn: Layer
    model: SequenceModel | None
    weights: tuple[Weights, ...]
    inputs: Tensor
    states: tuple[tuple[State, ...], ...]
    batched: bool

    @property
    def steps(self) -> int:
        """T."""
        return len(self.states) - 1

    def outputs(self) -> Tensor:
        """Return the output of the top layer at every step, shape (T, B, H)."""
        return torch.stack([layers[-1][0] for layers in self.states[1:]])

    def top(self) -> "Unrolled":
        """Return the top layer by itself, fed with what the layers below it put out."""
        if len(self.weights) == 1:
            return self
        below = torch.stack([layers[-2][0] for layers in self.states[1:]])
        states = tuple(layers[-1:] for layers in self.states)
        return Unrolled(self.rnn, self.model, self.weights[-1:], below, states, self.batched)

    def as_user(self, tensor: Tensor) -> Tensor:
        """Return (T, B, ...) in the form of the user's input: batch first, or without a batch."""
        if not self.batched:
            return tensor.squeeze(1)
        return tensor.transpose(0, 1) if self.rnn.batch_first else tensor


@torch.no_grad()
def unroll(module: nn.Module, input: Tensor) -> Unrolled:
    """Run a layer or sequence model step by step, without dropout, and keep every state.

    Args:
        module: An RNN, GRU or LSTM of this package or of ``torch.nn``, one-directional, or a ``SequenceModel`` of one.
        input: As the module takes it: (T, B, D), (B, T, D) if ``batch_first``, or (T, D); tokens without D.

    Example:
        >>> run = unroll(sr.RNN(3, 4, num_layers=2), torch.ones(5, 1, 3))
        >>> run.steps, len(run.weights), run.outputs().shape
        (5, 2, torch.Size([5, 1, 4]))
    """
    model = module if isinstance(module, SequenceModel) else None
    rnn = _check_layer(module if model is None else model.rnn)
    data, batched = _as_batch(_features(model, input), rnn)
    weight: Any = rnn.weight_ih_l0
    check_input(rnn, data, weight)
    data = check_finite("input", data).detach().to(weight.dtype)
    with without_autocast(data.device):
        weights = tuple(ways[0] for ways in read_weights(rnn))
        layers = tuple(as_recurrence(layer, data.shape[1], data) for layer in weights)
        states = [tuple(layer.state for layer in layers)]
        for x in data:
            states.append(advance(layers, x, states[-1]))
    if not all(tensor.isfinite().all() for state in states[-1] for tensor in state):
        raise NotFiniteError(f"The states of the module are not finite after {len(data)} steps: no gradient exists.")
    return Unrolled(rnn, model, weights, data, tuple(states), batched)


def advance(layers: tuple[Recurrence, ...], x: Tensor, states: tuple[State, ...]) -> tuple[State, ...]:
    """Return the next state of every layer, one step of the reference loop each; differentiable.

    Args:
        layers: From the first to the top.
        x: Input of the first, shape (B, D).
        states: State of each layer, tensors of shape (B, H).
    """
    new = []
    for layer, state in zip(layers, states, strict=True):
        _, after = _REFERENCE.run(layer._replace(input=x.unsqueeze(0), state=state))
        new.append(after)
        x = after[0]
    return tuple(new)


def _check_layer(module: nn.Module) -> Layer:
    """Return a recurrent layer that has one direction and no projection."""
    if not isinstance(module, Layer):
        raise ArgumentTypeError(
            "`module` must be an RNN, GRU or LSTM, of this package or of torch.nn, or a SequenceModel, but is of type "
            f"{type(module).__name__}. Pass the recurrent layer of a larger model."
        )
    if module.bidirectional:
        raise ArgumentError(
            "`module` is bidirectional: its directions are two recurrences, and no one lag runs through both. "
            "Probe a one-directional layer with the weights of one of them."
        )
    if module.proj_size:
        raise ArgumentError(f"`module` has proj_size={module.proj_size}: a projected LSTM is not supported.")
    return module


def _features(model: SequenceModel | None, input: Tensor) -> Tensor:
    """Return what the recurrent layer of a model sees: embedded tokens, or the input itself."""
    if not isinstance(input, Tensor):
        raise ArgumentTypeError(f"`input` must be a tensor, but is of type {type(input).__name__}.")
    if model is None or model.embedding is None:
        return input
    embedded: Tensor = model.embedding(check_tokens(input, model.embedding.num_embeddings))
    return embedded


def _as_batch(data: Tensor, rnn: Layer) -> tuple[Tensor, bool]:
    """Return the input as (T, B, D), and whether it had a batch dimension."""
    if data.dim() not in (2, 3):
        raise ShapeError(f"`input` must have 2 dimensions (unbatched) or 3, but has shape {tuple(data.shape)}.")
    batched = data.dim() == 3
    rows = data if batched else data.unsqueeze(1)
    rows = rows.transpose(0, 1) if batched and rnn.batch_first else rows
    if 0 in rows.shape[:2]:
        raise ArgumentError(
            f"`input` must have at least one step and one row, but has {rows.shape[0]} steps and {rows.shape[1]} rows."
        )
    return rows, batched


def as_recurrence(weights: Weights, rows: int, like: Tensor) -> Recurrence:
    """Return one layer with an empty input, in every row its initial state, in the dtype and on the device of ``like``.

    Args:
        weights: The layer's, in float64.
        rows: B.
        like: Any tensor.
    """
    zero = weights.weight_ih.new_zeros(weights.size)
    first = weights.initial or (zero,) * weights.cell.states
    state = tuple(tensor.detach().to(like).expand(rows, -1) for tensor in first)
    weight_ih, weight_hh = weights.weight_ih.detach().to(like), weights.weight_hh.detach().to(like)
    ih, hh, theta = (None if t is None else t.detach().to(like) for t in (weights.bias_ih, weights.bias_hh, weights.theta))
    empty = like.new_empty(0, rows, weight_ih.shape[1])
    return Recurrence(weights.cell, empty, state, weight_ih, weight_hh, ih, hh, theta)
