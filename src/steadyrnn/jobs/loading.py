"""From a run folder back to its model and task."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from steadyrnn.certificates.layer import is_recurrent
from steadyrnn.errors import CheckpointError, RunError, SteadyError
from steadyrnn.models.registry import SYSTEMS
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.models.settings import ModelSettings, complete
from steadyrnn.models.systems import build_model
from steadyrnn.models.truncated import recurrent_part
from steadyrnn.runs.checkpoint import Checkpoint
from steadyrnn.runs.folder import Run
from steadyrnn.runs.layout import find_runs
from steadyrnn.tasks.base import Interface, Task
from steadyrnn.tasks.registry import TASKS, make_task
from steadyrnn.train.weights import check_weights, load_weights

from .configuration import Configuration, is_made_in_python, make_settings
from .facts_file import FACTS, read_facts
from .origin import Origin, collect_task_facts
from .python_run import PythonOrigin

__all__ = [
    *("Trained", "build_task", "collect_facts", "data_checksums", "find_input_bound", "find_newest_run", "load_trained"),
    *("read_configuration", "require_recurrent", "require_sequence_model"),
]


_MADE_BY_HAND = (
    "If it was made in Python with `Run.create` and `train(..., run=run)`, its config.json does not say how model and data are "
    "made. Train with `steadyrnn.jobs.train_model.train_model(model, task, settings)`, whose folder says it. In Python, "
    "`load_weights(model, Run.open(folder).load('best').tensors)` loads its weights into your model."
)
"""What a run lacks that names neither task nor model of the program, and the way out."""


@dataclass(frozen=True)
class Trained:
    """A run with its model as a checkpoint has it."""

    run: Run
    origin: Origin
    model: nn.Module
    checkpoint: str
    step: int


def find_newest_run(path: str | Path) -> Path:
    """Return the run at a path, or the newest below it."""
    return max(find_runs([Path(path)]), key=lambda run: ((run / "config.json").stat().st_mtime_ns, run.name))


def load_trained(path: str | Path, checkpoint: str | None = None) -> Trained:
    """Return the model of a run, in evaluation mode.

    Args:
        path: The run's folder, or one above: then the newest.
        checkpoint: ``best`` or ``last``; None is the best there is.
    """
    run = Run.open(find_newest_run(path))
    origin = read_origin(run)
    name = checkpoint or ("best" if "best" in run.checkpoints() else "last")
    stored = run.load(name)
    model = origin.make_model(stored)
    load_weights(model, stored.tensors)
    step = stored.facts.get("step") if isinstance(stored.facts, dict) else None
    return Trained(run, origin, model.eval(), name, step if isinstance(step, int) else 0)


class NamedOrigin(Origin):
    """A run whose task and model have names that the program knows."""

    def __init__(self, run: Run) -> None:
        self.configuration = configuration = read_configuration(run)
        super().__init__(run, configuration.task_name, configuration.model.name, configuration.train)

    def make_model(self, stored: Checkpoint) -> nn.Module:
        """Return a fresh model of the configuration."""
        interface = read_interface(self.run, self.configuration)
        model = build_checked_model(self.run, self.configuration.model, interface, stored)
        if not (self.run.folder / FACTS).is_file():  # which no run of the program lacks
            try:
                check_weights(model, stored.tensors)
            except CheckpointError as error:
                raise RunError(f"{error} {_MADE_BY_HAND}") from error
        return model

    def make_task(self, data_dir: str | None = None) -> Task:
        """Return the task of the configuration."""
        return build_task(self.configuration, data_dir)


def read_origin(run: Run) -> Origin:
    """Return where a run comes from.

    Raises:
        RunError: It says neither by names that the program knows nor by a description how its model and task are made.
    """
    if is_made_in_python(run.config):
        return PythonOrigin(run)
    for part, known in (("task", TASKS), ("model", SYSTEMS)):
        name = run.config[part]["name"]
        if name not in known:
            raise RunError(f"`{run.folder}` has the {part} {name[:60]!r}, which the program cannot make. {_MADE_BY_HAND}")
    return NamedOrigin(run)


def build_checked_model(run: Run, settings: ModelSettings, interface: Interface, stored: Checkpoint) -> nn.Module:
    """Return a fresh model of a run; sizes that its checkpoint does not bear out are refused before memory is taken."""
    held = sum(tensor.numel() for tensor in stored.tensors.values())
    sizes = {**asdict(settings), **asdict(interface)}
    for name in ("width", "layers", "depth", "blocks", "embedding", "inputs", "outputs", "vocabulary"):
        if isinstance(sizes[name], int) and sizes[name] > max(held, 1):
            raise RunError(f"`{run.folder}` has `{name}` {sizes[name]:,}, but its checkpoint holds {held:,} numbers only.")
    try:
        return build_model(settings, interface)
    except SteadyError:
        raise
    except (TypeError, ValueError, RuntimeError, ArithmeticError) as error:
        raise RunError(f"`{run.folder}` has a configuration of which no model can be built: {error}") from error


def require_recurrent(trained: Trained, error: type[SteadyError]) -> nn.Module:
    """Return the recurrent model of a run; of a network without time raise ``error``."""
    model = recurrent_part(trained.model)
    if not any(map(is_recurrent, model.modules())):
        raise error(
            f"`{trained.run.folder}` is a network without time, {trained.origin.model_name}: it has no state, so there is "
            "nothing to certify and no equivalent of another form."
        )
    return model


def require_sequence_model(trained: Trained, error: type[SteadyError]) -> SequenceModel:
    """Return the recurrent model of a run; of a network without time, or a layer alone, raise ``error``."""
    model = require_recurrent(trained, error)
    if not isinstance(model, SequenceModel):
        raise error(
            f"`{trained.run.folder}` is a {type(model).__name__} alone, but a whole model is converted: train a SequenceModel "
            "around it. In Python `steadyrnn.to_parallel` and the other conversions take a layer."
        )
    return model


def find_input_bound(given: float | None, trained: Trained) -> tuple[float | None, str]:
    """Return the bound on the 2-norm of the layer's inputs, and where it comes from.

    It is as given, or that of the embedding, or what was measured in training, or None.
    """
    if given is not None:
        return given, "as given"
    model = recurrent_part(trained.model)
    if isinstance(model, SequenceModel) and model.embedding is not None:
        longest = torch.linalg.vector_norm(model.embedding.weight.detach().double(), dim=1).max()
        return float(longest) * (1 + 1e-12), "longest vector of the embedding"
    try:
        noted = trained.run.read_json("certificate.json")
    except RunError:
        return None, "none is known"
    match noted:
        case {"input_bound": {"value": int() | float() as value, "source": str(source)}} if not isinstance(value, bool):
            return float(value), source
    return None, "none is known"


def build_task(configuration: Configuration, data_dir: str | None = None) -> Task:
    """Return the task of a configuration; ``data_dir`` names another data folder than it does."""
    settings: dict[str, Any] = asdict(configuration.task)
    if data_dir is not None and "data_dir" in settings:
        settings["data_dir"] = data_dir
    return make_task(configuration.task_name, **settings)


def read_configuration(run: Run) -> Configuration:
    """Return the configuration of a run."""
    try:
        return Configuration.from_dict(run.config)
    except SteadyError as error:
        raise RunError(f"`{run.folder}` has a config.json that this release cannot read: {error}") from error


def read_interface(run: Run, configuration: Configuration) -> Interface:
    """Return what the model of a run takes and gives: as noted, or else as its task says."""
    if not (run.folder / FACTS).is_file():
        return build_task(configuration).interface
    noted = read_facts(run).get("interface")
    try:
        return make_settings(Interface, noted if isinstance(noted, dict) else {}, "interface")
    except (SteadyError, TypeError) as error:
        raise RunError(f"`{run.folder / FACTS}` is damaged: {error}") from error


def collect_facts(configuration: Configuration, task: Task, model: nn.Module) -> dict[str, Any]:
    """Return what is noted of task and model beside the configuration."""
    full = {name: value for name, value in asdict(complete(configuration.model)).items() if value is not None}
    return {**collect_task_facts(task, model), "model": full, "interface": asdict(task.interface)}


def check_same_data(run: Run, task: Task) -> None:
    """Refuse a task whose files are not those that a run was trained on.

    Raises:
        RunError: A file has changed since, or the run has lost the checksums of its files.
    """
    now = data_checksums(task.data_facts())
    if now is None:
        return
    noted = data_checksums(read_facts(run).get("data"))
    if noted is None:
        raise RunError(f"`{run.folder}` has lost `{FACTS}`, which says what it was trained on. Restore it, or train again.")
    if noted != now:
        changed = next((path for path, sha in now.items() if sha not in noted.values()), "another file")
        raise RunError(
            f"`{run.folder}` was trained on other data: {changed} has changed since, or is another file. Restore it; to score "
            "the network on new data use `steadyrnn eval RUN --data FILE`."
        )


def data_checksums(data: Any) -> dict[str, str] | None:
    """Return the checksums of data files by path, None where none are noted."""
    files = data.get("files") if isinstance(data, dict) else None
    return {str(file["path"]): str(file["sha256"]) for file in files} if isinstance(files, list) and files else None
