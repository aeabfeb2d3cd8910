"""``steadyrnn compare``, and ``train`` with several models: one table, one page."""

import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .output import Output, short
from .train_arguments import COMPARED, Request, read, train_parser

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

    from steadyrnn.jobs.comparison import Comparison, Row

__all__ = ["compare", "main", "parser"]


def parser() -> "ArgumentParser":
    """Return the command's parser, for its options: they are those of ``train``."""
    return train_parser(None, command="compare")


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    given = any(word.partition("=")[0] in ("--models", "--model", "--model.name", "--help", "-h") for word in argv)
    return compare(read(argv if given else [*argv, f"--models={','.join(COMPARED)}"], "compare"), argv, "compare")


def compare(request: Request, argv: Sequence[str], command: str = "train") -> int:
    """Train the models of a request; return the exit status: 1 if a network failed."""
    from steadyrnn.jobs.comparison import compare_models
    from steadyrnn.train.signals import Interrupted

    output, configuration = Output(request.as_json, request.quiet), request.configuration
    seeds = request.seeds or (configuration.train.seed,)
    started: list[str] = []

    def note(text: str) -> None:
        started.append(text)
        output.note(f"- {text}")

    given = {name: value for name, value in request.given.items() if name != "train.seed"}
    try:
        found = compare_models(
            configuration.task_name, request.models or (configuration.model.name,), given, seeds, request.out,
            progress="silent" if output.quiet else "auto", command=["steadyrnn", command, *argv], note=note,
        )  # fmt: skip
    except (Interrupted, KeyboardInterrupt):
        if started:
            print(f"steadyrnn: the run in hand was saved; go on with it by --resume ({started[-1]})", file=sys.stderr)
        raise
    _print(request, output, found)
    return 1 if any(row.failed for row in found.rows) else 0


def _print(request: Request, output: Output, found: "Comparison") -> None:
    metric, part = found.metric, found.part
    columns = ("model", "parameters", f"{part} {metric}", f"test {metric}", "contraction", "proven to forget", "seconds")
    output.table(f"{request.configuration.label}, by {part} {metric}", columns, [_cells(row, metric) for row in found.rows])
    for row in found.rows:
        for seed, why in (row.failed or {}).items():
            print(f"steadyrnn: {row.name}, seed {seed} failed: {why}", file=sys.stderr)
    page = shlex.quote(str(found.folder / "report.html"))
    output.path(found.folder, f"table: {found.folder}/table.csv, table.tex, table.json\npage: {page}")
    output.result({"folder": found.folder, "metric": metric, "rows": [_plain(row) for row in found.rows]})


def _cells(row: "Row", metric: str) -> list[str]:
    score = (row.test or {}).get(metric)
    test = short(score) if row.deviation is None else f"{short(score)} ± {short(row.deviation)}"
    proven = "" if row.stable is None else "yes" if row.stable else "no"
    contraction = "" if row.stable is None else short(row.contraction)
    filled = [short(value) if row.runs or row.failed else "" for value in (row.parameters, row.validation)]
    return [row.name, *filled, test, contraction, proven, short(row.seconds) if row.runs else ""]


def _plain(row: "Row") -> dict[str, Any]:
    return {**vars(row), "runs": [str(run) for run in row.runs]}
