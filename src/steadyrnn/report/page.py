"""One self-contained HTML page from run folders."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .chart import Chart, draw
from .groups import Configuration, Contest, group, to_text
from .markup import Markup
from .numbers import finite, number
from .pictures import contraction, gradient_flow, learning_curves, margins, measured, singular_values
from .reading import mapping, read_all
from .rendering import render_page, write_page
from .tables import behind, command_line, comparison, details, differences, headline

__all__ = ["write_report"]


@dataclass(frozen=True)
class Figure:
    """A chart as the page shows it: drawn, with the numbers behind it."""

    chart: Chart
    svg: Markup | None
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


def write_report(folders: Sequence[Path], out: Path, command: Sequence[str] | None = None, title: str | None = None) -> Path:
    """Write one HTML page about one or many runs; return its path.

    The page needs nothing but itself: style and pictures are inside, there is no script and no request. The same runs give
    the same bytes. Runs are compared where task and settings agree; those that differ by the seed alone count as one
    configuration, with mean and spread. What a run does not have (probes, a certificate, an end) is said, not guessed, and
    so is a run that cannot be read.

    Args:
        folders: Run folders, or folders above them.
        out: The file to write; folders above it are made, an older file is replaced as a whole, a pipe or device written into.
        command: The command that makes the report, to be shown in it.
        title: The heading; None makes one from the tasks.

    Raises:
        RunError: No run in ``folders`` can be read, or jinja2 is missing.

    Example:
        >>> from steadyrnn.report.page import write_report
        >>> write_report([Path("runs")], Path("report.html"))  # doctest: +SKIP
        PosixPath('report.html')
    """
    refusals: list[str] = []
    contests = group(read_all(folders, refusals))
    return write_page(render(contests, command, title, refusals), out)


def render(contests: Sequence[Contest], command: Sequence[str] | None, title: str | None, refusals: Sequence[str] = ()) -> str:
    """Return the page."""
    trials = [trial for contest in contests for trial in contest.trials]
    models = sorted({trial.model for trial in trials})
    values = {
        "title": title or " · ".join(contest.title for contest in contests),
        "summary": f"{plural(len(trials), 'run')} · {plural(len(models), 'model')} · {plural(len(contests), 'task')}",
        "contests": [view(index, contest) for index, contest in enumerate(contests, 1)],
        "command": command_line(command) if command else None,
        "refusals": refusals,
    }
    return render_page("template.html", values)


def plural(count: int, thing: str) -> str:
    """Return a count of things in words."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def view(index: int, contest: Contest) -> dict[str, Any]:
    """Return what the template shows of a contest."""
    labels, differing = differences(contest)
    return {
        "id": f"task-{index}",
        "title": contest.title,
        "settings": [(key, to_text(value)) for key, value in contest.settings.items() if value is not None],
        "headline": headline(contest),
        "metric": contest.metric,
        "better": "higher is better" if contest.higher else "lower is better",
        "baseline": None if contest.baseline(contest.metric) is None else number(contest.baseline(contest.metric)),
        "references": [
            {"name": name, "score": number(score)}
            for name, scores in contest.references.items()
            if (score := finite(mapping(scores).get(contest.metric))) is not None and score != contest.baseline(contest.metric)
        ],
        "rows": comparison(contest),
        "learning": [figure(chart) for chart in (*learning_curves(contest), *measured(contest))],
        "flow": [figure(chart) for chart in gradient_flow(contest)],
        "spectra": spectra(contest),
        "several": any(len(configuration.trials) > 1 for configuration in contest.configurations),
        "labels": labels,
        "differing": differing,
        "configurations": [configuration_view(configuration) for configuration in contest.configurations],
    }


def spectra(contest: Contest) -> dict[str, list[Figure]]:
    """Return the pictures of spectra: margin, contraction and a weight of each configuration; apart, the other weights."""
    fans = [charts for charts in singular_values(contest) if charts]
    first = [margins(contest), contraction(contest), *(charts[0] for charts in fans)]
    others = [chart for charts in fans for chart in charts[1:]]
    return {"first": [figure(chart) for chart in first if chart.curves], "others": [figure(chart) for chart in others]}


def configuration_view(configuration: Configuration) -> dict[str, Any]:
    """Return what the template shows of a configuration: its runs."""
    return {
        "label": configuration.label,
        "style": configuration.style,
        "trials": [details(trial) for trial in configuration.trials],
    }


def figure(chart: Chart) -> Figure:
    """Return a chart drawn."""
    header, rows = behind(chart)
    return Figure(chart, draw(chart), header, rows)
