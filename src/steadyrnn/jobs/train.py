"""Train a network on a task, certify it, and keep all of it in a run folder."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from steadyrnn.engines.calibration import table_record
from steadyrnn.errors import RunError
from steadyrnn.models.systems import build_model
from steadyrnn.runs.folder import Run
from steadyrnn.tasks.base import Task
from steadyrnn.train.arguments import check_settings
from steadyrnn.train.device import choose_device, device_context
from steadyrnn.train.effects import check_effects
from steadyrnn.train.progress import make_progress
from steadyrnn.train.randomness import seed_everything
from steadyrnn.train.settings import TrainSettings
from steadyrnn.train.trainer import Result, train

from .configuration import Configuration
from .loading import FACTS, build_task, collect_facts, read_configuration
from .measurements import check_probes, make_probes, measure_input_bound, record_certificate

__all__ = ["TABLE", "TrainedRun", "train_network"]

TABLE = "calibration"
"""What ``environment.json`` calls the table by which engines are chosen."""

Announce = Callable[[Path, dict[str, Any]], None]


@dataclass(frozen=True)
class TrainedRun:
    """What training leaves behind.

    Args:
        folder: The run folder, with weights, metrics and certificate.
        facts: What is known of task and model beside the configuration, as ``facts.json`` has it.
        result: Steps, scores and times.
        certificate: What ``certificate.json`` holds: the certificate of the best weights, or why there is none.
    """

    folder: Path
    facts: dict[str, Any]
    result: Result
    certificate: dict[str, Any]


def train_network(
    configuration: Configuration,
    out: str | Path = "runs",
    *,
    resume: str | Path | None = None,
    tensorboard: bool = False,
    progress: str = "silent",
    command: Sequence[str] = (),
    announce: Announce | None = None,
) -> TrainedRun:
    """Train a network, certify its best weights, and keep all of it in a run folder.

    A mistake in the configuration is found before a folder is made. A signal saves the run and raises
    :class:`~steadyrnn.train.signals.Interrupted`; ``resume`` then goes on as if nothing had happened.

    Args:
        configuration: Task, model and training.
        out: Where run folders are made: ``out/TASK/MODEL/ID``.
        resume: The folder of a run to go on with; its task and model must be those of ``configuration``.
        tensorboard: Whether to write event files too.
        progress: ``"auto"`` shows a bar or lines, ``"silent"`` nothing.
        command: The words that the run is noted to come from.
        announce: Called with the folder and the facts before the first step.

    Example:
        >>> from steadyrnn.jobs.recipes import configure
        >>> sizes = {"model.width": 4, "task.length": 5, "train.steps": 2, "train.batch_size": 8}
        >>> run = train_network(configure("addition", "lstm", sizes))
        >>> run.result.steps, run.folder.parent
        (2, PosixPath('runs/addition/lstm'))
    """
    settings = configuration.train
    check_settings(settings)
    check_probes(settings.probe)
    choose_device(settings.device)
    with device_context(settings):
        task = build_task(configuration)
        seed_everything(settings.seed)  # the model's first weights come from it
        model = build_model(configuration.model, task.interface)
        if resume is None:
            check_effects(settings, model, task)
        facts = collect_facts(configuration, task, model)
        resumed = None if resume is None else Path(resume)
        with _open(configuration, Path(out), resumed, command, facts, tensorboard) as run:
            if announce is not None:
                announce(run.folder, facts)
            result = _train(settings, task, model, run, resumed is not None, progress)
            if resumed is not None:  # they may be lost; nothing of a run changes before the trainer agrees to go on
                run.write_json(FACTS, facts)
            record = _certify(settings, task, model, run, result)
    return TrainedRun(run.folder, facts, result, record)


def _open(
    configuration: Configuration, out: Path, resume: Path | None, command: Sequence[str], facts: dict[str, Any],
    tensorboard: bool,
) -> Run:  # fmt: skip
    """Make the run's folder, or open the one to go on with."""
    environment = {TABLE: table_record(choose_device(configuration.train.device))}
    if resume is not None:
        stored = Run.open(resume)
        _refuse_another_table(stored, environment[TABLE])
        _refuse_another_configuration(stored, configuration)
        run = Run.open(resume, write=True, environment=environment)
    else:
        names = configuration.task_name, configuration.model.name
        run = Run.create(out, *names, configuration.to_dict(), [*command], environment)
    try:
        if resume is None:
            run.write_json(FACTS, facts)
        if tensorboard:
            run.write_events()
    except BaseException:
        run.close()
        raise
    return run


def _refuse_another_configuration(run: Run, configuration: Configuration) -> None:
    """Refuse to resume with another task or model than the run's; the trainer compares its own settings."""
    stored, given = read_configuration(run).to_dict(), configuration.to_dict()
    for part in ("task", "model"):
        for name in {**stored[part], **given[part]}:
            before, now = stored[part].get(name), given[part].get(name)
            if before != now and name != "data_dir":
                raise RunError(
                    f"`{part}.{name}` of the run to resume is {before!r}, but {now!r} is requested. Start a new run for that."
                )


def _refuse_another_table(run: Run, now: dict[str, str] | None) -> None:
    """Refuse to resume by another table of engines than the run's: other engines give other last digits."""
    before = (run.environment() or {}).get(TABLE)
    if isinstance(before, dict) and now is not None and before.get("sha256") != now["sha256"]:
        raise RunError(
            f"Engines of the run to resume were chosen by the table {before.get('name')!r} (sha256 {before.get('sha256')}), "
            f"but the one in use is {now['name']!r} (sha256 {now['sha256']}). Set STEADYRNN_CALIBRATION to the run's table, or "
            "start a new run."
        )


def _train(settings: TrainSettings, task: Task, model: nn.Module, run: Run, resume: bool, progress: str) -> Result:
    size = settings.evaluation_batch_size or settings.batch_size
    probes = make_probes(task, settings.probe.names if settings.probe.every else (), size, settings.probe, run.folder)
    return train(model, task, settings, run=run, resume=resume, callbacks=probes, progress=make_progress(progress))


def _certify(settings: TrainSettings, task: Task, model: nn.Module, run: Run, result: Result) -> dict[str, Any]:
    """Certify the best weights, which the trainer leaves in the model, and note it in the run."""
    bound = measure_input_bound(task, settings.evaluation_batch_size or settings.batch_size)
    source = "largest 2-norm of an input in the validation split"
    record = record_certificate(model, bound, source, result.best_step, "best")
    run.write_json("certificate.json", record)
    return record
