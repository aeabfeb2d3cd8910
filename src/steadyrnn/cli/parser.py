"""The parser that commands share, of jsonargparse: a help without its internals, a mistake in one sentence."""

import sys
from argparse import SUPPRESS, Action
from collections.abc import Sequence
from typing import Any, NoReturn

from jsonargparse import ArgumentParser, DefaultHelpFormatter

from steadyrnn.errors import printable

from .complaints import complaint, unknown_option

__all__ = ["Formatter", "Parser"]

_LONGEST = 2000  # of a complaint, in characters
_PLACES = ("run", "runs", "source", "out", "resume", "checkpoint")
"""Values that name something on the disk: an empty one would be the current folder."""


class Formatter(DefaultHelpFormatter):
    """Leaves the lines of description and examples as they are, and shows types and defaults only where they help."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "".join(f"{indent}{line}\n" for line in text.splitlines()).rstrip("\n")

    def _split_lines(self, text: str, width: int) -> list[str]:
        return super()._split_lines(text.replace("``", ""), width)

    def _get_help_string(self, action: Action) -> str:
        if action.nargs == 0 or not action.option_strings:  # a flag is off, a word is text
            return action.help or ""
        return super()._get_help_string(action)

    def _get_type_str(self, action: Action) -> str | None:
        return None if action.choices else super()._get_type_str(action)


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [value]


class Parser(ArgumentParser):
    """A parser whose complaint is one line: what was expected, what came, and the way out."""

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, *rest: Any, **more: Any
    ) -> Any:
        """Return the values of a command line; leaves through ``SystemExit`` after help or a complaint."""
        words = [*(sys.argv[1:] if args is None else args)]
        strange = unknown_option(self, words)
        if strange is not None and not {"-h", "--help"}.intersection(words):
            self.error(strange)
        values = super().parse_args(words, *rest, **more)
        for action in self._actions:
            if action.dest in _PLACES and "" in _as_list(values.get(action.dest)):
                self.error(f"{action.option_strings[0] if action.option_strings else action.metavar} must not be empty")
        return values

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Say what is wrong in a line on stderr, and leave with status 2."""
        text = printable(f"{self.prog}: {complaint(self, message)}")  # it may quote a file
        print(text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ...", file=sys.stderr)
        raise SystemExit(2)

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print; argparse would hide that nobody reads it, or that the disk is full."""
        print(message, end="", file=file)

    def shown_options(self) -> list[str]:
        """Return the options that the help shows."""
        return [name for action in self._actions if action.help != SUPPRESS for name in action.option_strings]
