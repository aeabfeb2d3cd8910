"""Train a model of your own on a task of your own, and keep all of it in a run folder that the program works on."""

from pathlib import Path

import torch
from torch import nn

from steadyrnn.runs.folder import Run
from steadyrnn.tasks.base import Task
from steadyrnn.train.arguments import check_arguments, check_settings
from steadyrnn.train.device import device_context, join_on
from steadyrnn.train.effects import check_effects
from steadyrnn.train.evaluation import evaluation_mode
from steadyrnn.train.model_call import call_model
from steadyrnn.train.randomness import keep_random_state
from steadyrnn.train.ranks import join
from steadyrnn.train.same_weights import check_for_ranks
from steadyrnn.train.settings import TrainSettings

from .measurements import check_probes
from .origin import collect_task_facts
from .python_run import describe_objects, refuse_other_objects, save_task_data
from .time_sharing import check_model_over_ranks
from .train import Announce, TrainedRun, begin_run, open_on_first, open_to_resume, table_of, train_in

__all__ = ["train_model"]


def train_model(
    model: nn.Module,
    task: Task,
    settings: TrainSettings | None = None,
    out: str | Path = "runs",
    *,
    name: str = "own",
    label: str = "model",
    resume: str | Path | None = None,
    keep_data: bool = True,
    tensorboard: bool = False,
    progress: str = "silent",
    announce: Announce | None = None,
) -> TrainedRun:
    """Train a model on a task, certify its best weights, and keep all of it in a run folder.

    The folder has what a run of the program has, so ``steadyrnn eval``, ``certify``, ``convert`` and ``report`` work on it.
    For that it says how the model is made (see :func:`~steadyrnn.models.description.describe_model`) and keeps the data of a
    task on tensors. A model with a class of your own cannot be described: it is trained, and the folder says why the program
    can neither certify nor convert it. A task of your own is not stored, and its run cannot be scored by the program.

    A mistake in the arguments, or a model that does not fit the task, is found before a folder is made. A signal saves the run
    and raises :class:`~steadyrnn.train.signals.Interrupted`; with ``resume`` and the same objects it goes on, bit for bit.

    Started by torchrun, all processes call it, share each batch and return the same; the model of rank 0 is what counts.

    Args:
        model: Any module that takes the task's batches; in the end it has the best weights.
        task: The task.
        settings: How to train; None is ``TrainSettings()``.
        out: Where run folders are made: ``out/NAME/LABEL/ID``.
        name: What the task is called.
        label: What the model is called.
        resume: The folder of a run to go on with; its model, task and settings must be those that are given.
        keep_data: Whether the data of a task on tensors are kept in the folder.
        tensorboard: Whether to write event files too.
        progress: ``"auto"`` shows a bar or lines, ``"silent"`` nothing.
        announce: Called with the folder and the facts before the first step.

    Example:
        >>> from steadyrnn.tasks.tensors import Part, TensorClassification
        >>> part = Part(torch.randn(30, 8, 2), torch.tensor([0, 1] * 4))
        >>> model = sr.SequenceModel(sr.RNN(2, 4, transition="ball"), 2)
        >>> run = train_model(model, TensorClassification(part, part), TrainSettings(steps=2, device="cpu"), name="coins")
        >>> run.folder.parent, run.certificate["certificate"]["stable"]
        (PosixPath('runs/coins/model'), True)
    """
    settings = TrainSettings() if settings is None else settings
    ranks, given = join(), settings

    def check() -> None:
        check_arguments(model, task, given, None, None)
        check_settings(given)
        check_probes(given.probe)

    ranks.agree(check)
    _, device = join_on(settings.device)
    with device_context(settings):
        data = task.stored() if keep_data else None

        def prepare() -> None:
            check_for_ranks(model, settings, ranks, task.ranks_share)
            check_model_over_ranks(model, task, settings, ranks)
            if resume is None:
                check_effects(settings, model, task)
                _try_out(model.to(device), task.to(device), settings)

        ranks.agree(prepare)
        facts = ranks.lead(lambda: {**collect_task_facts(task, model), "model": {"name": label}})

        def open_folder() -> Run:
            config = describe_objects(model, task, settings, (name, label), data)
            if resume is None:
                run = Run.create(out, name, label, config, (), table_of(settings))
            else:
                refuse_other_objects(Run.open(resume), config, data)
                run = open_to_resume(Path(resume), settings)
            return begin_run(run, tensorboard, None if resume else facts)

        with open_on_first(ranks, open_folder) as run:
            if resume is None:
                ranks.lead(lambda: None if run is None else save_task_data(run, data))
            if announce is not None and run is not None:
                announce(run.folder, facts)
            trained = train_in(run, settings, task, model, facts, resume=resume is not None, progress=progress)
            if resume is not None and run is not None:
                save_task_data(run, data)  # a kill may have come before they were kept
            return trained


def _try_out(model: nn.Module, task: Task, settings: TrainSettings) -> None:
    """Score one batch, so that a model that does not fit the task is found before there is a folder."""
    size = settings.evaluation_batch_size or settings.batch_size
    with evaluation_mode(model), torch.no_grad(), keep_random_state():
        for batch in task.batches("validation", size):
            output, _ = call_model(model, batch, None, task.interface)
            task.loss(output, batch)
            return
