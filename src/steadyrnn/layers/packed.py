"""The one file on packed sequences and lengths: both become padded tensors with the longest row first."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from steadyrnn.errors import ArgumentError, ArgumentTypeError, ShapeError

__all__ = ["Opened", "close_sequence", "open_sequence"]


class Opened(NamedTuple):
    """An input as engines want it, and the way back."""

    data: Tensor  # (T, B, D)
    batch_sizes: Tensor | None = None  # (T,) on the CPU
    order: Tensor | None = None  # (B,): place of each sorted row in the user's batch
    restore: Tensor | None = None  # (B,): its inverse
    places: Tensor | None = None  # (sum of lengths,): where packed entries lie in the padded data

    def arrange(self, state: Tensor) -> Tensor:
        """Sort rows of a state (..., B, H) as the data's are."""
        return state if self.order is None else state.index_select(-2, self.order)

    def recover(self, state: Tensor) -> Tensor:
        """Put rows of a state (..., B, H) back into the user's order."""
        return state if self.restore is None else state.index_select(-2, self.restore)


def open_sequence(
    input: Tensor | PackedSequence, lengths: Tensor | Sequence[int] | None, batch_first: bool
) -> tuple[Opened, bool]:
    """Return the input as (T, B, D), longest row first, padding zero; and whether it had a batch dimension.

    A packed sequence is spread out, with a zero wherever a row has ended; ``lengths`` sorts the rows.
    """
    if isinstance(input, PackedSequence):
        if lengths is not None:
            raise ArgumentError("`lengths` cannot be given beside a PackedSequence, which knows its own.")
        return open_packed(input), True
    if not isinstance(input, Tensor):
        raise ArgumentTypeError(f"`input` must be a tensor or a PackedSequence, but is of type {type(input).__name__}.")
    if input.dim() not in (2, 3):
        raise ShapeError(f"`input` must have 2 dimensions (unbatched) or 3, but has shape {tuple(input.shape)}.")
    if input.dim() == 2:
        if lengths is not None:
            raise ArgumentError("`lengths` needs a batch, but `input` is unbatched (2 dimensions).")
        return Opened(input.unsqueeze(1)), False
    data = input.transpose(0, 1) if batch_first else input
    if lengths is None:
        return Opened(data), True
    return open_ragged(data, check_lengths(lengths, data)), True


def as_integers(lengths: Sequence[int]) -> Tensor:
    """Return a sequence of lengths as a tensor; an empty one, too, holds integers."""
    if isinstance(lengths, Sequence) and not lengths:
        return torch.zeros(0, dtype=torch.int64, device="cpu")
    try:
        return torch.as_tensor(lengths, device="cpu")
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArgumentTypeError(f"`lengths` must be integers, one a row, but cannot be read as a tensor: {error}.") from error


def check_lengths(lengths: Tensor | Sequence[int], data: Tensor) -> Tensor:
    """Return ``lengths`` as an int64 tensor (B,) on the data's device, every entry from 0 to T."""
    steps, rows = data.shape[:2]
    tensor = lengths if isinstance(lengths, Tensor) else as_integers(lengths)
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise ArgumentTypeError(f"`lengths` must hold integers, but has dtype {tensor.dtype}.")
    if tuple(tensor.shape) != (rows,):
        raise ShapeError(f"`lengths` must have shape ({rows},), one entry a row, but has {tuple(tensor.shape)}.")
    tensor = tensor.to(torch.int64)  # first: in a narrow dtype the number of steps would wrap around
    inside = ((tensor >= 0) & (tensor <= steps)).all()
    message = "`lengths` must lie between 0 and the number of steps"
    if torch.compiler.is_compiling():
        torch._assert_async(inside, message)  # a number in the text would tie the graph to it
    elif not bool(inside):
        raise ArgumentError(f"{message}, {steps}, but goes from {int(tensor.min())} to {int(tensor.max())}.")
    return tensor.to(data.device)


def open_ragged(data: Tensor, lengths: Tensor) -> Opened:
    """Sort rows by length and zero the padding."""
    ordered, order = lengths.sort(descending=True, stable=True)
    running = ordered > torch.arange(data.shape[0], device=data.device).unsqueeze(1)  # (T, B)
    data = torch.where(
        running.unsqueeze(-1), data.index_select(1, order), torch.zeros((), dtype=data.dtype, device=data.device)
    )
    return Opened(data, running.sum(1).cpu(), order, order.argsort())


def open_packed(packed: PackedSequence) -> Opened:
    """Spread a packed sequence out: entry i of step t goes to (t, i)."""
    data, sizes, order, restore = packed
    if data.dim() != 2:
        raise ShapeError(f"`input` must hold one vector a step, but its data has shape {tuple(data.shape)}.")
    steps, total = sizes.shape[0], data.shape[0]
    rows = int(sizes[0]) if order is None else order.shape[0]
    time = torch.repeat_interleave(torch.arange(steps, device=sizes.device), sizes, output_size=total)
    row = torch.arange(total, device=sizes.device) - (sizes.cumsum(0) - sizes)[time]
    places = (time * rows + row).to(data.device)
    padded = data.new_zeros(steps * rows, data.shape[-1]).index_copy(0, places, data)
    return Opened(padded.view(steps, rows, data.shape[-1]), sizes, order, restore, places)


def close_sequence(
    output: Tensor, opened: Opened, input: Tensor | PackedSequence, batched: bool, batch_first: bool
) -> Tensor | PackedSequence:
    """Return outputs (T, B, O) in the form of the user's input."""
    if isinstance(input, PackedSequence):
        flat = output.reshape(output.shape[0] * output.shape[1], output.shape[2])
        data = flat if opened.places is None else flat.index_select(0, opened.places)
        return PackedSequence(data, input.batch_sizes, input.sorted_indices, input.unsorted_indices)
    if not batched:
        return output.squeeze(1)
    output = opened.recover(output)
    return output.transpose(0, 1) if batch_first else output
