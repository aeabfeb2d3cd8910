"""The arguments of ``steadyrnn train``; free of torch."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadyrnn.errors import RunError, printable, suggestion
from steadyrnn.models.catalogue import CATALOGUE
from steadyrnn.models.settings import ModelSettings
from steadyrnn.tasks.settings import TASK_SETTINGS, TaskSettings
from steadyrnn.train.settings import TrainSettings

from .complaints import unknown_option
from .configuration import Configuration
from .parsing import HIDDEN, add_flag, make_parser
from .preparse import bare_words, config_first, nested, value_of, values_of, write_out
from .recipes import recipe
from .settings_file import read_settings

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

__all__ = ["EXAMPLES", "Request", "read", "train_parser"]

EXAMPLES = (
    "steadyrnn train addition --model.width 32 --task.length 20 --train.steps 50",
    "steadyrnn train addition --model lstm --model.width 32 --task.length 20 --train.steps 50 --seed 1 --threads 1",
    "steadyrnn train recall --model urnn --model.nonlinearity abs --task.length 10 --train.steps 50 --train.optimizer.lr 1e-2",
    "steadyrnn train addition --model.width 32 --task.length 20 --train.steps 50 --print_config > addition.yaml",
    "steadyrnn train --config addition.yaml --model.radius 0.01 --quiet",
)


@dataclass(frozen=True)
class Request:
    """What ``steadyrnn train`` was asked for."""

    configuration: Configuration
    out: Path
    resume: Path | None = None
    as_json: bool = False
    quiet: bool = False
    tensorboard: bool = False
    print_config: bool = False


def read(argv: Sequence[str]) -> Request:
    """Return what a command line asks for; leaves through ``SystemExit`` after help or a complaint."""
    words = config_first(write_out(argv))
    stored = _stored(words)
    resume = value_of(words, "--resume")
    places = bare_words(words)
    named = words.pop(places[0]) if places else None
    task = named or nested(stored, "task.name")
    model = value_of(words, "--model.name") or nested(stored, "model.name")
    asks_help = "-h" in words or "--help" in words
    if task is None and not asks_help:
        _refuse_unknown(argv)
        _misused(f"which task? There are {', '.join(TASK_SETTINGS)}.")
    for name, known, what in ((task, TASK_SETTINGS, "task"), (model, CATALOGUE, "model")):
        if name is not None and (not isinstance(name, str) or name not in known):
            _misused(f"there is no {what} {name!r}. {suggestion(name, known)}")
    if resume is not None and task != nested(stored, "task.name"):
        raise RunError(f"The task of the run to resume is {nested(stored, 'task.name')!r}, but {task!r} is asked for.")
    parser = train_parser(task, model, for_help=asks_help)
    if task is not None and resume is None:
        width = value_of(words, "--model.width") or nested(stored, "model.width")
        parser.set_defaults({**recipe(task, model, _whole(width)), "task.name": task})
    if resume is not None:
        words = ["--config", str(Path(resume) / "config.json"), *words]
    if named is not None:
        words.append(f"--task.name={named}")
    return _request(parser.parse_args(words).as_dict())


def _refuse_unknown(words: Sequence[str]) -> None:
    """Complain about an option that no task has: it may have hidden the task."""
    parser = train_parser(None)
    strange = unknown_option(parser, [word for word in write_out(words) if not word.startswith("--task.")])
    if strange is not None:
        parser.error(strange)


def _whole(text: object) -> int | None:
    """Return the whole number of a text; the parser complains about what is none."""
    try:
        return int(str(text))
    except ValueError:
        return None


def train_parser(task: str | None, model: str | None = None, for_help: bool = False) -> "ArgumentParser":
    """Return the parser for a task; without one it has only what all tasks share."""
    parser = make_parser("train", _description(task), EXAMPLES)
    parser.add_argument(
        "--config", action="config", help="YAML or JSON file with any of the settings; a run's config.json fits."
    )
    add_flag(parser, "--print_config", "Print the settings as a file for --config, and leave.")
    parser.add_argument("--out", type=str, default="runs", help="Folder of all runs.")
    parser.add_argument("--resume", type=str, default=None, help="Go on with a run that was cut off; needs no TASK.")
    add_flag(parser, "--json", "Print one JSON object and nothing else on stdout.")
    add_flag(parser, "--quiet", "Print nothing but the folder of the run.")
    add_flag(parser, "--tensorboard", "Write event files for TensorBoard too.")
    short = parser.add_argument_group("short forms")
    for words, meaning in (
        ("--model NAME", "--model.name NAME"), ("--seed N", "--train.seed N, of weights and dropout"),
        ("--device D", "--train.device D: auto, cpu, cuda, cuda:1"), ("--threads N", "--train.threads N"),
        ("--data-dir DIR", "--task.data_dir DIR, else the environment variable STEADYRNN_DATA"),
    ):  # fmt: skip
        short.description = f"{short.description or ''}{words:<16}{meaning}\n"
    parser.add_argument("--format", type=int, default=1, help=HIDDEN)
    parser.add_argument("--command", type=list[str], default=[], help=HIDDEN)
    parser.add_argument("--task.name", type=str, default=task, help=HIDDEN)
    parser.add_class_arguments(TASK_SETTINGS[task] if task else TaskSettings, "task")
    if for_help and model is not None:
        foreign = {field.name for field in fields(ModelSettings)} - {"name", *CATALOGUE[model].options}
        wrapped = CATALOGUE[model].wraps
        parser.add_class_arguments(ModelSettings, "model", skip=set() if wrapped else foreign)
        parser.set_defaults({f"model.{name}": value for name, value in {"name": model, **CATALOGUE[model].options}.items()})
    else:
        parser.add_class_arguments(ModelSettings, "model")
    parser.add_class_arguments(TrainSettings, "train")
    for action in parser._actions:  # a file for one part alone: --config takes all of them
        if action.metavar == "CONFIG" and action.dest != "config":
            action.help = HIDDEN
    return parser


def _description(task: str | None) -> str:
    """Return what the command does, with all tasks and models."""
    lines = [
        "Train a network on a task, certify it, and keep all of it in a folder: runs/TASK/MODEL/ID.",
        "Ctrl-C saves; `--resume RUN` goes on as if nothing had happened.",
    ]
    if task is not None:
        return "\n".join([*lines, "", f"task {task}: {_first_line(TASK_SETTINGS[task])}"])
    width = max(map(len, (*TASK_SETTINGS, *CATALOGUE)))
    tasks = [f"  {name:<{width}}  {_first_line(cls)}" for name, cls in TASK_SETTINGS.items()]
    systems = [f"  {name:<{width}}  {system.description} ({system.paper})" for name, system in CATALOGUE.items()]
    more = "`steadyrnn train TASK --model NAME --help` shows the options of both."
    return "\n".join([*lines, "", "tasks:", *tasks, "", "models:", *systems, "", more])


def _first_line(cls: type) -> str:
    return (cls.__doc__ or "").strip().splitlines()[0]


def _stored(words: Sequence[str]) -> Mapping[str, Any]:
    """Return what the configuration file says, an empty mapping where there is none."""
    resume, files = value_of(words, "--resume"), values_of(words, "--config")
    if resume == "":
        _misused("--resume must not be empty")
    if resume is not None:
        files.append(str(Path(resume) / "config.json"))
        if not Path(files[-1]).is_file():
            raise RunError(f"`--resume` must name the folder of a run, but {resume!r} holds no config.json.")
    stored: Mapping[str, Any] | None = {}
    for file in files:
        stored = read_settings(Path(file))
        if stored is None:
            _misused(f"there is no file {file!r}.")
    return stored or {}


def _request(values: dict[str, Any]) -> Request:
    configuration = Configuration.from_dict({"format": values["format"], **{k: values[k] for k in ("task", "model", "train")}})
    resume = None if values["resume"] is None else Path(values["resume"])
    flags = {name: bool(values[name]) for name in ("quiet", "tensorboard", "print_config")}
    return Request(configuration, Path(values["out"]), resume, as_json=bool(values["json"]), **flags)


def _misused(message: str) -> None:
    """Complain about the command line, and leave."""
    print(printable(f"steadyrnn train: {message}"), file=sys.stderr)
    raise SystemExit(2)
