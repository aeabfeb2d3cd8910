"""What a recurrent layer refuses, and how it says so."""

import warnings
from typing import Literal

import numpy
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from steadyrnn.cells.base import State
from steadyrnn.checks import autocasts, check_dense, check_interval, is_traced
from steadyrnn.errors import (
    ArgumentError,
    ArgumentTypeError,
    ConversionError,
    DeviceError,
    DtypeError,
    LayoutWarning,
    ShapeError,
)

__all__ = [
    "check_bias",
    "check_dropout",
    "check_dtype",
    "check_input",
    "check_states",
    "check_traced",
    "refuse_positional",
    "refuse_projection",
    "warn_of_layout",
]

_MANY_ROWS = 2048
"""From how many rows on a single step is taken for a mistake."""


def refuse_projection(proj_size: int) -> None:
    """Refuse ``proj_size`` by name: a projected state has no recurrent matrix to constrain."""
    if proj_size:
        raise ArgumentError(
            f"`proj_size` is not supported, but is {proj_size}: a projected LSTM's recurrent weight is not square. "
            "Put a `steadyrnn.Linear` behind the layer instead."
        )


def refuse_positional(extra: tuple[object, ...]) -> None:
    """Refuse arguments by place behind `bidirectional`, where torch has `proj_size`."""
    if extra:
        raise ArgumentTypeError(
            f"Behind `bidirectional` a layer takes no argument by place, but {extra[0]!r} came: there torch.nn has "
            "`proj_size`, which is not supported. Give `device`, `dtype` and what follows them by name."
        )


def warn_of_layout(module: torch.nn.Module, data: Tensor) -> bool:
    """Warn of one step of very many rows, (1, B, D): what a long series looks like where `batch_first` was meant.

    Returns:
        Whether it has warned.
    """
    if torch.compiler.is_compiling() or is_traced() or data.shape[0] != 1 or data.shape[1] < _MANY_ROWS:
        return False
    warnings.warn(
        f"`input` of shape {tuple(data.shape)} is one step of {data.shape[1]} rows for this {type(module).__name__}. If it is "
        f"one row of {data.shape[1]} steps, make the layer with `batch_first=True`. (Said once a layer, and not with `hx`.)",
        LayoutWarning,
        stacklevel=5,
    )
    return True


def check_traced(input: Tensor | PackedSequence, lengths: object) -> None:
    """Refuse what a trace would fix for all later calls without a word: lengths of rows, and a run of no steps."""
    if not is_traced():
        return
    way = "Use `torch.export.export`, which keeps them as arguments."
    if lengths is not None or isinstance(input, PackedSequence):
        raise ConversionError(f"A trace holds the lengths of rows as they are, so a layer with lengths is not traced. {way}")
    if isinstance(input, Tensor) and input.numel() == 0:
        raise ConversionError("A trace of an empty input holds no step at all. Trace with an input that is not empty.")


def check_bias(bias: object) -> bool | Literal["single"]:
    """Return ``bias`` if it is True, False or ``"single"``; torch's layers refuse 0 and 1 too."""
    if isinstance(bias, bool | numpy.bool_):
        return bool(bias)
    if bias == "single":
        return "single"
    error = ArgumentError if isinstance(bias, str) else ArgumentTypeError
    raise error(f"`bias` must be True (two vectors, as torch has), 'single' or False, but is {bias!r}.")


def check_dtype(dtype: torch.dtype | None) -> None:
    """Refuse a dtype that no engine computes in."""
    known = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    if dtype is not None and dtype not in known:
        raise DtypeError(f"`dtype` must be one of {', '.join(map(str, known))}, but is {dtype}.")


def check_dropout(dropout: float, num_layers: int) -> float:
    """Return ``dropout`` if it is a probability; warn, as torch does, where there is nothing between layers."""
    check_interval("dropout", dropout, 0.0, 1.0)
    if dropout > 0 and num_layers == 1:
        warnings.warn(
            f"`dropout` acts between layers, so dropout={dropout} with num_layers=1 has no effect.",
            UserWarning,
            stacklevel=5,
        )
    return dropout


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
