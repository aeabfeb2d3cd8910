"""``steadyrnn report``: one page about one or many runs."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .output import Output
from .parsing import add_flag, make_parser

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

__all__ = ["EXAMPLES", "main", "parser"]

EXAMPLES = (
    "steadyrnn train addition --model.width 32 --task.length 20 --train.steps 50 --train.probe.every 25",
    "steadyrnn train addition --model lstm --model.width 32 --task.length 20 --train.steps 50 --train.probe.every 25",
    "steadyrnn report runs",
    "steadyrnn report runs/addition/spectral runs/addition/lstm --out comparison.html --title 'Addition'",
)


def parser() -> "ArgumentParser":
    """Return the command's parser."""
    made = make_parser(
        "report",
        "Write one self-contained HTML page: curves with the spread of seeds, gradient flow against the certified band,\n"
        "singular values over training, a comparison, certificates, configurations, commands.\n"
        "RUN is the folder of a run, or one above: then all runs below it.",
        EXAMPLES,
    )
    made.add_argument("runs", type=str, nargs="+", metavar="RUN", help="Folders of runs.")
    made.add_argument("--out", type=str, default="report.html", help="The file to write.")
    made.add_argument("--title", type=str | None, default=None, help="Heading of the page.")
    add_flag(made, "--open", "Show the page in the browser.")
    add_flag(made, "--quiet", "Print nothing but the file that was written.")
    add_flag(made, "--json", "Print one JSON object and nothing else on stdout.")
    return made


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    own = parser()
    args = own.parse_args(argv)
    if Path(args.out).is_dir():
        own.error(f"--out must name a file, but {args.out!r} is a folder")
    if args.out == "-":
        own.error("--out must name a file, but is '-'; /dev/stdout is standard output")
    output = Output(args.json, args.quiet)

    from steadyrnn.report.page import write_report
    from steadyrnn.runs.layout import find_runs

    folders = find_runs([Path(run) for run in args.runs])
    path = write_report(folders, Path(args.out), ["steadyrnn", "report", *argv], args.title)
    if not _is_stdout(path):  # the page is there: nothing may follow it
        output.path(path, f"{path}: {len(folders)} run{'' if len(folders) == 1 else 's'}")
    output.result({"report": path.resolve(), "runs": folders})
    if args.open:
        import webbrowser

        webbrowser.open(path.resolve().as_uri())
    return 0


def _is_stdout(path: Path) -> bool:
    """Say whether a path leads to what the program prints on, by whatever name."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(1))
    except OSError:
        return False
