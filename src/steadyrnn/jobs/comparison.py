"""Several networks trained on the same data, with one table of them, as CSV and LaTeX too, and one page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadyrnn.report.numbers import mean, spread
from steadyrnn.report.page import write_report
from steadyrnn.runs.folder import make_run_folder
from steadyrnn.train.ranks import refuse_ranks

from .open_settings import AUTO, TASK
from .own_data import settle
from .recipes import configure
from .table_files import number_text as text
from .table_files import write_table
from .train import TrainedRun
from .train_seeds import train_seeds

__all__ = ["Comparison", "Row", "compare_models"]


@dataclass(frozen=True)
class Row:
    """A line of the table.

    Args:
        name: The model, or a simple method.
        runs: Its run folders; none of a simple method.
        parameters: How many it has; None of a simple method.
        validation: Mean of the task's metric on the validation part; None of a simple method.
        test: Mean of each score on the test part.
        deviation: Standard deviation of the task's metric in the test over seeds; None of one seed.
        contraction: Largest proven constant of its seeds; None without certificate.
        stable: Whether all seeds are proven to forget; None of a simple method.
        seconds: Mean time of training.
        failed: Why seeds failed, by seed.
    """

    name: str
    runs: tuple[Path, ...] = ()
    parameters: int | None = None
    validation: float | None = None
    test: Mapping[str, float] | None = None
    deviation: float | None = None
    contraction: float | None = None
    stable: bool | None = None
    seconds: float | None = None
    failed: Mapping[int, str] | None = None


@dataclass(frozen=True)
class Comparison:
    """Several networks on the same data.

    Args:
        folder: Holds ``table.csv``, ``table.tex``, ``table.json`` and ``report.html``.
        metric: The score that rows are sorted by.
        rows: Networks, best first by validation; then simple methods.
        part: Of which series the scores are by which rows are sorted: ``validation``, or ``training`` where none is held out.
    """

    folder: Path
    metric: str
    rows: tuple[Row, ...]
    part: str = "validation"


def compare_models(
    task_name: str,
    models: Sequence[str],
    given: Mapping[str, Any],
    seeds: Sequence[int] = (0,),
    out: str | Path = "runs",
    *,
    progress: str = "silent",
    command: Sequence[str] = (),
    note: Callable[[str], None] = lambda text: None,
) -> Comparison:
    """Train several networks on the same task, each with the same seeds; write one table and one page.

    Rows are sorted by the validation part: the test decides nothing.

    Args:
        task_name: A task, or ``"series"`` for a user's own data.
        models: Names of systems, or ``"auto"``.
        given: Dotted settings that all have in common; those that a model does not have are refused.
        seeds: Seeds of weights.
        out: Where runs are kept, ``out/TASK/MODEL/ID/seed-N``, and the table, ``out/TASK/comparison/ID``.
        progress: ``"auto"`` shows a bar or lines, ``"silent"`` nothing.
        command: The words that runs are noted to come from.
        note: Called with a line on the way.

    Example:
        >>> sizes = {"model.width": 4, "task.length": 5, "train.steps": 2, "train.batch_size": 8, "train.device": "cpu"}
        >>> found = compare_models("addition", ["gru", "lstm"], sizes)
        >>> sorted(row.name for row in found.rows), sorted(path.name for path in found.folder.iterdir())
        (['gru', 'lstm'], ['report.html', 'table.csv', 'table.json', 'table.tex'])
    """
    refuse_ranks("A comparison of networks", "Start it without torchrun.")
    rows, references, task, facts = list[Row](), dict[str, Any](), None, dict[str, Any]()
    label = task_name
    for model in models:
        settings, more = dict(given), dict[str, Any]()
        if task_name == TASK:
            settled = settle({**given, "model.name": model}, None, task)
            configuration, task, more = settled.configuration, settled.task, settled.facts
            for line in settled.notes:
                note(f"{model}: {line}")
        else:
            configuration = configure(task_name, model, settings)
        label = configuration.label
        trained = train_seeds(
            configuration, seeds, out, progress=progress, command=command,
            announce=_announce(model, note), task=task, facts=more,
        )  # fmt: skip
        facts, references = trained.facts, trained.facts.get("references", {})
        rows.append(_row(model if model != AUTO else configuration.model.name, trained.runs, trained.failures, facts))
    metric, higher = facts["metric"], facts["higher_is_better"]
    ranked = sorted(rows, key=lambda row: _rank(row.validation, higher))
    ranked += [Row(name, test=scores) for name, scores in references.items()]
    folder = make_run_folder(Path(out), label, "comparison")
    comparison = Comparison(folder, metric, tuple(ranked), configuration.scored_part)
    _write(comparison, command)
    return comparison


def _announce(model: str, note: Callable[[str], None]) -> Callable[[Path, dict[str, Any], str], None]:
    return lambda folder, facts, way: note(f"{model}: {folder}, {way}")


def _rank(value: float | None, higher: bool) -> float:
    if value is None or value != value:
        return float("inf")
    return -value if higher else value


def _row(name: str, runs: Mapping[int, TrainedRun], failed: Mapping[int, str], facts: Mapping[str, Any]) -> Row:
    """Return the line of a network."""
    metric, members = facts["metric"], [*runs.values()]
    tests = [run.result.test for run in members]
    proofs = [run.certificate["certificate"] for run in members]
    proven = [float(proof["contraction"]) for proof in proofs if proof is not None]
    return Row(
        name, tuple(run.folder for run in members), facts["parameters"],
        mean([run.result.best[metric] for run in members]),
        {key: average for key in (tests[0] if tests else {}) if (average := mean([test[key] for test in tests])) is not None},
        spread([test[metric] for test in tests]) if len(tests) > 1 else None,
        max(proven) if proven and len(proven) == len(members) else None,
        bool(members) and all(proof is not None and proof["stable"] for proof in proofs),
        mean([run.result.seconds for run in members]), dict(failed),
    )  # fmt: skip


def _write(comparison: Comparison, command: Sequence[str]) -> None:
    """Write the table in three forms, and the page of all runs."""
    header, lines = _table(comparison)
    rows = [
        {**{key: value for key, value in vars(row).items() if key != "runs"}, "runs": [str(run) for run in row.runs]}
        for row in comparison.rows
    ]
    write_table(comparison.folder, header, lines, {"metric": comparison.metric, "rows": rows, "command": [*command]})
    runs = [run for row in comparison.rows for run in row.runs]
    if runs:
        write_report(runs, comparison.folder / "report.html", [*command], None)


def _table(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Return the header and the lines of the table, as texts; what does not apply is empty."""
    scores = list(dict.fromkeys(name for row in comparison.rows for name in row.test or {}))
    metric = comparison.metric
    header = [
        "model", "parameters", f"{comparison.part} {metric}", *(f"test {name}" for name in scores),
        f"deviation of test {metric}", "contraction", "proven to forget", "seconds", "seeds",
    ]  # fmt: skip
    lines = [
        [
            row.name, text(row.parameters), text(row.validation), *(text((row.test or {}).get(name)) for name in scores),
            text(row.deviation), text(row.contraction), "" if row.stable is None else "yes" if row.stable else "no",
            text(row.seconds), text(len(row.runs) or None),
        ]
        for row in comparison.rows
    ]  # fmt: skip
    return header, lines
