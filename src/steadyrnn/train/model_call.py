"""Calling a model on a batch: states carried along, rows' lengths, a batch in parts and a rank's rows of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from steadyrnn.errors import ArgumentError
from steadyrnn.tasks.base import Batch, Interface

__all__ = [
    *("Part", "batch_rows", "call_model", "cut", "detach_state", "join_batches", "join_states", "rows_of_rank"),
    *("state_of_rank", "state_tensors", "state_with"),
]


@dataclass(frozen=True)
class Part:
    """Some rows of a batch, and the states they start from."""

    batch: Batch
    state: Any


def call_model(model: Callable[..., Any], batch: Batch, state: Any, interface: Interface) -> tuple[Tensor, Any]:
    """Return a model's output for a batch, and its last state where the task carries states, else None.

    The model is called with the input alone, with ``hx`` where there is a state to go on from and with ``lengths`` where rows
    are ragged. It returns its output, or a tuple of output and state.

    Example:
        >>> batch = Batch(torch.zeros(5, 2, 3), torch.zeros(2, 1))
        >>> output, state = call_model(sr.SequenceModel(sr.RNN(3, 4), 1), batch, None, Interface(3, 1))
        >>> output.shape, state
        (torch.Size([2, 1]), None)
    """
    more: dict[str, Any] = {}
    if interface.carries_state and state is not None and not batch.fresh:
        more["hx"] = state
    if batch.lengths is not None:
        more["lengths"] = batch.lengths
    result = model(batch.input, **more)
    output, last = result if isinstance(result, tuple) else (result, None)
    if interface.carries_state and last is None:
        raise ArgumentError("`model` must return (output, state), as this task carries states along, but gave no state.")
    return output, last if interface.carries_state else None


def batch_rows(batch: Batch, interface: Interface) -> int:
    """Return the number of rows of a batch, B."""
    return batch.count_rows(interface)


def rows_of_rank(batch: Batch, rank: int, size: int, interface: Interface) -> Batch:
    """Return the rows of a batch that one of several processes computes: of nearly equal number, in order.

    Example:
        >>> batch = Batch(torch.zeros(5, 3, 2), torch.zeros(3, 1))
        >>> [rows_of_rank(batch, rank, 2, Interface(2, 1)).input.shape[1] for rank in range(2)]
        [2, 1]
    """
    if batch_rows(batch, interface) < size:
        raise ArgumentError(
            f"A batch must have a row for each of the {size} ranks, but one has {batch_rows(batch, interface)} rows. Start "
            "fewer ranks, or give a larger `batch_size`."
        )
    return cut(batch, None, size, interface)[rank].batch


def state_of_rank(state: Any, rank: int, size: int) -> Any:
    """Return the rows of a whole batch's state that go with :func:`rows_of_rank`."""
    return state_with(state, [tensor.tensor_split(size, 1)[rank].contiguous() for tensor in state_tensors(state)])


def cut(batch: Batch, state: Any, parts: int, interface: Interface) -> list[Part]:
    """Cut a batch and the states it starts from into parts of nearly equal size, in order; none is empty.

    Rows stay with their states: part after part, row b goes on from the state of row b, as in the whole batch.

    Example:
        >>> batch = Batch(torch.zeros(5, 3, 2), torch.zeros(3, 1))
        >>> [part.batch.input.shape[1] for part in cut(batch, None, 2, Interface(2, 1))]
        [2, 1]
    """
    rows = batch_rows(batch, interface)
    parts = min(parts, rows)
    if parts <= 1:
        return [Part(batch, state)]
    inputs = batch.input.tensor_split(parts, _input_dimension(interface))
    targets = batch.target.tensor_split(parts, 1 if interface.reads == "each" else 0)
    lengths = [None] * parts if batch.lengths is None else batch.lengths.tensor_split(parts)
    states = [_cut_state(tensor, rows, parts) for tensor in state_tensors(state)]
    made = []
    for place, (x, y, ends) in enumerate(zip(inputs, targets, lengths, strict=True)):
        own = state_with(state, [pieces[place].contiguous() for pieces in states])
        made.append(Part(Batch(x, y, ends, batch.fresh), own))
    return made


def join_batches(batches: Sequence[Batch], interface: Interface) -> Batch:
    """Put parts of a batch together again."""
    if len(batches) == 1:
        return batches[0]
    lengths = [batch.lengths for batch in batches if batch.lengths is not None]
    return Batch(
        torch.cat([batch.input for batch in batches], _input_dimension(interface)),
        torch.cat([batch.target for batch in batches], 1 if interface.reads == "each" else 0),
        torch.cat(lengths) if lengths else None,
        batches[0].fresh,
    )


def join_states(states: Sequence[Any]) -> Any:
    """Put the states of the parts of a batch together again."""
    if len(states) == 1:
        return states[0]
    return state_with(states[0], [torch.cat(pieces, 1) for pieces in zip(*map(state_tensors, states), strict=True)])


def detach_state(state: Any) -> Any:
    """Return a state that gradients do not flow through, in memory of its own.

    A view would keep the outputs of all steps alive. And how a tensor lies in memory may decide the last bits of a product:
    here it lies as one that comes from a checkpoint.

    Example:
        >>> detach_state((torch.ones(1, requires_grad=True), torch.ones(1)))[0].requires_grad
        False
    """
    tensors = [tensor.detach().clone(memory_format=torch.contiguous_format) for tensor in state_tensors(state)]
    return state_with(state, tensors)


def state_tensors(state: Any) -> list[Tensor]:
    """Return the tensors of a state: none of None, one, or those of a tuple or list."""
    if state is None:
        return []
    if isinstance(state, Tensor):
        return [state]
    if isinstance(state, tuple | list) and all(isinstance(tensor, Tensor) for tensor in state):
        return list(state)
    raise ArgumentError(f"`model` must return a tensor or a tuple of tensors as its state, but gave {type(state).__name__}.")


def state_with(state: Any, tensors: Sequence[Tensor]) -> Any:
    """Return a state of the same form with other tensors."""
    return None if state is None else tensors[0] if isinstance(state, Tensor) else tuple(tensors)


def _cut_state(tensor: Tensor, rows: int, parts: int) -> tuple[Tensor, ...]:
    if tensor.dim() < 2 or tensor.shape[1] != rows:
        raise ArgumentError(
            f"`accumulate` cuts states by rows, their second dimension, (layers, {rows}, ...) here, but `model` gave one of "
            f"shape {tuple(tensor.shape)}. Use `accumulate` of 1."
        )
    return tensor.tensor_split(parts, 1)


def _input_dimension(interface: Interface) -> int:
    return 0 if interface.reads == "row" else 1
