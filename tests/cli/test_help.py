"""Every help is for people, and every mistake on a command line gets a sentence that leads out of it."""

import re
from argparse import Action
from difflib import SequenceMatcher
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from steadyrnn.cli.commands import COMMANDS
from steadyrnn.cli.complaints import unknown_option
from steadyrnn.cli.preparse import SHORT_FORMS
from steadyrnn.cli.train_arguments import train_parser
from steadyrnn.models.registry import SYSTEMS
from steadyrnn.tasks.registry import TASKS
from tests.cli.program import Program

INTERNALS = re.compile(
    r"<function|<class|<locals>|lambda|object at 0x|0x[0-9a-f]{6}|\bNoneType\b|Union|Parser key|Subtype|jsonargparse|Namespace|"
    r"Traceback|usage:|tip:"
)
"""What only a programmer of the parser wants to see."""
PLACES: dict[str, list[str]] = {
    **{"eval": ["runs"], "certify": ["runs"], "convert": ["runs", "--to", "torch"], "report": ["runs"], "data": ["list"]},
    **{"reproduce": ["lin-table2", "--quick"], "bench": [], "completion": ["bash"], "compare": ["addition"]},
    "sweep": ["sweep.yaml"],
}
"""What a command cannot do without."""


def parser_of(name: str, task: str = "addition") -> Any:
    return train_parser(task) if name == "train" else import_module(f"steadyrnn.cli.{COMMANDS[name].module}").parser()


def options_of(name: str, task: str = "addition") -> list[Action]:
    """Return the options of a command that its help shows."""
    parser = parser_of(name, task)
    shown = {*parser.shown_options()} - {"-h", "--help"}
    return [action for action in parser._actions if shown.intersection(action.option_strings)]


def words_of(name: str, task: str = "addition") -> list[str]:
    return ["train", task] if name == "train" else [name, *PLACES[name]]


EVERY = [
    *((name, "addition", action.option_strings[-1]) for name in COMMANDS for action in options_of(name)),
    *(
        ("train", task, action.option_strings[-1])
        for task in TASKS
        for action in options_of("train", task)
        if action.dest.startswith("task.")
    ),
]
"""Every option: command, task, name."""
PAGES = [
    *([name, "--help"] for name in COMMANDS),
    *(["train", task, "--help"] for task in TASKS),
    *(["train", "addition", "--model", model, "--help"] for model in SYSTEMS),
]


@pytest.mark.parametrize("words", PAGES, ids=" ".join)
def test_a_help_has_nothing_of_the_parsers_insides(program: Program, words: list[str]) -> None:
    done = program(*words)
    assert (done.status, done.err) == (0, "")
    body = done.out.removeprefix("usage:")
    assert not INTERNALS.findall(body)
    needed = [action for action in parser_of(words[0])._actions if action.required and action.option_strings]
    assert body.count("required") == len(needed)


def misspelled(option: str) -> list[str]:
    """Return wrong spellings of an option: a letter left out, doubled, swapped with the next."""
    start = 2 + max(option.removeprefix("--").rfind("."), 0) + 1
    middle = max((start + len(option)) // 2, start)
    wrong = [option[:middle] + option[middle + 1 :], option[:middle] + option[middle] + option[middle:]]
    return [*wrong, option[: middle - 1] + option[middle] + option[middle - 1] + option[middle + 1 :]]


@pytest.mark.parametrize(("name", "task", "option"), EVERY)
def test_a_misspelled_option_is_led_to_the_right_one(program: Program, name: str, task: str, option: str) -> None:
    known = {other for action in parser_of(name, task)._actions for other in action.option_strings} | {*SHORT_FORMS}
    parser = parser_of(name, task)
    for wrong in (wrong for wrong in misspelled(option) if wrong not in known):
        said = str(unknown_option(parser, [wrong, "1"]))
        assert said == str(unknown_option(parser, [f"{wrong}=1"]))
        start, meant = said.removesuffix("?").split("Did you mean ")
        assert start == f"there is no option {wrong}. "
        assert likeness(wrong, meant) >= likeness(wrong, option)  # `--to` and `--tol` are both near to `--tl`
    done = program(*words_of(name, task), wrong, "1")
    assert (done.status, done.out, done.err) == (2, "", f"steadyrnn {name}: {said}\n")


def likeness(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other).ratio()


@pytest.mark.parametrize(("name", "task", "option"), EVERY)
def test_a_value_of_the_wrong_type_gets_a_sentence(program: Program, name: str, task: str, option: str) -> None:
    (action,) = [action for action in options_of(name, task) if option in action.option_strings]
    hint = str(getattr(action, "_typehint", action.type))
    kind = next((kind for kind in ("tuple", "bool", "float", "int") if kind in hint), None)
    if kind == "int" and "str" in hint:  # a number or a text: then any text will do
        kind = None
    if action.nargs == 0:
        done = program(*words_of(name, task), f"{option}=7")
        expected = [f"{option} takes no value, but '7' is given."]
    elif action.choices:
        done = program(*words_of(name, task), option, "zzz")
        expected = [f"{option} must be one of {', '.join(action.choices)}, but is 'zzz'."]
    elif kind is None:
        assert "str" in hint or option == "--config"  # any text will do, as far as its type goes
        done = program(*words_of(name, task), option)
        expected = [f"{option} needs a value: "]
    else:
        value = {"int": "ten", "float": "ten", "bool": "maybe", "tuple": "3"}[kind]
        done = program(*words_of(name, task), option, value)
        words = {"int": "a whole number", "float": "a number", "bool": "true or false", "tuple": "a list of "}[kind]
        expected = [f"{option} must be {words}", f"but is {value!r}."]
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith(f"steadyrnn {name}: ")
    assert done.err.count("\n") == 1
    assert all(part in done.err for part in expected), done.err
    assert not INTERNALS.findall(done.err)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("task: {name: addition, lenght: 3}", "there is no setting task.lenght. Did you mean task.length?"),
        ("task: {name: addition}\ntrian: {steps: 3}", "there is no setting trian.steps. Did you mean train.steps?"),
        ("task: {name: addition}\ntrain: {steps: many}", "--train.steps must be a whole number or null, but is 'many'."),
        ("task: {name: additon}", "there is no task 'additon'. Did you mean `addition`?"),
        ("task: {name: addition}\nmodel: {name: lsmt}", "there is no model 'lsmt'. Did you mean `lstm`?"),
    ],
)
def test_a_mistake_in_a_file_gets_a_sentence(program: Program, text: str, message: str) -> None:
    Path("settings.yaml").write_text(text)
    done = program("train", "--config", "settings.yaml")
    assert (done.status, done.err) == (2, f"steadyrnn train: {message}\n")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("eval", "steadyrnn eval: RUN must be given: steadyrnn eval RUN [options]"),
        ("convert runs", "steadyrnn convert: --to must be given: steadyrnn convert RUN --to FORM [options]"),
        ("eval a b", "steadyrnn eval: 'b' is one word too many: steadyrnn eval RUN [options]"),
        ("train --jsn addition", "steadyrnn train: there is no option --jsn. Did you mean --json?"),
        ("train addition --lr 3", "steadyrnn train: there is no option --lr. Did you mean --train.optimizer.lr?"),
        ("train addition --sede 3", "steadyrnn train: there is no option --sede. Did you mean --seed?"),
        ("convert runs --to unitry", "but is 'unitry'. Did you mean `unitary`?"),
        ("data chek", "ACTION must be one of describe, list, check, but is 'chek'. Did you mean `check`?"),
        ("data check mnits", "steadyrnn data: there is no data set 'mnits'. Did you mean `mnist`?"),
        ("bench lsmt", "steadyrnn bench: there is no recurrent model 'lsmt'. Did you mean `lstm`?"),
        ("completion bsh", "SHELL must be one of bash, zsh, but is 'bsh'. Did you mean `bash`?"),
        ("train addition --train.optimizer adam", "takes no value, its parts do: --train.optimizer.name, "),
        ("certify runs --horizon -1", "steadyrnn certify: --horizon must be a number above 0, but is -1."),
        ("train addition --config", "steadyrnn train: --config needs a value: a file, YAML or JSON."),
        ("--versoin", "there is no option --versoin before a command. There are --help, --version, --debug; "),
        ("--json", "there is no option --json before a command. There are --help, --version, --debug; "),
        ("train addition --zzz 3", "there is no option --zzz. `steadyrnn train --help` shows what there is."),
    ],
)
def test_a_wrong_word_is_led_to_a_right_one(program: Program, line: str, message: str) -> None:
    done = program(*line.split())
    assert (done.status, done.out) == (2, "")
    assert message in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("--model.nonlinearity rleu", "relu"),
        ("--model.sigma sigmod", "sigmoid"),
        ("--train.optimizer.name adamm", "adam"),
        ("--train.schedule.name cosin", "cosine"),
        ("--train.probe.names [spectrm]", "spectrum"),
        ("--train.autocast bfloat", "bfloat16"),
    ],
)
def test_a_wrong_name_as_a_value_is_led_to_a_right_one(program: Program, words: str, meant: str) -> None:
    done = program("train", "addition", *words.split())
    assert (done.status, done.out) == (1, "")
    assert done.err.endswith(f"Did you mean `{meant}`?\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_by_name_is_its_help(program: Program, name: str) -> None:
    assert program("help", name) == program(name, "--help")
