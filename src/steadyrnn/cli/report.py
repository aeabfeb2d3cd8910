"""``steadyrnn report``: one page about one or many runs."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .output import Output
from .parsing import add_flag, add_json, make_main, make_parser

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
    add_json(made)
    return made


def _run(own: "ArgumentParser", args: Any, argv: Sequence[str]) -> int:
    if Path(args.out).is_dir():
        own.error(f"--out must name a file, but {args.out!r} is a folder")
    if args.out == "-":
        own.error("--out must name a file, but is '-'; /dev/stdout is standard output")

    from steadyrnn.jobs.report import report_runs

    found, output = report_runs(args.runs, args.out, args.title, ["steadyrnn", "report", *argv]), Output(args.json, args.quiet)
    if not _is_stdout(found.path):  # the page is there: nothing may follow it
        output.path(found.path, f"{found.path}: {len(found.runs)} run{'' if len(found.runs) == 1 else 's'}")
    output.result({"report": found.path.resolve(), "runs": found.runs})
    if args.open:
        import webbrowser

        webbrowser.open(found.path.resolve().as_uri())
    return 0


def _is_stdout(path: Path) -> bool:
    """Say whether a path leads to what the program prints on, by whatever name."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(1))
    except OSError:
        return False


main = make_main(parser, _run)
