"""``steadyrnn train``: a task and a model in; a run folder with weights, curves and certificate out."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .compare import compare
from .output import Output, short
from .ranks import own_rank, silent_unless_first
from .train_arguments import Request, read
from .train_several import train_several

if TYPE_CHECKING:
    from steadyrnn.jobs.own_data import Settled
    from steadyrnn.jobs.train import TrainedRun

__all__ = ["main", "reference_rows", "warn_of_chance"]

CHOICES = ("references", "data", "model_choice", "rate_test")
"""Facts of runs on data of one's own."""


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    with silent_unless_first():
        request = read(argv)
    if own_rank() > 0:
        request = replace(request, as_json=False, quiet=True)
    if request.models:
        return compare(request, argv)
    settled = _settle(request) if request.is_open else None
    if settled is not None:
        request = replace(request, configuration=settled.configuration)
    if request.print_config:
        print(_yaml(request) if own_rank() == 0 else "", end="")
        return 0
    if request.several:
        return train_several(request, argv, settled)
    from steadyrnn.jobs.train import train_network

    output, configuration = Output(request.as_json, request.quiet), request.configuration

    def announce(folder: Path, facts: dict[str, Any]) -> None:
        names = f"{configuration.model.name} on {configuration.label}"
        output.note(f"run {folder}: {names}, {facts['parameters']:,} parameters")

    trained = train_network(
        configuration, request.out, resume=request.resume, tensorboard=request.tensorboard,
        progress="silent" if output.quiet else "auto", command=["steadyrnn", "train", *argv], announce=announce,
        task=settled.task if settled is not None else None, facts=settled.facts if settled is not None else {},
    )  # fmt: skip
    if own_rank() == 0:
        _print(request, output, trained)
    return 0


def _settle(request: Request) -> "Settled":
    """Read a user's own data, say how it is understood, and choose what is left open."""
    from steadyrnn.jobs.own_data import settle

    settled = settle(request.given, request.want)
    output = Output(request.as_json or request.print_config, request.quiet)
    for note in (*settled.task.data_facts().get("reasons", ()), *settled.notes):
        output.note(f"- {note}")
    return settled


def _yaml(request: Request) -> str:
    """Return the settings as a file for ``--config``."""
    import yaml  # type: ignore[import-untyped]

    settings = request.configuration.to_dict()
    text: str = yaml.safe_dump({name: settings[name] for name in ("task", "model", "train")}, sort_keys=False)
    return text


def _print(request: Request, output: Output, trained: "TrainedRun") -> None:
    """Print what came out, where it is, and what to do next."""
    from steadyrnn.certificates.base import rate_in_words

    facts, result, folder = trained.facts, trained.result, trained.folder
    certificate, part = trained.certificate["certificate"], request.configuration.scored_part
    rows = [
        [
            "steps",
            short(result.steps),
            f"{result.reason}, {result.seconds:.1f} s, {result.examples_per_second:,.0f} examples/s",
        ],
        *([f"{part} {name}", short(value), f"best, at step {result.best_step:,}"] for name, value in result.best.items()),
        *([f"test {name}", short(value), _baseline(facts, name)] for name, value in result.test.items()),
        *reference_rows(facts),
    ]
    if certificate is None:
        rows.append(["certificate", "none", trained.certificate["reason"]])
    else:
        proven = "proven to forget" if certificate["stable"] else "not proven to forget"
        contraction = rate_in_words(float(certificate["contraction"]))  # "inf" where no constant is known
        rows.append(["contraction", contraction, f"{proven}; gradients: {certificate['regime']}"])
    output.table(f"{request.configuration.model.name} on {request.configuration.label}", ("", "", ""), rows)
    for line in warn_of_chance(facts, result.test):
        output.text(line)
    output.path(folder, f"run: {folder}\nnext: steadyrnn report {shlex.quote(str(folder))} --out report.html")
    shown = {name: facts[name] for name in ("model", "parameters", "metric", "baselines", *CHOICES) if name in facts}
    told = {"result": asdict(result), "certificate": trained.certificate}
    output.result({"run": folder, "configuration": request.configuration.to_dict(), **shown, **told})


def reference_rows(facts: dict[str, Any]) -> list[list[str]]:
    """Return a row for each simple method that the network is shown beside."""
    metric = facts["metric"]
    return [
        [f"test {metric}", short(scores[metric]), f"of {name}, for comparison"]
        for name, scores in facts.get("references", {}).items()
    ]


def warn_of_chance(facts: dict[str, Any], test: dict[str, float]) -> list[str]:
    """Return a line if the network is no better than a constant answer."""
    metric, guess = facts["metric"], facts["baselines"].get(facts["metric"])
    if not facts.get("references") or guess is None:
        return []
    if test[metric] > guess if facts["higher_is_better"] else test[metric] < guess:
        return []
    return [
        "The network is no better than a constant answer. Try more data, `--train.epochs`, another `--model` or `--want`, or "
        "check the target with `steadyrnn data describe`."
    ]


def _baseline(facts: dict[str, Any], name: str) -> str:
    guess = facts["baselines"].get(name)
    return "" if guess is None else f"{short(guess)} without looking at the input"
