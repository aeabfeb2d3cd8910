"""Missing values, refused unless the settings say what becomes of them."""

import torch
from torch import Tensor

from steadyrnn.errors import DataError

from .reading import Reading
from .settings import SeriesSettings

__all__ = ["check_missing"]


def check_missing(reading: Reading, settings: SeriesSettings) -> None:
    """Refuse missing values by the place of the first, if ``missing`` is ``refuse``; a series without any value always."""
    missing = torch.isnan(reading.series.values)
    if not bool(missing.any()):
        return
    if settings.missing != "refuse":
        _check_empty(reading, missing.all(1))
        return
    row, channel = missing.nonzero()[0].tolist()
    count = int(missing.sum())
    raise DataError(
        f"{reading.place(row, channel)} must hold a number, but is missing; {count:,} "
        f"value{' is' if count == 1 else 's are'} missing in all. Say what becomes of them: `missing` (`--missing`) "
        "`interpolate` or `mask`."
    )


def _check_empty(reading: Reading, missing: Tensor) -> None:
    """Refuse a series without any value; no setting helps there."""
    ends = reading.series.lengths.cumsum(0)
    total = torch.cat([torch.zeros(1, dtype=torch.int64), missing.cumsum(0)])
    empty = (total[ends] - total[ends - reading.series.lengths] == reading.series.lengths).nonzero()
    if len(empty):
        which = int(empty[0])
        where = reading.place(int(reading.series.starts[which]), 0)
        raise DataError(
            f"{where}: the series {reading.series.names[which]!r} must hold values, but all are missing. Remove it."
        )
