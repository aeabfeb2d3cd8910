"""``steadyrnn train``: a task and a model in; a run folder with weights, curves and certificate out."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .output import Output, short
from .train_arguments import Request, read
from .train_several import train_several

if TYPE_CHECKING:
    from steadyrnn.jobs.train import TrainedRun

__all__ = ["main"]


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    request = read(argv)
    if request.print_config:
        print(_yaml(request), end="")
        return 0
    if request.several:
        return train_several(request, argv)
    from steadyrnn.jobs.train import train_network

    output, configuration = Output(request.as_json, request.quiet), request.configuration

    def announce(folder: Path, facts: dict[str, Any]) -> None:
        names = f"{configuration.model.name} on {configuration.task_name}"
        output.note(f"run {folder}: {names}, {facts['parameters']:,} parameters")

    trained = train_network(
        configuration, request.out, resume=request.resume, tensorboard=request.tensorboard,
        progress="silent" if output.quiet else "auto", command=["steadyrnn", "train", *argv], announce=announce,
    )  # fmt: skip
    _print(request, output, trained)
    return 0


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
    certificate = trained.certificate["certificate"]
    rows = [
        [
            "steps",
            short(result.steps),
            f"{result.reason}, {result.seconds:.1f} s, {result.examples_per_second:,.0f} examples/s",
        ],
        *([f"validation {name}", short(value), f"best, at step {result.best_step:,}"] for name, value in result.best.items()),
        *([f"test {name}", short(value), _baseline(facts, name)] for name, value in result.test.items()),
    ]
    if certificate is None:
        rows.append(["certificate", "none", trained.certificate["reason"]])
    else:
        proven = "proven to forget" if certificate["stable"] else "not proven to forget"
        contraction = rate_in_words(float(certificate["contraction"]))  # "inf" where no constant is known
        rows.append(["contraction", contraction, f"{proven}; gradients: {certificate['regime']}"])
    output.table(f"{request.configuration.model.name} on {request.configuration.task_name}", ("", "", ""), rows)
    output.path(folder, f"run: {folder}\nnext: steadyrnn report {shlex.quote(str(folder))} --out report.html")
    shown = {name: facts[name] for name in ("model", "parameters", "metric", "baselines")}
    told = {"result": asdict(result), "certificate": trained.certificate}
    output.result({"run": folder, "configuration": request.configuration.to_dict(), **shown, **told})


def _baseline(facts: dict[str, Any], name: str) -> str:
    guess = facts["baselines"].get(name)
    return "" if guess is None else f"{short(guess)} without looking at the input"
