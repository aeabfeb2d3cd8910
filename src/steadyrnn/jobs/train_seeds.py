"""Train one network per seed, as a group where that is faster, each in a run folder of its own."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from torch import nn

from steadyrnn.errors import ArgumentError, DtypeError, NotFiniteError, RunError, TrainingError
from steadyrnn.models.group import group
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.models.systems import build_model
from steadyrnn.report.numbers import mean, spread
from steadyrnn.runs.files import make_folder
from steadyrnn.runs.folder import Run, make_run_folder
from steadyrnn.tasks.base import Task
from steadyrnn.train.arguments import check_settings
from steadyrnn.train.device import choose_device, device_context
from steadyrnn.train.effects import check_effects
from steadyrnn.train.group_runs import GroupRuns
from steadyrnn.train.grouped import find_group_refusal, train_group
from steadyrnn.train.progress import Progress, make_progress
from steadyrnn.train.randomness import seed_everything
from steadyrnn.train.ranks import refuse_ranks
from steadyrnn.train.result import read_result
from steadyrnn.train.state import refuse_differences
from steadyrnn.train.weights import load_weights

from .configuration import Configuration
from .facts_file import read_choices, write_facts
from .loading import build_task, check_same_data, collect_facts
from .measurements import check_probes
from .seeds_file import CHECKPOINT, MOST_SEEDS, SEEDS, SeedsPlan, read_plan, seed_folder, write_plan
from .train import TrainedRun, certify_in, open_new, open_stored, probes_of, train_in

__all__ = ["LARGEST", "TrainedSeeds", "describe_way", "train_seeds"]

LARGEST = {"RNN": 4096, "GRU": 2560, "LSTM": 160}
"""Rows of a batch times units up to which a group pays, by layer.

Measured on one core with ten networks, a hundred time steps and batches of 20 and 128 rows, against training one after
another. An RNN is trained 4 times faster at 20 x 16, 1.2 at 20 x 128, 1.3 at 128 x 32, and no faster at 128 x 64. A GRU is
4.3 times faster at 20 x 16, 1.2 at 20 x 128, 1.6 at 128 x 16, and as fast at 128 x 32. An LSTM, whose loop over time is one
call alone, is 1.2 times faster at 20 x 8, and slower from 20 x 16 on. Two networks, RNN or GRU, are trained 1.1 to 1.5
times faster at 16 and 32 units with 20 and 64 rows. On a GPU single networks have fused kernels, which a group lacks; there
nothing was measured.
"""

Announce = Callable[[Path, dict[str, Any], str], None]
Shown = str | Progress


@dataclass(frozen=True)
class TrainedSeeds:
    """What training with several seeds leaves behind.

    Args:
        folder: The folder that holds a run folder for each seed.
        plan: The seeds, and how they were trained.
        facts: What is known of task and model beside the configuration.
        runs: The runs that ended well, by seed.
        failures: Why others failed, by seed; their folders hold what was trained before.
    """

    folder: Path
    plan: SeedsPlan
    facts: dict[str, Any]
    runs: dict[int, TrainedRun]
    failures: dict[int, str]

    def summary(self) -> dict[str, dict[str, dict[str, float | None]]]:
        """Return mean and standard deviation of each score of the runs that ended well, of ``validation`` and ``test``."""
        results = [run.result for run in self.runs.values()]
        splits = {"validation": [result.best for result in results], "test": [result.test for result in results]}
        return {split: _summarize(scores) for split, scores in splits.items()}


def train_seeds(
    configuration: Configuration,
    seeds: Sequence[int] = (),
    out: str | Path = "runs",
    *,
    resume: str | Path | None = None,
    tensorboard: bool = False,
    progress: Shown = "silent",
    command: Sequence[str] = (),
    announce: Announce | None = None,
    task: Task | None = None,
    facts: Mapping[str, Any] = MappingProxyType({}),
    folder: str | Path | None = None,
) -> TrainedSeeds:
    """Train a network for each seed; keep each in a folder as :func:`~steadyrnn.jobs.train.train_network` would leave it.

    A seed is that of ``train.seed``: the networks share the data and differ by their first weights (and dropout). Small
    networks on the CPU are trained as a group, in one pass, if a group can run them (see :data:`LARGEST`); each ends as it
    would alone, up to rounding. Others are trained one after another. A network whose loss or gradient is not finite fails;
    the others go on.

    All folders are made and held before the first step. A signal saves all and raises
    :class:`~steadyrnn.train.signals.Interrupted`; ``resume`` goes on, bit for bit, also after the process was killed.

    Args:
        configuration: Task, model and training; its ``train.seed`` is not used.
        seeds: Different ones, at most ``MOST_SEEDS``; none with ``resume``.
        out: Where folders are made: ``out/TASK/MODEL/ID/seed-N``.
        resume: The folder ``out/TASK/MODEL/ID`` of a call to go on with.
        tensorboard: Whether to write event files too.
        progress: ``"auto"`` shows a bar or lines, ``"silent"`` nothing; or what is told of every step of every training.
        command: The words that the runs are noted to come from.
        announce: Called with the folder, the facts and a line on the way of training before the first step.
        task: The task of the configuration, where it has been made already; None makes it.
        facts: What is to be noted of the runs beside what is known of task and model.
        folder: What takes the place of ``out/TASK/MODEL/ID``; it must hold neither the seeds nor their plan.

    Example:
        >>> from steadyrnn.jobs.recipes import configure
        >>> sizes = {"model.width": 4, "task.length": 5, "train.steps": 2, "train.batch_size": 8, "train.device": "cpu"}
        >>> done = train_seeds(configure("addition", "rnn", sizes), [0, 1, 2])
        >>> done.plan.together, [run.folder.name for run in done.runs.values()], list(done.summary()["test"])
        (True, ['seed-0', 'seed-1', 'seed-2'], ['loss'])
    """
    refuse_ranks("Several seeds", "Start it without torchrun, or train one seed.")
    settings = configuration.train
    check_settings(settings)
    check_probes(settings.probe)
    device = choose_device(settings.device)
    plan = _read_seeds(seeds, resume)
    with device_context(settings):
        task = build_task(configuration) if task is None else task
        model = _build(configuration, task, plan.seeds[0])
        known = {**collect_facts(configuration, task, model), **facts}
        if resume is not None:
            _refuse_half_made(Path(resume), plan)
            first = Run.open(seed_folder(Path(resume), plan.seeds[0]))
            check_same_data(first, task)
            known = {**known, **read_choices(first)}
        if resume is None:
            check_effects(settings, model, task)
            reason = "there is one" if len(plan.seeds) == 1 else _refuse_group(configuration, task, model, device.type)
            plan = replace(plan, together=reason is None, reason=reason or "")
        place = None if folder is None else Path(folder)
        with _open_all(configuration, plan, Path(out), resume, command, known, tensorboard, place) as (made, runs):
            if announce is not None:
                announce(made, known, describe_way(plan, known))
            train_all = _train_together if plan.together else _train_in_turn
            done, failures = train_all(configuration, task, runs, known, resume is not None, progress)
    return TrainedSeeds(made, plan, known, done, failures)


def describe_way(plan: SeedsPlan, facts: Mapping[str, Any]) -> str:
    """Return in a line how networks are trained, and why.

    Example:
        >>> describe_way(SeedsPlan((0, 1), together=True), {"model": {"width": 32}})
        '2 networks of 32 units, trained as a group'
    """
    count = "1 network" if len(plan.seeds) == 1 else f"{len(plan.seeds)} networks"
    named = f"{count} of {facts['model'].get('width')} units"
    if plan.together or len(plan.seeds) == 1:
        return f"{named}, trained as a group" if plan.together else named
    return f"{named}, trained one after another: {plan.reason}"


def _read_seeds(seeds: Sequence[int], resume: str | Path | None) -> SeedsPlan:
    """Return the seeds that are given, or those of a folder to go on with."""
    if resume is not None:
        plan = read_plan(Path(resume))
        if plan is None or seeds:
            raise RunError(f"`resume` must be a folder with a `{SEEDS}`, and no seeds given with it, but is {str(resume)!r}.")
        return plan
    if not 1 <= len(seeds) <= MOST_SEEDS or len({*seeds}) < len(seeds):
        raise ArgumentError(f"`seeds` must be 1 to {MOST_SEEDS} different numbers, but has {len(seeds)}, or one of them twice.")
    for seed in seeds:
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**64:
            raise ArgumentError(f"`seeds` must be integers from 0 to 2^64 - 1, but one is {seed!r}.")
    return SeedsPlan(tuple(seeds), together=False)


def _refuse_group(configuration: Configuration, task: Task, model: nn.Module, device: str) -> str | None:
    """Return why networks should not be trained as a group, None where they should."""
    if device != "cpu":
        return "a group has no fused kernels for a GPU"
    try:
        many = group([cast(SequenceModel, model)])  # which refuses others
    except (ArgumentError, DtypeError, TypeError) as error:
        return _first_sentence(str(error))
    layer, rows = type(cast(SequenceModel, model).rnn).__name__, configuration.train.batch_size
    refusal = find_group_refusal(many, task, configuration.train)
    if refusal is not None:
        return _first_sentence(refusal)
    units, most = cast(SequenceModel, model).rnn.hidden_size, LARGEST.get(layer, 0)
    if rows * units > most:
        return f"a group is slower, {rows} rows times {units} units being more than {most:,}"
    return None


def _first_sentence(text: str) -> str:
    """Return the first sentence of a refusal, without what is refused: all networks are of one form."""
    first = text.split(". ")[0].removesuffix(".")
    return re.sub(r"^A group cannot run .*?: ", "in a group ", first)


def _build(configuration: Configuration, task: Task, seed: int) -> nn.Module:
    """Return a model with its first weights."""
    seed_everything(seed)
    return build_model(configuration.model, task.interface)


def _seeded(configuration: Configuration, seed: int) -> Configuration:
    return replace(configuration, train=replace(configuration.train, seed=seed))


@contextmanager
def _open_all(
    configuration: Configuration, plan: SeedsPlan, out: Path, resume: str | Path | None, command: Sequence[str],
    facts: dict[str, Any], tensorboard: bool, place: Path | None = None,
) -> Iterator[tuple[Path, dict[int, Run]]]:  # fmt: skip
    """Make the folders of all seeds, or open them, and hold all of them."""
    with ExitStack() as stack:
        runs: dict[int, Run] = {}
        if resume is not None:
            folder = Path(resume)
            _refuse_half_made(folder, plan)
            for seed in plan.seeds:
                own = _seeded(configuration, seed)
                runs[seed] = stack.enter_context(open_stored(own, seed_folder(folder, seed), tensorboard))
                refuse_differences({"train": runs[seed].config["train"]}, {"train": asdict(own.train)})
        else:
            folder = make_run_folder(out, configuration.label, configuration.model.name) if place is None else place
            make_folder(folder)
            write_plan(folder, plan)
            more = {"group": {"seeds": [*plan.seeds]}} if plan.together else {}
            for seed in plan.seeds:
                own, new = _seeded(configuration, seed), seed_folder(folder, seed)
                runs[seed] = stack.enter_context(open_new(own, out, command, facts, tensorboard, new, more))
        yield folder, runs


def _refuse_half_made(folder: Path, plan: SeedsPlan) -> None:
    """Refuse a folder whose call was killed while it made the folders of its runs: nothing was trained."""
    missing = [seed for seed in plan.seeds if not (seed_folder(folder, seed) / "config.json").is_file()]
    if missing:
        raise RunError(
            f"`{folder}` has no run of seed {missing[0]}: its folder is lost, or the program was killed while it made the "
            "folders, before the first step. Restore it, or start anew."
        )


def _train_in_turn(
    configuration: Configuration, task: Task, runs: Mapping[int, Run], facts: dict[str, Any], resume: bool, progress: Shown
) -> tuple[dict[int, TrainedRun], dict[int, str]]:
    """Train one network after another; one that fails does not keep the next from being trained."""
    done, failures = dict[int, TrainedRun](), dict[int, str]()
    for seed, run in runs.items():
        own, model = _seeded(configuration, seed), _build(configuration, task, seed)
        try:
            done[seed] = train_in(
                run, own.train, task, model, facts, resume=resume, progress=progress, label=f"seed {seed}"
            )  # fmt: skip
        except (TrainingError, NotFiniteError) as error:
            failures[seed] = str(error)
    return done, failures


def _train_together(
    configuration: Configuration, task: Task, runs: Mapping[int, Run], facts: dict[str, Any], resume: bool, progress: Shown
) -> tuple[dict[int, TrainedRun], dict[int, str]]:
    """Train all networks as a group; one that fails leaves it."""
    settings, seeds = configuration.train, [*runs]
    models = [cast(SequenceModel, _build(configuration, task, seed)) for seed in seeds]
    failures: dict[int, str] = {}
    if not all(read_result(run) for run in runs.values()):
        above = runs[seeds[0]].folder.parent
        probes = [probes_of(run, settings, task) for run in runs.values()]
        folders = GroupRuns([*runs.values()], seeds, above / CHECKPOINT, probes)
        shown = progress if isinstance(progress, Progress) else make_progress(progress)
        finished = train_group(group(models), task, settings, progress=shown, runs=folders)
        failures = {seeds[place]: str(error) for place, error in finished.failures.items()}
    elif resume:
        GroupRuns([*runs.values()], seeds, runs[seeds[0]].folder.parent / CHECKPOINT).remove()  # a kill may have left it
    done: dict[int, TrainedRun] = {}
    for (seed, run), model in zip(runs.items(), models, strict=True):
        result = read_result(run)
        if result is None:
            continue
        load_weights(model, run.load("best").tensors)
        if resume:  # they may be lost
            write_facts(run, facts)
        done[seed] = TrainedRun(run.folder, facts, result, certify_in(run, settings, task, model, result))
    return done, failures


def _summarize(scores: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float | None]]:
    """Return mean and standard deviation of each score."""
    names = list(scores[0]) if scores else []
    columns = {name: [own[name] for own in scores] for name in names}
    return {name: {"mean": mean(column), "standard_deviation": spread(column)} for name, column in columns.items()}
