"""Write one page about one or many runs."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from steadyrnn.errors import RunError
from steadyrnn.report.page import write_report
from steadyrnn.runs.layout import find_runs

from .search.folder import SweepFolder, is_sweep
from .search.result import read_standing, write_standing

__all__ = ["Report", "report_runs"]


@dataclass(frozen=True)
class Report:
    """A page, and the run folders it is about."""

    path: Path
    runs: list[Path]


def report_runs(
    paths: Iterable[str | Path],
    out: str | Path = "report.html",
    title: str | None = None,
    command: Sequence[str] = (),
) -> Report:
    """Write one self-contained HTML page about some runs.

    Args:
        paths: Run folders, or folders above: then all runs below them. Of the folder of a sweep alone, the sweep's page.
        out: The file to write.
        title: Heading of the page; None makes one of the tasks.
        command: The words that the page is noted to come from.

    Example:
        >>> report = report_runs(["runs"], "page.html")
        >>> len(report.runs), report.path
        (1, PosixPath('page.html'))
    """
    named = [Path(path) for path in paths]
    if len(named) == 1 and is_sweep(named[0]):
        sweep = SweepFolder.open(named[0])
        write_standing(read_standing(sweep), command, Path(out), title)
        with suppress(RunError):  # none has begun
            return Report(Path(out), find_runs(named))
        return Report(Path(out), [])
    folders = find_runs(named)
    return Report(write_report(folders, Path(out), [*command], title), folders)
