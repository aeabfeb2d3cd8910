"""``steadyrnn train --seeds``: one network per seed; a table of their scores, with mean and standard deviation."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .output import Output, short
from .train_arguments import Request

if TYPE_CHECKING:
    from steadyrnn.jobs.own_data import Settled
    from steadyrnn.jobs.train_seeds import TrainedSeeds

__all__ = ["train_several"]

_SPLITS = ("validation", "test")
_FACTS = ("model", "parameters", "metric", "baselines", "references", "data", "model_choice", "rate_test")


def train_several(request: Request, argv: Sequence[str], settled: "Settled | None" = None) -> int:
    """Train a network for each seed, or go on with such a call; return the exit status: 1 if a network failed."""
    from steadyrnn.jobs.train_seeds import train_seeds
    from steadyrnn.train.signals import Interrupted

    output, configuration = Output(request.as_json, request.quiet), request.configuration
    place: list[Path] = []

    def announce(folder: Path, facts: dict[str, Any], way: str) -> None:
        place.append(folder)
        names = f"{configuration.model.name} on {configuration.label}"
        output.note(f"runs {folder}: {names}, {facts['parameters']:,} parameters each")
        output.note(way)

    try:
        trained = train_seeds(
            configuration, request.seeds, request.out, resume=request.resume, tensorboard=request.tensorboard,
            progress="silent" if output.quiet else "auto", command=["steadyrnn", "train", *argv], announce=announce,
            task=settled.task if settled is not None else None, facts=settled.facts if settled is not None else {},
        )  # fmt: skip
    except (Interrupted, KeyboardInterrupt):
        if place:
            print(f"steadyrnn: go on with: steadyrnn train --resume {shlex.quote(str(place[0]))}", file=sys.stderr)
        raise
    for seed, why in trained.failures.items():
        print(f"steadyrnn: seed {seed} failed: {why}", file=sys.stderr)
    _print(request, output, trained)
    return 1 if trained.failures else 0


def _print(request: Request, output: Output, trained: "TrainedSeeds") -> None:
    """Print the scores of each seed, their mean and standard deviation, and where the runs are."""
    summary, folder = trained.summary(), trained.folder
    scores = [(split, name) for split in _SPLITS for name in summary[split]]
    rows = []
    for seed in trained.plan.seeds:
        if seed not in trained.runs:
            rows.append([str(seed), *("-" for _ in scores), "", "failed"])
            continue
        result = trained.runs[seed].result
        of = {"validation": result.best, "test": result.test}
        rows.append([str(seed), *(short(of[split][name]) for split, name in scores), short(result.steps), result.reason])
    for row in ("mean", "standard deviation"):
        key = row.replace(" ", "_")
        rows.append([row, *(short(summary[split][name][key]) for split, name in scores), "", ""])
    for name, values in trained.facts.get("references", {}).items():
        rows.append([name, *(short(values[score]) if split == "test" else "" for split, score in scores), "", "for comparison"])
    names = f"{request.configuration.model.name} on {request.configuration.label}"
    parts = {"validation": request.configuration.scored_part, "test": "test"}
    columns = ("seed", *(f"{parts[split]} {name}" for split, name in scores), "steps", "")
    output.table(f"{names}, {len(trained.runs)} of {len(trained.plan.seeds)} seeds", columns, rows)
    output.path(folder, f"runs: {folder}\nnext: steadyrnn report {shlex.quote(str(folder))} --out report.html")
    output.result(_to_json(request, trained, summary))


def _to_json(request: Request, trained: "TrainedSeeds", summary: dict[str, Any]) -> dict[str, Any]:
    """Return all that a machine may want to know; the configuration's ``train.seed`` is that of no run."""
    configuration = request.configuration.to_dict()
    configuration["train"] = {name: value for name, value in configuration["train"].items() if name != "seed"}
    facts, plan = trained.facts, trained.plan
    runs = {
        str(seed): {"run": run.folder, "result": asdict(run.result), "certificate": run.certificate}
        for seed, run in trained.runs.items()
    }
    return {
        **{"folder": trained.folder, "seeds": [*plan.seeds], "group": plan.together, "reason": plan.reason or None},
        **{"configuration": configuration, **{name: facts[name] for name in _FACTS if name in facts}},
        **{"runs": runs, "summary": summary, "failed": {str(seed): why for seed, why in trained.failures.items()}},
    }
