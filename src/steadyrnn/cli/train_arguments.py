"""The arguments of ``steadyrnn train``, parsed once; free of torch."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from steadyrnn.errors import RunError, printable, suggestion
from steadyrnn.jobs.configuration import Configuration, complete_stored, is_made_in_python
from steadyrnn.jobs.open_settings import AUTO, TASK, WANTS
from steadyrnn.jobs.recipes import recipe
from steadyrnn.jobs.seeds_file import MOST_SEEDS, read_plan, seed_folder
from steadyrnn.jobs.settings_file import read_settings
from steadyrnn.models.registry import SYSTEMS
from steadyrnn.models.settings import ModelSettings
from steadyrnn.tasks.registry import TASKS
from steadyrnn.tasks.settings import TaskSettings
from steadyrnn.train.settings import TrainSettings

from .complaints import unknown_option
from .parsing import HIDDEN, add_flag, make_parser
from .preparse import CommandLine, get_nested, scan, value_of, write_out
from .seeds import read_seeds

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

__all__ = ["EXAMPLES", "FLAGS", "Request", "read", "train_parser"]

COMPARED = ("gru", "lstm", "spectral", "stable-spectral")
"""What `steadyrnn compare` compares unless the user names models."""

_TRAIN = (
    "steadyrnn train addition --model.width 32 --task.length 20 --train.steps 50",
    "steadyrnn train addition --model lstm --model.width 32 --task.length 20 --train.steps 50 --seed 1 --threads 1",
    "steadyrnn train recall --model urnn --model.nonlinearity abs --task.length 10 --train.steps 50 --train.optimizer.lr 1e-2",
    "steadyrnn train addition --model.width 32 --task.length 20 --train.steps 50 --print_config > addition.yaml",
    "steadyrnn train --config addition.yaml --model.radius 0.01 --quiet",
    "steadyrnn train addition --task.length 20 --train.steps 50 --train.probe.every 10 --probe gradient-h0,margin",
    "steadyrnn train addition --model.width 16 --task.length 40 --task.curriculum 10,20,40 --train.steps 60",
    "steadyrnn train addition --model.width 16 --task.length 20 --train.steps 50 --seeds 0..4",
)
_COMPARE = (
    "steadyrnn compare addition --models spectral,gru --model.width 16 --task.length 20 --train.steps 50",
    "steadyrnn compare addition --models spectral,lstm --model.width 16 --task.length 20 --train.steps 50 --seeds 0..1 --json",
)
EXAMPLES: Mapping[str, tuple[str, ...]] = {"train": _TRAIN, "compare": _COMPARE}
"""Examples of the commands that this parser serves."""

_PRINT = {"--print_config": "Print the settings as a file for --config, and leave."}
_SHORT = (
    ("--model NAME", "--model.name NAME; several between commas are compared"),
    ("--seed N", "--train.seed N, of weights and dropout; 0..4 or 0,2,5 as --seeds"),
    ("--device D", "--train.device D: auto, cpu, cuda, cuda:1"),
    ("--threads N", "--train.threads N"),
    ("--data-dir DIR", "--task.data_dir DIR, else the environment variable STEADYRNN_DATA"),
    ("--probe A,B", "--train.probe.names [A,B]: what is measured every --train.probe.every steps"),
    ("--train.average NAME", "--train.average.name NAME: ema, mean"),
    ("--target COLUMN", "--task.target COLUMN, of data of your own; likewise --series, --time, --group,"),
    ("", "--channels, --horizon, --window, --bptt, --missing, --test-data"),
)
_ANSWER = {
    "--json": "Print one JSON object and nothing else on stdout.",
    "--quiet": "Print nothing but the folder of the run.",
    "--tensorboard": "Write event files for TensorBoard too.",
}
FLAGS = ("-h", "--help", *_PRINT, *_ANSWER)
"""The options without a value; all others have one."""


@dataclass(frozen=True)
class Request:
    """What ``steadyrnn train`` is to do.

    Args:
        configuration: Task, model and training; for data of one's own what is open in ``given`` is settled later.
        several: Whether it trains with several seeds, or goes on with such a call.
        models: Those to compare; empty where one is trained.
        given: Dotted settings that the user gave.
        want: What the user wants of a model that is not named.
    """

    configuration: Configuration
    out: Path
    resume: Path | None = None
    as_json: bool = False
    quiet: bool = False
    tensorboard: bool = False
    print_config: bool = False
    seeds: tuple[int, ...] = ()
    several: bool = False
    models: tuple[str, ...] = ()
    given: Mapping[str, Any] = field(default_factory=dict)
    want: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether it trains on data of one's own, from the start: what is not given is settled once the data is read."""
        return self.configuration.task_name == TASK and self.resume is None


class _RefusedError(Exception):
    """A command line that cannot be carried out; the text says why."""


def read(argv: Sequence[str], command: str = "train") -> Request:
    """Return what a command line asks for; leaves through ``SystemExit`` after help or a complaint.

    Args:
        argv: The words behind the command.
        command: ``train``, or another one with the same options.
    """
    try:
        return _read(argv, command)
    except _RefusedError as error:
        print(printable(f"steadyrnn {command}: {error}"), file=sys.stderr)
        raise SystemExit(2) from None


def _read(argv: Sequence[str], command: str) -> Request:
    """Return what a command line asks for."""
    words = write_out(argv)
    line = _name_data(scan(words, FLAGS))
    files = _read_files(line)
    stored: dict[str, Any] = {}
    for file in files:
        stored = _merge(stored, file)
    task = line.task or get_nested(stored, "task.name")
    for_help = "-h" in line.words or "--help" in line.words
    if task is None and not for_help:
        _refuse_unknown(words, command)
        _refuse(f"which task? There are {', '.join(TASKS)}.")
    _check_name("task", task, TASKS)
    if line.resume is not None and task != get_nested(files[0], "task.name"):
        raise RunError(f"The task of the run to resume is {get_nested(files[0], 'task.name')!r}, but {task!r} is requested.")
    if for_help:
        _show_help(line, stored, task, command)
    parser = train_parser(task, command=command)
    values = None
    for file in files:
        values = parser.parse_object(file, namespace=values, defaults=False)
    given = parser.parse_args(line.words, namespace=values, defaults=False)
    request = replace(_request(task, given), **_read_several(line, given))
    probe = request.configuration.train.probe
    if value_of(line.words, "--train.probe.names", FLAGS) is not None and not (probe.every and probe.names):
        _refuse("--probe needs at least one name, and --train.probe.every of 1 or more: nothing would be measured.")
    return request


def _name_data(line: CommandLine) -> CommandLine:
    """Return the command line with a file or folder of the user's, where it has one in the place of a task, as a setting."""
    word = line.task
    if word is None or word in TASKS:
        return line
    if not os.path.exists(word) and not set(word) & {"/", ".", os.sep}:
        return line  # a task, misspelled
    return replace(line, task=TASK, words=[f"--task.data={word}", *line.words])


def _show_help(line: CommandLine, stored: Mapping[str, Any], task: str | None, command: str) -> None:
    """Print the help for a task and a model, with the settings that both start from, and leave."""
    model = value_of(line.words, "--model.name", FLAGS) or get_nested(stored, "model.name")
    _check_name("model", model, SYSTEMS)
    parser = train_parser(task, model, for_help=True, command=command)
    if task is not None and line.resume is None:
        deciding = ("model.width", "task.length", "task.curriculum")
        texts = {name: value_of(line.words, f"--{name}", FLAGS) or get_nested(stored, name) for name in deciding}
        given = {name: _to_integer(text) or text for name, text in texts.items() if text is not None}
        parser.set_defaults({**recipe(task, model, given), "task.name": task})
    parser.parse_args(line.words)


def _refuse_unknown(words: Sequence[str], command: str) -> None:
    """Complain about an option that no task has: it may have hidden the task."""
    parser = train_parser(None, command=command)
    strange = unknown_option(parser, [word for word in words if not word.startswith("--task.")])
    if strange is not None:
        parser.error(strange)


def _check_name(what: str, name: object, known: Mapping[str, Any]) -> None:
    if name is not None and (not isinstance(name, str) or name not in known):
        _refuse(f"there is no {what} {name!r}. {suggestion(name, known)}")


def _to_integer(text: object) -> int | None:
    """Return the whole number of a text, None where it is none."""
    try:
        return int(str(text))
    except ValueError:
        return None


def train_parser(
    task: str | None, model: str | None = None, for_help: bool = False, command: str = "train"
) -> "ArgumentParser":
    """Return the parser for a task; without one it has only what all tasks share."""
    parser = make_parser(command, _description(task, command), EXAMPLES.get(command, ()))
    parser.add_argument(
        "--config", action="config", help="YAML or JSON file with any of the settings; a run's config.json fits."
    )
    for name, help in _PRINT.items():
        add_flag(parser, name, help)
    parser.add_argument("--out", type=str, default="runs", help="Folder of all runs.")
    parser.add_argument("--resume", type=str, default=None, help="Go on with a run that was cut off; needs no TASK.")
    parser.add_argument(
        "--seeds", type=str | None, default=None,
        help="Train a network for each of these seeds of weights, 0..9 or 0,2,5, small ones as a group in one pass.",
    )  # fmt: skip
    parser.add_argument(
        "--models", type=str | None, default=None, help="Train these networks, names between commas, and compare them."
    )
    parser.add_argument(
        "--want", type=str | None, default=None,
        help="For data of your own, where no model is named: memory, stability or speed.",
    )  # fmt: skip
    for name, help in _ANSWER.items():
        add_flag(parser, name, help)
    short = parser.add_argument_group("short forms")
    for words, meaning in _SHORT:
        short.description = f"{short.description or ''}{words:<21}{meaning}\n"
    parser.add_argument("--format", type=int | None, default=None, help=HIDDEN)
    parser.add_argument("--command", type=list[str], default=[], help=HIDDEN)
    parser.add_argument("--task.name", type=str, default=task, help=HIDDEN)
    parser.add_class_arguments(TASKS[task].settings if task else TaskSettings, "task")
    if for_help and model is not None:
        system = SYSTEMS[model]
        foreign = {field.name for field in fields(ModelSettings)} - {"name", *system.options}
        parser.add_class_arguments(ModelSettings, "model", skip=set() if system.wraps else foreign)
        parser.set_defaults({f"model.{name}": value for name, value in {"name": model, **system.options}.items()})
    else:
        parser.add_class_arguments(ModelSettings, "model")
    parser.add_class_arguments(TrainSettings, "train")
    for action in parser._actions:  # a file for one part alone: --config takes all of them
        if action.metavar == "CONFIG" and action.dest != "config":
            action.help = HIDDEN
    return parser


def _description(task: str | None, command: str) -> str:
    """Return what the command does, with all tasks and models."""
    lines = (
        [
            "Train several networks on a task or on a file of yours; print one table and write one page.",
            "The table and the page are in runs/TASK/comparison/ID. Unless --models names others, these are compared:",
            f"{', '.join(COMPARED)}. All options are those of `steadyrnn train`.",
        ]
        if command == "compare"
        else [
            "Train a network on a task or on a file of yours, certify it, and keep all of it in a folder: runs/TASK/MODEL/ID.",
            "Ctrl-C saves; `--resume RUN` goes on as if nothing had happened. With --seeds: runs/TASK/MODEL/ID/seed-N, and",
            "`--resume` takes runs/TASK/MODEL/ID.",
        ]
    )
    if task is not None:
        return "\n".join([*lines, "", f"task {task}: {TASKS[task].description}"])
    width = max(map(len, (*TASKS, *SYSTEMS)))
    tasks = [f"  {name:<{width}}  {record.description}" for name, record in TASKS.items()]
    systems = [f"  {name:<{width}}  {system.description} ({system.paper})" for name, system in SYSTEMS.items()]
    more = "`steadyrnn train TASK --model NAME --help` shows the options of both."
    return "\n".join([*lines, "", "tasks:", *tasks, "", "models:", *systems, "", more])


def _read_files(line: CommandLine) -> list[Mapping[str, Any]]:
    """Return what the files of settings say, that of the run to resume first: what is given later wins."""
    paths = [Path(file) for file in line.files]
    if line.resume == "":
        _refuse("--resume must not be empty")
    if line.resume is not None:
        plan = read_plan(Path(line.resume))
        folder = Path(line.resume) if plan is None else seed_folder(Path(line.resume), plan.seeds[0])
        paths.insert(0, folder / "config.json")
        if not paths[0].is_file():
            raise RunError(f"`--resume` must name the folder of a run, but {os.fspath(folder)!r} holds no config.json.")
    found = []
    for path in paths:
        settings = read_settings(path)
        if settings is None:
            _refuse(f"there is no file {str(path)!r}.")
        else:
            _refuse_python(path, settings)
            found.append(settings)
    return [_complete(file, found[place + 1 :], line) for place, file in enumerate(found)]


def _refuse_python(path: Path, settings: Mapping[str, Any]) -> None:
    """Refuse the configuration of a run whose model and task were made in Python: the program cannot train them."""
    name = get_nested(settings, "task.name")
    if is_made_in_python(settings):
        raise RunError(
            f"{os.fspath(path)!r} is of a run whose model and task were made in Python. It goes on there, with the same "
            "objects: `steadyrnn.jobs.train_model.train_model(model, task, settings, resume=folder)`."
        )
    if path.name == "config.json" and settings.get("format") is not None and isinstance(name, str) and name not in TASKS:
        raise RunError(
            f"{os.fspath(path)!r} is of a run on the task {name!r}, which the program cannot make. If it was made in Python, "
            "it goes on there: `train(model, task, settings, run=Run.open(folder, write=True), resume=True)`."
        )


def _complete(file: Mapping[str, Any], later: Sequence[Mapping[str, Any]], line: CommandLine) -> Mapping[str, Any]:
    """Return a file with the meaning it was stored with; what later files or the command line say has today's meaning."""
    if file.get("format") is None:
        return file
    replaced = {
        "model": _given("model.name", later, line) not in (None, get_nested(file, "model.name")),
        "train": line.resume is None and _given("train.clip.recurrent", later, line) is not None,
    }
    return {**complete_stored(file), **{part: file[part] for part in replaced if replaced[part] and part in file}}


def _given(name: str, files: Sequence[Mapping[str, Any]], line: CommandLine) -> Any:
    """Return what the command line, or the last of some files that has it, says of a setting; None where none does."""
    values = [value_of(line.words, f"--{name}", FLAGS), *(get_nested(file, name) for file in reversed(files))]
    return next((value for value in values if value is not None), None)


def _merge(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return two nested mappings as one; the second wins."""
    inner = {name: _merge(first[name], part) for name, part in second.items()
             if isinstance(part, Mapping) and isinstance(first.get(name), Mapping)}  # fmt: skip
    return {**first, **second, **inner}


def _request(task: str, values: Any) -> Request:
    """Return the request of the values that were given; all others are the recipe's, or of a run to resume its own."""
    given = {name: value for name, value in values.items() if name.startswith(("task.", "model.", "train."))}
    model = given.get("model.name")
    if task == TASK and model == AUTO:
        del given["model.name"]
        model = None
    _check_name("model", model, SYSTEMS)
    models = _read_models(values, model)
    if task != TASK and values.get("want") is not None:
        _refuse("--want belongs to data of your own: the tasks of this program have recipes.")
    _check_name("wish", values.get("want"), WANTS)
    if model is not None and values.get("want") is not None:
        _refuse("--want and --model cannot both be given: a wish chooses a model.")
    resume = values.get("resume")
    start = recipe(task, model, given) if resume is None else {}
    configuration = Configuration.from_dotted({**start, **given, "task.name": task})
    as_json, quiet, tensorboard, print_config = (
        bool(values.get(name)) for name in ("json", "quiet", "tensorboard", "print_config")
    )
    resumed = None if resume is None else Path(resume)
    more = {"models": models, "given": given, "want": values.get("want")}
    return Request(configuration, Path(values.get("out", "runs")), resumed, as_json, quiet, tensorboard, print_config, **more)


def _read_models(values: Any, model: str | None) -> tuple[str, ...]:
    """Return the models to compare; refuse what does not go with them."""
    if values.get("models") is None:
        return ()
    names = tuple(name.strip() for name in values.get("models").split(","))
    for name in names:
        if name != AUTO:
            _check_name("model", name, SYSTEMS)
    if len({*names}) < len(names) or model is not None:
        _refuse("--models must name different models, and --model cannot be given with it.")
    for option in ("resume", "print_config", "want"):
        if values.get(option):
            _refuse(f"--models and --{option} cannot both be given: each model is trained from the start.")
    return names


def _read_several(line: CommandLine, given: Any) -> dict[str, Any]:
    """Return the seeds that a command line names, and whether there are several networks; refuse what does not go with them."""
    text = given.get("seeds")
    several = text is not None or (line.resume is not None and read_plan(Path(line.resume)) is not None)
    if several and value_of(line.words, "--train.seed", FLAGS) is not None:
        _refuse("--seeds and --seed (--train.seed) cannot both be given: each network has a seed of its own.")
    if text is None:
        return {"several": several}
    if line.resume is not None:
        _refuse("--seeds and --resume cannot both be given: a folder to go on with has its seeds.")
    if given.get("print_config"):
        _refuse("--seeds and --print_config cannot both be given: a file for --config holds the settings of one network.")
    try:
        return {"seeds": tuple(read_seeds(text, MOST_SEEDS)), "several": True}
    except ValueError as error:
        _refuse(str(error))
        raise


def _refuse(message: str) -> NoReturn:
    """Complain about the command line."""
    raise _RefusedError(message)
