"""What a sweep has found so far: trials, the best of each model, and their tests; read from its folder alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steadyrnn.errors import RunError, SteadyError
from steadyrnn.report.numbers import finite, mean, spread
from steadyrnn.report.sweep_page import write_sweep_page
from steadyrnn.runs.files import make_folder
from steadyrnn.runs.folder import Run
from steadyrnn.runs.json_text import parse_file
from steadyrnn.runs.regular import check_writable, read_if_there

from ..seeds_file import seed_folder
from ..table_files import number_text, write_table
from .folder import SweepFolder, TrialRecord, read_record, trial_folder
from .plan import SweepPlan

__all__ = ["Best", "Standing", "read_standing", "to_dict", "write_standing"]


@dataclass(frozen=True)
class Best:
    """What validation chose among the trials of a model.

    Args:
        trial: The trial.
        deviation: Standard deviation of its validation metric over seeds; None of one seed.
        test: Mean of each test score over seeds.
        test_deviation: Standard deviation of each; empty of one seed.
        contraction: Largest proven constant of its seeds; None without certificates.
        stable: Whether all seeds are proven to forget; None without certificates.
        parameters: How many the network has.
        runs: Its run folders.
    """

    trial: TrialRecord
    deviation: float | None
    test: Mapping[str, float]
    test_deviation: Mapping[str, float]
    contraction: float | None
    stable: bool | None
    parameters: int | None
    runs: tuple[Path, ...]


@dataclass(frozen=True)
class Standing:
    """How a sweep stands.

    Args:
        folder: Its folder.
        label: What the folder of its runs is called: the task's name, or that of a user's own file.
        plan: What is tried.
        metric: The score on the validation part that is compared.
        higher: Whether more of it is better.
        total: Trials of the plan.
        trials: Those that have ended: finished ones first, the best first; then pruned and failed ones.
        best: What validation chose, by model, the best model first.
        unfinished: Why other trials that were begun have not ended, by number.
        importance: Share of each varied setting in how scores differ, by model and setting.
    """

    folder: Path
    label: str
    plan: SweepPlan
    metric: str
    higher: bool
    total: int
    trials: tuple[TrialRecord, ...]
    best: Mapping[str, Best]
    unfinished: Mapping[int, str] = field(default_factory=dict)
    importance: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def count(self, state: str) -> int:
        """Return how many trials ended in a state."""
        return sum(trial.state == state for trial in self.trials)


def read_standing(
    sweep: SweepFolder, records: Sequence[TrialRecord] | None = None, unfinished: Mapping[int, str] | None = None,
    importance: Mapping[str, Mapping[str, float]] | None = None,
) -> Standing:  # fmt: skip
    """Return how a sweep stands; nothing in it is changed.

    Args:
        sweep: Its folder.
        records: What trials came to; None reads their folders.
        unfinished: Why others have not ended.
        importance: Of settings; None takes what the table says of it.
    """
    if records is None:
        found = {number: read_record(trial_folder(sweep.folder, number)) for number in sweep.trials()}
        records = [record for record in found.values() if record is not None]
        wrong = [number for number, record in found.items() if record is not None and record.number != number]
        if wrong:
            raise RunError(
                f"`{trial_folder(sweep.folder, wrong[0])}` says what another trial came to: it was altered, or copied."
            )
    higher = bool(sweep.facts.get("higher"))
    ranked = sorted(records, key=lambda record: (_rank(record, higher), record.number))
    leaders: dict[str, TrialRecord] = {}
    for record in ranked:
        if record.state == "finished":
            leaders.setdefault(record.model, record)
    return Standing(
        sweep.folder, str(sweep.facts.get("label", sweep.plan.task)), sweep.plan, str(sweep.plan.metric), higher,
        sweep.plan.count(), tuple(ranked),
        {model: _best(sweep, record) for model, record in leaders.items()}, dict(unfinished or {}),
        importance if importance is not None else _read_importance(sweep.folder),
    )  # fmt: skip


def write_standing(standing: Standing, command: Sequence[str], page: Path | None = None, title: str | None = None) -> None:
    """Write the table in three forms and the page into the sweep's folder, or the page alone to another place."""
    shown = to_dict(standing)
    if page is None:
        make_folder(standing.folder)
        check_writable(standing.folder, "report.html")
        header, lines = _table(standing)
        write_table(standing.folder, header, lines, {**shown, "command": [*command]})
    write_sweep_page(shown, page or standing.folder / "report.html", command, title)


def to_dict(standing: Standing) -> dict[str, Any]:
    """Return how a sweep stands as JSON; run folders are relative to the sweep's."""
    plan, folder = standing.plan, standing.folder
    best = {
        model: {
            **{name: value for name, value in vars(one).items() if name not in ("trial", "runs")},
            **{"number": one.trial.number, "value": one.trial.value, "settings": dict(one.trial.settings)},
            "runs": [run.relative_to(folder).as_posix() for run in one.runs],
        }
        for model, one in standing.best.items()
    }
    return {
        **{"task": standing.label, "metric": standing.metric, "higher_is_better": standing.higher},
        **{"trials": standing.total, "plan": plan.to_dict(), "best": best, "importance": standing.importance},
        "rows": [vars(record) for record in standing.trials],
        "unfinished": {str(number): why for number, why in standing.unfinished.items()},
    }


def _rank(record: TrialRecord, higher: bool) -> tuple[int, float]:
    if record.value is None:
        return (1 if record.state == "pruned" else 2), 0.0
    return 0, -record.value if higher else record.value


def _best(sweep: SweepFolder, record: TrialRecord) -> Best:
    """Return what is shown of the trial that validation chose; what its folders do not have is left out."""
    folder = trial_folder(sweep.folder, record.number)
    runs = tuple(seed_folder(folder, seed) for seed in sweep.plan.seeds)
    tests, proofs, parameters = list[Mapping[str, float]](), list[Any](), None
    for place in runs:
        try:
            run = Run.open(place)
            tests += [line for line in run.metrics() if line.get("kind") == "test"][-1:]
            proofs.append(run.read_json("certificate.json").get("certificate"))
            parameters = run.read_json("facts.json").get("parameters")
        except (SteadyError, AttributeError):
            continue
    scores = _scores(tests) if len(tests) == len(runs) else {}
    proven = [finite(proof.get("contraction")) if isinstance(proof, dict) else None for proof in proofs]
    known = [value for value in proven if value is not None]
    whole = bool(known) and len(known) == len(runs)
    return Best(
        record, spread([*record.values.values()]), {name: float(mean(values) or 0.0) for name, values in scores.items()},
        {name: one for name, values in scores.items() if (one := spread(values)) is not None},
        max(known) if whole else None,
        all(proof.get("stable") is True for proof in proofs) if whole else None,
        parameters if isinstance(parameters, int) else None, runs,
    )  # fmt: skip


def _scores(tests: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Return the test scores by name, a list over seeds; what a line of metrics has beside is left out."""
    beside = {"kind", "step", "epoch", "time", "checkpoint"}
    names = [name for name in tests[0] if name not in beside] if tests else []
    found = {name: [finite(line.get(name)) for line in tests] for name in names}
    return {name: [value for value in column if value is not None] for name, column in found.items() if None not in column}


def _table(standing: Standing) -> tuple[list[str], list[list[str]]]:
    """Return header and lines; a test score stands only where validation chose the trial."""
    names = list(dict.fromkeys(name for trial in standing.trials for name in trial.settings))
    scores = list(dict.fromkeys(name for best in standing.best.values() for name in best.test))
    header = [
        "trial", "model", *names, f"validation {standing.metric}", "deviation", *(f"test {name}" for name in scores), "state",
        "seconds", "seeds", "reason",
    ]  # fmt: skip
    chosen = {best.trial.number: best for best in standing.best.values()}
    lines = []
    for trial in standing.trials:
        test = chosen[trial.number].test if trial.number in chosen else {}
        varied = [_cell(trial.settings[name]) if name in trial.settings else "" for name in names]
        tested = [number_text(test.get(name)) for name in scores]
        ended = [trial.state, number_text(trial.seconds), number_text(len(trial.values) or None), trial.reason]
        values = [number_text(trial.value), number_text(spread([*trial.values.values()]))]
        lines.append([str(trial.number), trial.model, *varied, *values, *tested, *ended])
    return header, lines


def _cell(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return number_text(value) if isinstance(value, int | float) else str(value)


def _read_importance(folder: Path) -> dict[str, dict[str, float]]:
    """Return what the table of an earlier call says of importance; nothing where it says nothing that can be read."""
    try:
        stored = parse_file(read_if_there(folder / "table.json") or b"{}", folder / "table.json")
        listed = stored["importance"].items()
        return {str(model): {str(k): float(v) for k, v in shares.items()} for model, shares in listed}
    except (SteadyError, KeyError, TypeError, AttributeError, ValueError):
        return {}
