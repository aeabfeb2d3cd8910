"""``steadyrnn train``: a task and a model in; a run folder with weights, curves and certificate out."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadyrnn.errors import RunError

from .output import Output, short
from .train_arguments import Request, read

if TYPE_CHECKING:
    from torch import nn

    from steadyrnn.runs.folder import Run
    from steadyrnn.tasks.base import Task
    from steadyrnn.train.trainer import Result

__all__ = ["TABLE", "main"]

TABLE = "calibration"
"""What ``environment.json`` calls the table by which engines are chosen."""


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    request = read(argv)
    if request.print_config:
        print(_yaml(request), end="")
        return 0
    from steadyrnn.train.arguments import check_settings
    from steadyrnn.train.device import choose_device, machine

    from .measuring import check_names

    settings = request.configuration.train  # a mistake leaves no run behind
    check_settings(settings)
    check_names(settings.probe.names)
    choose_device(settings.device)
    with machine(request.configuration.train):
        _work(request, ["steadyrnn", "train", *argv])
    return 0


def _work(request: Request, command: list[str]) -> None:
    """Train, certify, tell."""
    from .loading import FACTS, facts_of

    output = Output(request.as_json, request.quiet)
    names = request.configuration.model.name, request.configuration.task_name
    task, model = _build(request)
    facts = facts_of(request.configuration, task, model)
    with _open(request, command, facts) as run:
        output.note(f"run {run.folder}: {names[0]} on {names[1]}, {facts['parameters']:,} parameters")
        result = _train(request, task, model, run, output)
        if request.resume is not None:  # they may be lost; nothing of a run changes before the trainer agrees to go on
            run.write_json(FACTS, facts)
        record = _certify(request, task, model, run, result)
    _tell(request, output, facts, run.folder, result, record)


def _yaml(request: Request) -> str:
    """Return the settings as a file that ``--config`` takes."""
    import yaml  # type: ignore[import-untyped]

    settings = request.configuration.to_dict()
    text: str = yaml.safe_dump({name: settings[name] for name in ("task", "model", "train")}, sort_keys=False)
    return text


def _build(request: Request) -> "tuple[Task, nn.Module]":
    """Return task and model; the model's first weights come from the seed."""
    from steadyrnn.models.systems import build_model
    from steadyrnn.train.randomness import seed_everything

    from .loading import task_of

    task = task_of(request.configuration)
    seed_everything(request.configuration.train.seed)
    return task, build_model(request.configuration.model, task.interface)


def _open(request: Request, command: list[str], facts: dict[str, Any]) -> "Run":
    """Make the run's folder, or take the one to go on with."""
    from steadyrnn.engines.calibration import table_record
    from steadyrnn.runs.folder import Run
    from steadyrnn.train.device import choose_device

    from .loading import FACTS

    configuration = request.configuration
    environment = {TABLE: table_record(choose_device(configuration.train.device))}
    if request.resume is not None:
        stored = Run.open(request.resume)
        _refuse_another_table(stored, environment[TABLE])
        _refuse_another(stored, request)
        run = Run.open(request.resume, write=True, environment=environment)
    else:
        names = configuration.task_name, configuration.model.name
        run = Run.create(request.out, *names, configuration.to_dict(), command, environment)
    try:
        if request.resume is None:
            run.write_json(FACTS, facts)
        if request.tensorboard:
            run.write_events()
    except BaseException:
        run.close()
        raise
    return run


def _refuse_another(run: "Run", request: Request) -> None:
    """Refuse to resume with another task or model than the run's; the trainer looks at its own settings."""
    from .loading import configuration_of

    stored, asked = configuration_of(run).to_dict(), request.configuration.to_dict()
    for part in ("task", "model"):
        for name in {**stored[part], **asked[part]}:
            before, now = stored[part].get(name), asked[part].get(name)
            if before != now and name != "data_dir":
                raise RunError(
                    f"`{part}.{name}` of the run to resume is {before!r}, but {now!r} is asked for. Start a new run for that."
                )


def _refuse_another_table(run: "Run", now: dict[str, str] | None) -> None:
    """Refuse to resume by another table of engines than the run's: other engines give other last digits."""
    before = (run.environment() or {}).get(TABLE)
    if isinstance(before, dict) and now is not None and before.get("sha256") != now["sha256"]:
        raise RunError(
            f"Engines of the run to resume were chosen by the table {before.get('name')!r} (sha256 {before.get('sha256')}), "
            f"but the one in use is {now['name']!r} (sha256 {now['sha256']}). Set STEADYRNN_CALIBRATION to the run's table, or "
            "start a new run."
        )


def _train(request: Request, task: "Task", model: "nn.Module", run: "Run", output: Output) -> "Result":
    from steadyrnn.train.progress import make_progress
    from steadyrnn.train.trainer import train

    from .measuring import callbacks

    settings = request.configuration.train
    size = settings.evaluation_batch_size or settings.batch_size
    measured = callbacks(task, settings.probe.names if settings.probe.every else (), size)
    progress = make_progress("silent" if output.quiet else "auto")
    return train(model, task, settings, run=run, resume=request.resume is not None, callbacks=measured, progress=progress)


def _certify(request: Request, task: "Task", model: "nn.Module", run: "Run", result: "Result") -> dict[str, Any]:
    """Certify the best weights, which the trainer leaves in the model, and note it in the run."""
    from .measuring import certificate_record, measured_input_bound

    settings = request.configuration.train
    bound = measured_input_bound(task, settings.evaluation_batch_size or settings.batch_size)
    source = "largest 2-norm of an input in the validation split"
    record = certificate_record(model, bound, source, result.best_step, "best")
    run.write_json("certificate.json", record)
    return record


def _tell(
    request: Request, output: Output, facts: dict[str, Any], folder: Path, result: "Result", record: dict[str, Any]
) -> None:
    """Print what came out, where it is, and what to do next."""
    from steadyrnn.certificates.base import rate_in_words

    certificate = record["certificate"]
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
        rows.append(["certificate", "none", record["reason"]])
    else:
        proven = "proven to forget" if certificate["stable"] else "not proven to forget"
        contraction = rate_in_words(float(certificate["contraction"]))  # "inf" where no constant is known
        rows.append(["contraction", contraction, f"{proven}; gradients: {certificate['regime']}"])
    output.table(f"{request.configuration.model.name} on {request.configuration.task_name}", ("", "", ""), rows)
    output.path(folder, f"run: {folder}\nnext: steadyrnn report {shlex.quote(str(folder))} --out report.html")
    shown = {name: facts[name] for name in ("model", "parameters", "metric", "baselines")}
    configuration = request.configuration.to_dict()
    output.result({"run": folder, "configuration": configuration, **shown, "result": asdict(result), "certificate": record})


def _baseline(facts: dict[str, Any], name: str) -> str:
    guess = facts["baselines"].get(name)
    return "" if guess is None else f"{short(guess)} without looking at the input"
