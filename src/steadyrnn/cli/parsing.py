"""The parser of a command, made of jsonargparse: typed options, examples at the end of its help."""

from argparse import SUPPRESS
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .commands import COMMANDS

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

__all__ = ["HIDDEN", "add_flag", "make_parser"]

HIDDEN = SUPPRESS


def make_parser(name: str, description: str, examples: Sequence[str], usage: str | None = None) -> "ArgumentParser":
    """Return a parser for the command ``name`` without any option but ``--help``.

    Args:
        name: Of :data:`COMMANDS`.
        description: What the command does, in sentences.
        examples: Command lines that run as they stand, one after another in an empty folder.
        usage: What stands behind the command's name; None takes the table's.
    """
    from jsonargparse import ArgumentParser, DefaultHelpFormatter

    class Formatter(DefaultHelpFormatter):
        """Leaves the lines of description and examples as they are."""

        def _fill_text(self, text: str, width: int, indent: str) -> str:
            return "".join(f"{indent}{line}\n" for line in text.splitlines()).rstrip("\n")

        def _split_lines(self, text: str, width: int) -> list[str]:
            return super()._split_lines(text.replace("``", ""), width)

    shown = f"steadyrnn {name} {COMMANDS[name].usage if usage is None else usage}"
    epilog = "\n".join(["Examples:", *(f"  {example}" for example in examples)])
    return ArgumentParser(
        prog=f"steadyrnn {name}", usage=shown, description=description, epilog=epilog, formatter_class=Formatter,
        print_config=None, allow_abbrev=False,
    )  # fmt: skip


def add_flag(parser: "ArgumentParser", name: str, help: str) -> None:
    """Add an option without a value."""
    options: dict[str, Any] = {"action": "store_true", "help": help}
    parser.add_argument(name, **options)
