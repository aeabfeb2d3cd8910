"""The parser of a command, made of jsonargparse: typed options, examples at the end of its help."""

from argparse import SUPPRESS
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from steadyrnn.errors import suggestion
from steadyrnn.train.settings import MOST_THREADS

from .commands import COMMANDS

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

__all__ = ["HIDDEN", "add_flag", "add_json", "check_count", "check_names", "make_main", "make_parser"]

HIDDEN = SUPPRESS
_LARGEST = 2**31 - 1


def make_parser(name: str, description: str, examples: Sequence[str], usage: str | None = None) -> "ArgumentParser":
    """Return a parser for the command ``name`` with no option except ``--help``.

    Args:
        name: Of :data:`COMMANDS`.
        description: What the command does, in sentences.
        examples: Command lines that run as they stand, one after another in an empty folder.
        usage: What follows the command's name; None is the table's.
    """
    from .parser import Formatter, Parser

    shown = f"steadyrnn {name} {COMMANDS[name].usage if usage is None else usage}"
    epilog = "\n".join(["Examples:", *(f"  {example}" for example in examples)])
    return Parser(
        prog=f"steadyrnn {name}", usage=shown, description=description, epilog=epilog, formatter_class=Formatter,
        print_config=None, allow_abbrev=False,
    )  # fmt: skip


def check_names(parser: "ArgumentParser", what: str, names: Sequence[str], known: Collection[str]) -> None:
    """Complain about the first of some names that is not known, and leave."""
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        parser.error(f"there is no {what} {unknown!r}. {suggestion(unknown, known)}")


def check_count(parser: "ArgumentParser", option: str, value: int | None) -> None:
    """Complain about a number below 1 or beyond what torch can count to, and leave; None is no number."""
    most = MOST_THREADS if option == "--threads" else _LARGEST
    if value is not None and not 1 <= value <= most:
        parser.error(f"{option} must be from 1 to {most:,}, but is {value}")


def add_flag(parser: "ArgumentParser", name: str, help: str) -> None:
    """Add an option without a value."""
    options: dict[str, Any] = {"action": "store_true", "help": help}
    parser.add_argument(name, **options)


def add_json(parser: "ArgumentParser") -> None:
    """Add the option that makes the output one JSON object."""
    add_flag(parser, "--json", "Print one JSON object and nothing else on stdout.")


def make_main(
    parser: Callable[[], "ArgumentParser"], run: Callable[["ArgumentParser", Any, Sequence[str]], int]
) -> Callable[[Sequence[str]], int]:
    """Return a command: parse its words once, then run it.

    Args:
        parser: Makes the parser.
        run: Runs the command from its parser (for complaints), the values and the words; returns the exit status.
    """

    def main(argv: Sequence[str]) -> int:
        own = parser()
        return run(own, own.parse_args(argv), argv)

    return main
