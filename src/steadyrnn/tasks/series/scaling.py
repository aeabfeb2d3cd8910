"""Missing values filled and channels scaled; statistics are those of the training part alone."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from steadyrnn.errors import DataError

from .records import SeriesSet
from .split import Segments

__all__ = ["Scaling", "check_range", "fill_missing", "fit_scaling"]


@dataclass(frozen=True)
class Scaling:
    """Of each column a number to subtract and one to divide by.

    Args:
        mean: What is subtracted.
        deviation: What is divided by, above 0.

    Example:
        >>> Scaling((1.0,), (2.0,)).apply(torch.tensor([[5.0]]))
        tensor([[2.]])
    """

    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def apply(self, values: Tensor) -> Tensor:
        """Return scaled values (..., D)."""
        return (values - values.new_tensor(self.mean)) / values.new_tensor(self.deviation)

    def undo(self, values: Tensor) -> Tensor:
        """Return values (..., D) as they were before."""
        return values * values.new_tensor(self.deviation) + values.new_tensor(self.mean)

    def to_dict(self) -> dict[str, Any]:
        """Return the form that JSON holds."""
        return {name: [*numbers] for name, numbers in asdict(self).items()}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Sequence[float]]) -> "Scaling":
        """Return the scaling of a stored form."""
        return cls(tuple(map(float, stored["mean"])), tuple(map(float, stored["deviation"])))


def fit_scaling(values: Tensor, used: Tensor | None, scale: str, names: Sequence[str]) -> Scaling:
    """Return mean and standard deviation of each column over some rows; missing values do not count.

    A column that is constant in these rows keeps its deviation of 1, so that it becomes 0 there.

    Args:
        values: All rows, float64 ``(S, D)``; NaN is missing.
        used: Whether a row counts, (S,); None counts all.
        scale: ``standard`` or ``none``.
        names: Of the columns, for errors.

    Raises:
        DataError: A column has no value in these rows, or values too large to be squared.
    """
    rows = values if used is None else values[used]
    there = ~rows.isnan()
    counts = there.sum(0)
    empty = next((name for name, count in zip(names, counts.tolist(), strict=True) if count == 0), None)
    if empty is not None:
        raise DataError(f"The channel {empty!r} has no value in the training part. Leave it out: name others by `channels`.")
    if scale == "none":
        return Scaling((0.0,) * len(names), (1.0,) * len(names))
    mean = rows.nan_to_num(0.0).sum(0) / counts
    spread = ((rows - mean).nan_to_num(0.0).square().sum(0) / counts).sqrt()
    large = next((name for name, value in zip(names, spread.tolist(), strict=True) if not math.isfinite(value)), None)
    if large is not None:
        raise DataError(f"The values of {large!r} are too large for their mean and deviation. Scale them in the file first.")
    constant = spread <= 1e-12 * mean.abs()  # rounding alone
    return Scaling(tuple(mean.tolist()), tuple(torch.where(constant, 1.0, spread).tolist()))


def check_range(scaled: Tensor, names: Sequence[str], what: str) -> None:
    """Refuse scaled numbers (S, D) that are too large for float32, in which they have become infinite.

    Example:
        >>> check_range(torch.tensor([[1.0, torch.inf]]), ["x", "y"], "channel")
        Traceback (most recent call last):
        steadyrnn.errors.DataError: A scaled value of the channel 'y' is larger than float32 can hold, 3.4e38. ...
    """
    finite = scaled.isfinite().all(0).tolist()
    if not all(finite):
        name = names[finite.index(False)]
        raise DataError(f"A scaled value of the {what} {name!r} is larger than float32 can hold, 3.4e38. Scale the file first.")


def fill_missing(
    series: SeriesSet, parts: Mapping[str, Segments], scaling: Scaling, missing: str, ahead: bool = True
) -> Tensor:
    """Return scaled values without gaps, float32 ``(S, D)``, or ``(S, 2 D)`` where a mask goes along.

    A gap is filled from its own segment alone: nothing of the test reaches the training part, and nothing of the future
    reaches beyond a date at which the series was split. A channel without any value in a segment becomes its training mean.

    Args:
        series: As read.
        parts: Segments of each part.
        scaling: Fitted to the training part.
        missing: ``refuse`` (the reader has), ``interpolate`` or ``mask``.
        ahead: Whether a gap may be filled from a later value. Where the future is to be predicted it must not be: the line to
            the next value would tell it. A gap then becomes the value before it.
    """
    values = scaling.apply(series.values)
    gaps = values.isnan()
    if missing == "interpolate" and bool(gaps.any()):
        values = values.clone()
        for segments in parts.values():
            for start, stop in zip(segments.start.tolist(), segments.stop.tolist(), strict=True):
                if bool(gaps[start:stop].any()):
                    values[start:stop] = _interpolate(values[start:stop], ahead)
    filled = values.nan_to_num(0.0).float()
    check_range(filled, series.channels, "channel")
    return torch.cat([filled, gaps.float()], 1) if missing == "mask" else filled


def _interpolate(values: Tensor, ahead: bool) -> Tensor:
    """Return the rows of a segment, (T, D), with gaps on the line between neighbours; at an end, the nearest value.

    Without looking ahead, a gap is the value before it, and one at the beginning is left.

    Example:
        >>> _interpolate(torch.tensor([[float("nan")], [1.0], [float("nan")], [3.0]]), ahead=True).flatten()
        tensor([1., 1., 2., 3.])
        >>> _interpolate(torch.tensor([[float("nan")], [1.0], [float("nan")], [3.0]]), ahead=False).flatten()
        tensor([nan, 1., 1., 3.])
    """
    filled = values.clone()
    time = torch.arange(len(values), dtype=values.dtype)
    for channel in range(values.shape[1]):
        there = ~values[:, channel].isnan()
        if not bool(there.any()) or bool(there.all()):
            continue
        known, at = values[there, channel], time[there]
        if not ahead:
            before = there.cumsum(0) - 1
            filled[:, channel] = torch.where(before >= 0, known[before.clamp(min=0)], torch.nan)
            continue
        right = torch.searchsorted(at, time).clamp(max=len(at) - 1)
        left = torch.where(at[right] > time, (right - 1).clamp(min=0), right)
        width = (at[right] - at[left]).clamp(min=1)
        share = ((time - at[left]) / width).clamp(0, 1)
        filled[:, channel] = torch.where(there, values[:, channel], known[left] + share * (known[right] - known[left]))
    return filled
