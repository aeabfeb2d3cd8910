"""What a recurrent layer refuses when it is made."""

import warnings
from collections.abc import Mapping
from typing import Literal, TypeVar

import numpy
import torch

from steadyrnn.checks import check_interval
from steadyrnn.errors import (
    ArgumentError,
    ArgumentTypeError,
    DtypeError,
)

__all__ = [
    "check_bias",
    "check_dropout",
    "check_dtype",
    "fill_docstring",
    "refuse_positional",
    "refuse_projection",
    "with_shared_arguments",
]


_SHARED = """\
input_size: D.
        hidden_size: H.
        num_layers: Layers in the stack.
        bias: True for torch's two vectors, ``"single"`` for one, False for none.
        batch_first: Whether batched tensors are (B, T, ...).
        dropout: Probability between layers.
        bidirectional: Whether to run both ways.
        extra: Refused: what follows is given by name (here torch has ``proj_size``).
        device: Where parameters live.
        dtype: Their dtype.
        learn_initial_state: Whether the initial states are parameters (unused when ``hx`` is given).
        engine: ``"auto"``, or one by name; see :meth:`explain`.
        recompute: Whether to keep every sqrt(T)-th state only and run again from there in the backward pass.
        proj_size: Refused unless 0."""
_SHARED_BY_CELLS = """\
input_size: D.
        hidden_size: H.
        bias: True for torch's two vectors, ``"single"`` for one, False for none.
        device: Where parameters live.
        dtype: Their dtype.
        learn_initial_state: Whether the initial states are parameters (unused when ``hx`` is given)."""
_MARKS = {"<arguments of every layer>": _SHARED, "<arguments of every cell>": _SHARED_BY_CELLS}

Layer = TypeVar("Layer", bound=type)


def with_shared_arguments(layer: Layer) -> Layer:
    """Write the arguments that every layer, or every cell, has into the class's docstring, in place of their mark.

    Example:
        >>> "batch_first: Whether" in sr.GRU.__doc__
        True
    """
    return fill_docstring(layer, _MARKS)


def fill_docstring(made: Layer, marks: Mapping[str, str]) -> Layer:
    """Write texts in place of their marks into the docstring of a class, and return it."""
    if made.__doc__ is not None:  # python -OO leaves none
        for mark, text in marks.items():
            made.__doc__ = made.__doc__.replace(mark, text)
    return made


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
            f"Behind `bidirectional` a layer has no argument by position, but {extra[0]!r} came: there torch.nn has "
            "`proj_size`, which is not supported. Give `device`, `dtype` and what follows them by name."
        )


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
