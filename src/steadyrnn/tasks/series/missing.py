"""Missing values, refused unless the settings say what becomes of them."""

import torch

from steadyrnn.errors import DataError

from .reading import Reading
from .settings import SeriesSettings

__all__ = ["check_missing"]


def check_missing(reading: Reading, settings: SeriesSettings) -> None:
    """Refuse missing values by the place of the first, if ``missing`` is ``refuse``."""
    if settings.missing != "refuse":
        return
    missing = torch.isnan(reading.series.values)
    if not bool(missing.any()):
        return
    row, channel = missing.nonzero()[0].tolist()
    count = int(missing.sum())
    raise DataError(
        f"{reading.place(row, channel)} must hold a number, but is missing; {count:,} "
        f"value{' is' if count == 1 else 's are'} missing in all. Say what becomes of them: `missing` (`--missing`) "
        "`interpolate` or `mask`."
    )
