"""Targets, names and groups that are arrays of a NumPy archive."""

import numpy as np
import torch
from numpy.typing import NDArray

from steadyrnn.errors import DataError

from .array_file import StoredArray
from .records import RawTarget
from .table import Integers

__all__ = ["target_of_array", "texts_of_array"]


def target_of_array(stored: StoredArray, name: str, lengths: Integers, steps: int) -> RawTarget:
    """Return a target: of each series with shape (N,) or (N, C), of each step with (N, T) or (N, T, C).

    Args:
        stored: The array.
        name: Of it.
        lengths: Steps of each series, (N,).
        steps: T, of the array of values. A second dimension of this size, above 1, is time.
    """
    shape = stored.shape
    each = len(shape) == 3 or (len(shape) == 2 and shape[1] == steps > 1)
    if len(shape) not in {1, 2, 3} or shape[0] != len(lengths) or 0 in shape or (len(shape) == 3 and shape[1] != steps):
        count = len(lengths)
        raise DataError(
            f"{stored.where} must have the shape ({count},) or ({count}, C), or ({count}, {steps}) or ({count}, {steps}, C) "
            f"for a target of each step, but has {shape}."
        )
    values = stored.read()
    if each:
        values = values[np.arange(steps) < lengths[:, None]]  # (S,) or (S, C)
    values = values.reshape(len(values), -1)
    if stored.dtype.kind in "US":
        if values.shape[1] != 1:
            raise DataError(f"{stored.where} must hold one text per series or step, but has shape {shape}.")
        return RawTarget((name,), texts=_texts(values[:, 0], stored), each=each)
    numbers = values.astype(np.float64)
    wrong = np.argwhere(~np.isfinite(numbers))
    if len(wrong):
        what = "step" if each else "series"
        raise DataError(
            f"{stored.where} must hold a finite target everywhere, but that of {what} {wrong[0][0]}, from 0, is not."
        )
    width = numbers.shape[1]
    names = (name,) if width == 1 else tuple(f"{name}_{column}" for column in range(width))
    return RawTarget(names, numbers=torch.from_numpy(numbers), each=each)


def texts_of_array(stored: StoredArray, count: int) -> tuple[str, ...]:
    """Return one text for each series; numbers become texts."""
    if stored.shape != (count,) or stored.dtype.kind not in "iuUS":
        raise DataError(
            f"{stored.where} must hold {count} texts or integers, but has shape {stored.shape}, dtype {stored.dtype}."
        )
    return _texts(stored.read(), stored)


def _texts(values: NDArray[np.generic], stored: StoredArray) -> tuple[str, ...]:
    """Return texts, none of which is empty."""
    try:
        texts = tuple(values.astype(np.str_).tolist())
    except ValueError as error:  # bytes that are not ASCII, numbers that are no characters
        raise DataError(f"{stored.where} must hold texts, but {error}.") from None
    if "" in texts:
        raise DataError(f"{stored.where} must hold a text everywhere, but [{texts.index('')}] is empty.")
    return texts
