"""The arguments of a call: what is refused, and packed sequences and lengths as padded tensors, longest row first."""

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from steadyrnn.cells.base import State
from steadyrnn.checks import assert_async, autocasts, check_dense, is_traced
from steadyrnn.errors import (
    ArgumentError,
    ArgumentTypeError,
    ConversionError,
    DeviceError,
    DtypeError,
    LayoutWarning,
    ShapeError,
)

if TYPE_CHECKING:
    from .base import RecurrentLayer

__all__ = [
    "Opened",
    "check_input",
    "check_states",
    "check_traced",
    "close_call",
    "close_sequence",
    "initial_states",
    "open_call",
    "open_sequence",
    "warn_of_layout",
]

_MANY_ROWS = 2048
"""From how many rows on a single step is taken for a mistake."""


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


def open_call(
    layer: "RecurrentLayer", input: Tensor | PackedSequence, hx: Any, lengths: Tensor | Sequence[int] | None
) -> tuple[Opened, bool, State | None]:
    """Check the arguments of a call; what runs a layer begins with this and ends with :func:`close_call`.

    Returns:
        The input in the dtype to compute in, whether it had a batch dimension, and the user's states, each
        (L * directions, B, H), None where none are given.
    """
    opened, batched = open_sequence(input, lengths, layer.batch_first)
    weight, places, rows = layer.weight_ih_l0, layer.num_layers * layer.directions, opened.data.shape[1]
    dtype = check_input(layer, opened.data, weight)
    expected = (places, rows, layer.hidden_size) if batched else (places, layer.hidden_size)
    given = check_states(layer._states(hx), expected, weight)
    if given is not None and not batched:
        given = tuple(state.unsqueeze(1) for state in given)
    return opened._replace(data=opened.data.to(dtype)), batched, given


def initial_states(layer: "RecurrentLayer", opened: Opened, given: State | None) -> State:
    """Return initial states, each (L * directions, B, H), rows sorted as the data's."""
    rows, dtype = opened.data.shape[1], opened.data.dtype
    if given is not None:
        return tuple(opened.arrange(state.to(dtype)) for state in given)
    places = layer.num_layers * layer.directions
    if not layer.learn_initial_state:
        return tuple(opened.data.new_zeros(places, rows, layer.hidden_size) for _ in layer.cell.record.state_names)
    learned = [torch.stack([getattr(layer, f"{name}{end}") for end in layer.suffixes()]) for name in layer._state_names()]
    return tuple(state.to(dtype).unsqueeze(1).expand(places, rows, layer.hidden_size) for state in learned)


def close_call(
    layer: "RecurrentLayer", output: Tensor, states: State, opened: Opened, input: Tensor | PackedSequence, batched: bool
) -> tuple[Tensor | PackedSequence, Any]:
    """Return outputs (T, B, O) and final states in the form of the user's input."""
    finals = tuple(opened.recover(s) if batched else s.squeeze(1) for s in states)
    return close_sequence(output, opened, input, batched, layer.batch_first), layer._final(finals)


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
        raise ArgumentTypeError(f"`lengths` must be integers, one per row, but cannot be read as a tensor: {error}.") from error


def check_lengths(lengths: Tensor | Sequence[int], data: Tensor) -> Tensor:
    """Return ``lengths`` as an int64 tensor (B,) on the data's device, every entry from 0 to T."""
    steps, rows = data.shape[:2]
    tensor = lengths if isinstance(lengths, Tensor) else as_integers(lengths)
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise ArgumentTypeError(f"`lengths` must hold integers, but has dtype {tensor.dtype}.")
    if tuple(tensor.shape) != (rows,):
        raise ShapeError(f"`lengths` must have shape ({rows},), one entry per row, but has {tuple(tensor.shape)}.")
    tensor = tensor.to(torch.int64)  # first: in a narrow dtype the number of steps would wrap around
    inside = ((tensor >= 0) & (tensor <= steps)).all()
    message = "`lengths` must lie between 0 and the number of steps"
    if torch.compiler.is_compiling():
        assert_async(inside, message)  # a number in the text would tie the graph to it
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
        raise ShapeError(f"`input` must hold one vector per step, but its data has shape {tuple(data.shape)}.")
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


def check_traced(input: Tensor | PackedSequence, lengths: object) -> None:
    """Refuse what a trace would fix for all later calls without a word: lengths of rows, and a run of no steps."""
    if not is_traced():
        return
    way = "Use `torch.export.export`, which keeps them as arguments."
    if lengths is not None or isinstance(input, PackedSequence):
        raise ConversionError(f"A trace holds the lengths of rows as they are, so a layer with lengths is not traced. {way}")
    if isinstance(input, Tensor) and input.numel() == 0:
        raise ConversionError("A trace of an empty input holds no step at all. Trace with an input that is not empty.")


def warn_of_layout(module: torch.nn.Module, data: Tensor) -> bool:
    """Warn of one step of very many rows, (1, B, D): what a long series looks like where `batch_first` was meant.

    Returns:
        Whether it has warned.
    """
    if torch.compiler.is_compiling() or is_traced() or data.shape[0] != 1 or data.shape[1] < _MANY_ROWS:
        return False
    warnings.warn(
        f"`input` of shape {tuple(data.shape)} is one step of {data.shape[1]} rows for this {type(module).__name__}. If it is "
        f"one row of {data.shape[1]} steps, make the layer with `batch_first=True`. (Shown once per layer, and not with `hx`.)",
        LayoutWarning,
        stacklevel=5,
    )
    return True


def check_input(module: torch.nn.Module, data: Tensor, weight: Tensor) -> torch.dtype:
    """Check width, device and dtype of data (..., D) against the input weight (G * H, D).

    Returns:
        The dtype to compute in: autocast's where it is on, else the weights'.
    """
    name = type(module).__name__
    check_dense("input", data)
    if data.shape[-1] != weight.shape[1]:
        raise ShapeError(
            f"`input` must have {weight.shape[1]} features (input_size) in its last dimension, but has {data.shape[-1]}."
        )
    if data.device != weight.device:
        raise DeviceError(
            f"`input` is on {data.device}, but the weights of this {name} are on {weight.device}. Move one of them."
        )
    if not data.is_floating_point():
        raise DtypeError(
            f"`input` has dtype {data.dtype}, but a {name} computes with real floating numbers. Convert it, "
            f"input.to({weight.dtype}); tokens go through `torch.nn.Embedding` first."
        )
    doubles = torch.float64 in (weight.dtype, data.dtype)  # which autocast leaves alone
    if autocasts(data.device) and not doubles:
        return torch.get_autocast_dtype(data.device.type)
    if data.dtype != weight.dtype:
        raise DtypeError(
            f"`input` has dtype {data.dtype}, but the weights of this {name} have {weight.dtype}. "
            f"Convert the input, input.to({weight.dtype}), or the {name}, .to({data.dtype})."
        )
    return weight.dtype


def check_states(states: State | None, expected: tuple[int, ...], weight: Tensor) -> State | None:
    """Return the user's initial states if each has the ``expected`` shape and the weights' device and dtype."""
    if states is None:
        return None
    for name, state in zip(("hx", "cx"), states, strict=False):
        if not isinstance(state, Tensor):
            raise ArgumentTypeError(f"`{name}` must be a tensor, but is of type {type(state).__name__}.")
        check_dense(name, state)
        if tuple(state.shape) != expected:
            raise ShapeError(f"`{name}` must have shape {expected}, but has {tuple(state.shape)}.")
        if state.device != weight.device:
            raise DeviceError(f"`{name}` is on {state.device}, but the weights are on {weight.device}.")
        if state.dtype != weight.dtype and not (autocasts(state.device) and state.is_floating_point()):
            raise DtypeError(f"`{name}` has dtype {state.dtype}, but the weights have {weight.dtype}.")
    return states
