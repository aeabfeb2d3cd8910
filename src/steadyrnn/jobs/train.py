"""Train a network on a task, certify it, and keep all of it in a run folder."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch import nn

from steadyrnn.engines.calibration import table_record
from steadyrnn.errors import RunError
from steadyrnn.models.systems import build_model
from steadyrnn.runs.folder import Run
from steadyrnn.tasks.base import Task
from steadyrnn.train.arguments import check_settings
from steadyrnn.train.device import choose_device, device_context, join_on
from steadyrnn.train.effects import check_effects
from steadyrnn.train.progress import Progress, make_progress
from steadyrnn.train.randomness import seed_everything
from steadyrnn.train.ranks import Ranks, current_ranks, join
from steadyrnn.train.result import read_result
from steadyrnn.train.same_weights import check_for_ranks
from steadyrnn.train.settings import TrainSettings
from steadyrnn.train.trainer import Result, train

from .configuration import Configuration
from .facts_file import read_choices, write_facts
from .loading import build_task, check_same_data, collect_facts, read_configuration
from .measurements import check_probes, make_probes, measure_input_bound, record_certificate
from .seeds_file import read_plan
from .time_sharing import check_model_over_ranks, over_ranks
from .training_probes import Callback

__all__ = [
    *("RANKS", "TABLE", "Announce", "TrainedRun", "begin_run", "certify_in", "open_new", "open_on_first", "open_stored"),
    *("open_to_resume", "probes_of", "table_of", "train_in", "train_network"),
]

TABLE = "calibration"
"""What ``environment.json`` calls the table by which engines are chosen."""

RANKS = "ranks"
"""What it calls the number of processes that share each batch."""

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
    task: Task | None = None,
    facts: Mapping[str, Any] = MappingProxyType({}),
) -> TrainedRun:
    """Train a network, certify its best weights, and keep all of it in a run folder.

    A mistake in the configuration is found before a folder is made. A signal saves the run and raises
    :class:`~steadyrnn.train.signals.Interrupted`; ``resume`` then goes on as if nothing had happened.

    Started by torchrun, all processes call it with the same arguments, and share each batch. Rank 0 makes the folder and writes
    it; all return the same.

    Args:
        configuration: Task, model and training.
        out: Where run folders are made: ``out/TASK/MODEL/ID``.
        resume: The folder of a run to go on with; its task and model must be those of ``configuration``.
        tensorboard: Whether to write event files too.
        progress: ``"auto"`` shows a bar or lines, ``"silent"`` nothing.
        command: The words that the run is noted to come from.
        announce: Called with the folder and the facts before the first step.
        task: The task of the configuration, where it has been made already; None makes it.
        facts: What is to be noted of the run beside what is known of task and model.

    Example:
        >>> from steadyrnn.jobs.recipes import configure
        >>> sizes = {"model.width": 4, "task.length": 5, "train.steps": 2, "train.batch_size": 8}
        >>> run = train_network(configure("addition", "lstm", sizes))
        >>> run.result.steps, run.folder.parent
        (2, PosixPath('runs/addition/lstm'))
    """
    settings = configuration.train
    ranks = join()
    ranks.agree(lambda: _check(settings))
    join_on(settings.device)
    resumed = None if resume is None else Path(resume)
    with device_context(settings):
        task, model = ranks.agree(lambda: _make(configuration, task, resumed is None, ranks))
        known = ranks.lead(lambda: {**collect_facts(configuration, task, model), **facts})

        def open_folder() -> Run:
            if resumed is None:
                return open_new(configuration, Path(out), command, known, tensorboard)
            _refuse_unfinished_member(resumed)
            check_same_data(Run.open(resumed), task)
            known.update(read_choices(Run.open(resumed)))
            return open_stored(configuration, resumed, tensorboard)

        with open_on_first(ranks, open_folder) as run:
            if announce is not None and run is not None:
                announce(run.folder, known)
            return train_in(run, settings, task, model, known, resume=resumed is not None, progress=progress)


def _check(settings: TrainSettings) -> None:
    check_settings(settings)
    check_probes(settings.probe)


def _make(configuration: Configuration, task: Task | None, new: bool, ranks: Ranks) -> tuple[Task, nn.Module]:
    """Return task and model of a configuration; refuse settings that fit them not."""
    settings = configuration.train
    task = build_task(configuration) if task is None else task
    seed_everything(settings.seed)  # the model's first weights come from it
    model = build_model(configuration.model, task.interface)
    check_for_ranks(model, settings, ranks, task.ranks_share)
    check_model_over_ranks(model, task, settings, ranks)
    if new:
        check_effects(settings, model, task)
    return task, model


@contextmanager
def open_on_first(ranks: Ranks, make: Callable[[], Run]) -> Iterator[Run | None]:
    """Make or open a run folder on rank 0, None on the others, and close it in the end; all fail if that fails."""
    run = ranks.agree(lambda: make() if ranks.first else None)
    try:
        yield run
    finally:
        if run is not None:
            run.close()


def train_in(
    run: Run | None, settings: TrainSettings, task: Task, model: nn.Module, facts: dict[str, Any], *, resume: bool,
    progress: str | Progress, label: str = "training",
) -> TrainedRun:  # fmt: skip
    """Train a model in its run folder and certify its best weights, as :func:`train_network` does once both are there.

    The folder is None on all ranks but the first.
    """
    ranks = current_ranks()
    shown = progress if isinstance(progress, Progress) else make_progress(progress if run is not None else "silent", label)
    probes = {} if run is None else probes_of(run, settings, task)
    result = train(model, task, settings, run=run, resume=resume, callbacks=probes, progress=shown, over_ranks=over_ranks)

    def finish() -> dict[str, Any]:
        if run is None:
            return {}
        if resume:  # they may be lost; nothing of a run changes before the trainer agrees to go on
            write_facts(run, facts)
        return {"folder": str(run.folder), "certificate": certify_in(run, settings, task, model, result), "facts": facts}

    done = ranks.lead(finish)
    return TrainedRun(Path(done["folder"]), done["facts"], result, done["certificate"])


def probes_of(run: Run, settings: TrainSettings, task: Task) -> dict[str, Callback]:
    """Return the measurements that are made while a run trains."""
    size = settings.evaluation_batch_size or settings.batch_size
    return make_probes(task, settings.probe.names if settings.probe.every else (), size, settings.probe, run.folder)


def open_new(
    configuration: Configuration, out: Path, command: Sequence[str], facts: dict[str, Any], tensorboard: bool,
    folder: Path | None = None, more: Mapping[str, Any] = MappingProxyType({}),
) -> Run:  # fmt: skip
    """Make the folder of a run, at a new place below ``out`` or as ``folder``; ``more`` goes into its environment."""
    names, environment = (configuration.label, configuration.model.name), {**table_of(configuration.train), **more}
    return begin_run(Run.create(out, *names, configuration.to_dict(), [*command], environment, folder), tensorboard, facts)


def open_stored(configuration: Configuration, folder: Path, tensorboard: bool) -> Run:
    """Open the folder of a run to go on with; its task and model must be those of the configuration."""
    _refuse_another_configuration(Run.open(folder), configuration)
    return begin_run(open_to_resume(folder, configuration.train), tensorboard)


def open_to_resume(folder: Path, settings: TrainSettings) -> Run:
    """Open the folder of a run for writing, if engines are chosen as they were when it was made."""
    environment = table_of(settings)
    _refuse_another_table(Run.open(folder), environment[TABLE])
    return Run.open(folder, write=True, environment=environment)


def table_of(settings: TrainSettings) -> dict[str, Any]:
    """Return what ``environment.json`` notes beside the machine: the table by which engines are chosen, how many ranks."""
    return {TABLE: table_record(choose_device(settings.device)), RANKS: current_ranks().size}


def begin_run(run: Run, tensorboard: bool, facts: dict[str, Any] | None = None) -> Run:
    """Write the facts of a new run and begin its event files; a run for which that fails is closed."""
    try:
        if facts is not None:
            write_facts(run, facts)
        if tensorboard:
            run.write_events()
    except BaseException:
        run.close()
        raise
    return run


def _refuse_unfinished_member(folder: Path) -> None:
    """Refuse to go on alone with a run whose group can go on: numbers would be other ones, by rounding.

    Raises:
        RunError: It is such a run; the message names what to resume.
    """
    above = folder.resolve().parent
    plan = read_plan(above)
    if plan is None or not plan.together or read_result(Run.open(folder)) is not None:
        return
    raise RunError(
        f"`{folder}` is trained in a group of {len(plan.seeds)} networks, which goes on as a whole. Resume `{folder.parent}`."
    )


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


def certify_in(run: Run, settings: TrainSettings, task: Task, model: nn.Module, result: Result) -> dict[str, Any]:
    """Certify the best weights, which the trainer leaves in the model, and note it in the run."""
    bound = measure_input_bound(task, settings.evaluation_batch_size or settings.batch_size)
    source = "largest 2-norm of an input in the validation split"
    record = record_certificate(model, bound, source, result.best_step, "best")
    run.write_json("certificate.json", record)
    return record
