"""The settings of a task on a user's own series, free of torch: the command line reads them to show its help."""

import re
from dataclasses import dataclass
from pathlib import Path

from ..settings import TaskSettings

__all__ = ["SeriesSettings"]


@dataclass(frozen=True)
class SeriesSettings(TaskSettings):
    """Series of your own, from a file or a folder of files.

    Args:
        data: The file or folder: CSV (``.csv``, ``.tsv``, ``.txt``), Parquet, ``.npz``, ``.npy``, ``.ts``, ``.arff``.
        target: Columns to predict, separated by commas; in ``.npz`` an array. To forecast, the channels to forecast. None: the
            class of a ``.ts`` or ``.arff`` file, the folder of a file in a folder of folders, or all channels to forecast.
        series: Column that names the series of a row. None: one series, or one per file or row.
        time: Column of times; rows of a series are sorted by it. None: rows are in order.
        group: Column whose groups must not be divided between training, validation and test, such as the patient.
        channels: Columns to read, separated by commas. None: every other column that holds numbers.
        layout: ``long``: a row per step; ``rows``: a row per series; ``auto``: as the columns suggest.
        header: Whether the first line of a CSV file names the columns; without one they are called 1, 2, 3, ...
        kind: ``classification``, ``regression``, ``forecasting``; ``auto``: as target and horizon say.
        horizon: Steps to forecast.
        window: Steps of a window, into which long series are cut. None: chosen by the length.
        stride: Steps from one window to the next. None: half a window; one tenth of it to forecast.
        bptt: Steps of truncated backpropagation through long series, whose state is carried along; windows are not used then.
        patch: Steps that the network reads at once. None: chosen by the length.
        parallel: What the processes of torchrun share of a batch: ``none``: its rows; ``ranks``: its steps, for series too long
            for one device.
        missing: ``refuse``; ``interpolate``: on a line between neighbours in the same part of the series, or to forecast, the
            value before; ``mask``: 0, and one more channel that says where.
        scale: ``standard``: mean 0 and deviation 1 of every channel on the training part; ``none``.
        weights: ``none``; ``balanced``: each class counts as much as any other in the loss.
        split: ``series``: whole series; ``time``: training before validation before test; ``auto``: by series if there are
            several with one target each, else by time.
        validation: Fraction to hold out, by which the best weights are chosen.
        refit: Whether to train on all series but those of the test, with none held out for validation; validation scores are
            then those of the training series.
        test: Fraction to hold out for the test. Not used with ``test_data``.
        test_data: File or folder of test series, of the same form.
    """

    data: str = ""
    target: str | None = None
    series: str | None = None
    time: str | None = None
    group: str | None = None
    channels: str | None = None
    layout: str = "auto"
    header: bool = True
    kind: str = "auto"
    horizon: int | None = None
    window: int | None = None
    stride: int | None = None
    bptt: int | None = None
    patch: int | None = None
    parallel: str = "none"
    missing: str = "refuse"
    scale: str = "standard"
    weights: str = "none"
    split: str = "auto"
    validation: float = 0.15
    refit: bool = False
    test: float = 0.2
    test_data: str | None = None

    @property
    def label(self) -> str:
        """The name of the file or folder, without what cannot stand in a name everywhere."""
        return re.sub(r"[^A-Za-z0-9_.+-]+", "_", Path(self.data).stem).lstrip(".+-") or "series"
