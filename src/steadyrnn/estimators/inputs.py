"""What estimators take as X: a table, an array of series, or series of different lengths."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_array, validate_data

from steadyrnn.errors import ShapeError

__all__ = ["Series", "is_several", "read_array", "read_table"]

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Series:
    """Some series.

    Args:
        values: N arrays (T_i, D).
        table: Whether they were the rows of a table.
    """

    values: list[Numbers]
    table: bool


def is_several(X: Any) -> bool:
    """Say whether X holds series one by one, or as an array (N, T, D), and is not a table of numbers.

    Example:
        >>> is_several([np.zeros(3), np.zeros(4)]), is_several([[1, 2], [3, 4]]), is_several(np.zeros((5, 3, 2)))
        (True, False, True)
    """
    if isinstance(X, np.ndarray) and not X.dtype.hasobject:
        return X.ndim == 3
    if isinstance(X, np.ndarray):
        return X.ndim == 1 and len(X) > 0 and all(_has_steps(one) for one in X)
    if not isinstance(X, list | tuple):
        return len(getattr(X, "shape", ())) == 3
    if not X or not all(_has_steps(one) for one in X):
        return False
    plain = all(isinstance(one, list | tuple) for one in X)
    return not plain or len({len(one) for one in X}) > 1 or any(_has_steps(step) for step in X[0])


def read_table(estimator: Any, X: Any, *, reset: bool, **how: Any) -> Series:
    """Return a table as series of one channel, a row each.

    Args:
        estimator: Takes note of the number and the names of columns, or is compared with them.
        X: Numbers, (N, T).
        reset: Whether this is the first call.
        how: Arguments of ``sklearn.utils.validation.validate_data``.
    """
    found = validate_data(estimator, X, reset=reset, dtype=np.float64, **how)
    return Series([row[:, None] for row in found], True)


def read_array(name: str, X: Any, finite: bool | str) -> Series:
    """Return series that came one by one, or as an array (N, T, D).

    Args:
        name: Of the argument.
        X: An array, or arrays (T_i,) or (T_i, D).
        finite: As ``ensure_all_finite`` of scikit-learn.
    """
    if isinstance(X, Sequence) or (isinstance(X, np.ndarray) and X.dtype.hasobject):
        values = [_read_one(f"{name}[{place}]", one, finite) for place, one in enumerate(X)]
    else:
        cube = check_array(X, dtype=np.float64, allow_nd=True, ensure_all_finite=finite, input_name=name)
        values = [_read_one(f"{name}[{place}]", one, finite) for place, one in enumerate(cube)]
    widths = {one.shape[1] for one in values}
    if len(widths) > 1:
        raise ShapeError(f"The series of `{name}` must have the same number of channels, but have {sorted(widths)}.")
    return Series(values, False)


def _read_one(name: str, one: Any, finite: bool | str) -> Numbers:
    """Return one series as (T, D)."""
    how = {"ensure_2d": False, "allow_nd": True, "dtype": np.float64, "ensure_all_finite": finite, "input_name": name}
    found = check_array(one, ensure_min_samples=1, **how)
    if found.ndim == 1:
        found = found[:, None]
    if found.ndim != 2 or not found.shape[1]:
        raise ShapeError(f"`{name}` must be a series of shape (T,) or (T, D), but has shape {found.shape}.")
    values: Numbers = found
    return values


def _has_steps(one: Any) -> bool:
    """Say whether something is a series, and not a number."""
    return isinstance(one, list | tuple) or len(getattr(one, "shape", ())) > 0
