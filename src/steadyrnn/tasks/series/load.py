"""Series of a user's own, from Python."""

import os
from dataclasses import fields

from steadyrnn.errors import ArgumentTypeError, suggestion

from .read import read_all
from .records import SeriesSet
from .settings import SeriesSettings

__all__ = ["load_series"]


def load_series(
    path: str | os.PathLike[str],
    *,
    target: str | None = None,
    series: str | None = None,
    time: str | None = None,
    **more: object,
) -> SeriesSet:
    r"""Read series from a file or a folder of your own.

    A file is CSV (``.csv``, ``.tsv``, ``.txt``), Parquet, ``.npz``, ``.npy``, ``.ts`` or ``.arff``; in a folder, each file is a
    series. Columns are named by ``target``, ``series`` and ``time``; every other column of numbers is a channel. Numbers are
    read as float64 and left as they are. A fault of the file is named with its line and column.

    Args:
        path: The file or folder.
        target: Columns to predict, separated by commas. None: the file has no target.
        series: Column that names the series of a row. None: one series, or one per file or row.
        time: Column of times; rows of a series are sorted by it. None: rows are in order.
        more: Other settings of :class:`~steadyrnn.tasks.series.settings.SeriesSettings`: ``channels``, ``group``, ``layout``,
            ``header``, ``missing``.

    Returns:
        The series. Its ``series`` are a list of arrays (T, D), its ``labels`` the target.

    Example:
        >>> import pathlib, tempfile
        >>> file = pathlib.Path(tempfile.mkdtemp(), "walks.csv")
        >>> _ = file.write_text("id,t,x,kind\na,0,1.5,up\na,1,2.5,up\nb,0,3.0,down\n")
        >>> walks = sr.load_series(file, series="id", time="t", target="kind")
        >>> walks.names, walks.channels, walks.lengths.tolist(), walks.labels.tolist()
        (('a', 'b'), ('x',), [2, 1], ['up', 'down'])
        >>> walks.series[0]
        array([[1.5],
               [2.5]])
    """
    known = [field.name for field in fields(SeriesSettings)]
    if unknown := [name for name in more if name not in known]:
        raise ArgumentTypeError(f"`load_series` has no argument `{unknown[0]}`. {suggestion(unknown[0], known)}")
    return read_all(SeriesSettings(data=path, target=target, series=series, time=time, **more))  # type: ignore[arg-type]
