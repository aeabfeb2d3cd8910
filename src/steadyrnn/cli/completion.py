"""``steadyrnn completion``: a script with which a shell completes commands, options and names."""

import argparse
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from steadyrnn.models.registry import SYSTEMS
from steadyrnn.tasks.registry import TASKS

from .commands import COMMANDS
from .parsing import make_parser
from .preparse import LISTS, SHORT_FORMS
from .train_arguments import train_parser

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

__all__ = ["EXAMPLES", "main", "parser"]

EXAMPLES = (
    "steadyrnn completion bash > steadyrnn.bash",
    "steadyrnn completion zsh > _steadyrnn",
)
SHELLS = ("bash", "zsh")


def parser() -> "ArgumentParser":
    """Return the command's parser."""
    made = make_parser(
        "completion",
        "Print a script for a shell. Bash: `source steadyrnn.bash`, or move it to ~/.local/share/bash-completion/completions.\n"
        "Zsh: move `_steadyrnn` to a folder of $fpath.",
        EXAMPLES,
    )
    made.add_argument("shell", type=str, choices=[*SHELLS], help="The shell.")
    return made


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    args = parser().parse_args(argv)

    import shtab

    print(shtab.complete(whole_program(), shell=args.shell), end="")
    return 0


def whole_program() -> argparse.ArgumentParser:
    """Return a plain parser with every command, option and choice: what can be completed, no more."""
    whole = argparse.ArgumentParser(prog="steadyrnn")
    commands = whole.add_subparsers()
    for name, command in COMMANDS.items():
        plain = commands.add_parser(name, help=command.description)
        if name == "train":
            plain.add_argument("task", choices=[*TASKS])
            _copy(_train_actions(), plain)
            for short in (short for short in (*SHORT_FORMS, *LISTS) if short != "--model"):
                plain.add_argument(short)
            plain.add_argument("--model", "--model.name", choices=[*SYSTEMS])
        else:
            module: Any = import_module(f"steadyrnn.cli.{command.module}")
            _copy(module.parser()._actions, plain)
    return whole


def _train_actions() -> Iterator[argparse.Action]:
    """Yield the options of ``train`` for every task, each once."""
    seen = {"--model", "--model.name", "--task.name"}
    for task in TASKS:
        for action in train_parser(task)._actions:
            if action.option_strings and not seen.intersection(action.option_strings):
                seen.update(action.option_strings)
                yield action


def _copy(actions: Any, plain: argparse.ArgumentParser) -> None:
    """Add options and positional arguments to a plain parser, without types and defaults."""
    for action in actions:
        if action.help == argparse.SUPPRESS or "--help" in action.option_strings:
            continue
        more: dict[str, Any] = {"choices": action.choices} if action.choices else {}
        if action.option_strings and action.nargs == 0:
            more = {"action": "store_true"}
        elif action.nargs is not None and not action.option_strings:
            more["nargs"] = action.nargs
        names = action.option_strings or [action.dest]
        text = " ".join(str(action.help or "").replace("%", "%%").split())
        plain.add_argument(*names, help=text, **more)
