"""What a command line says before it is parsed: short forms written out, names that decide which options there are."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["FLAGS", "SHORT_FORMS", "bare_words", "config_first", "value_of", "values_of", "write_out"]

SHORT_FORMS = {
    "--model": "--model.name",
    "--seed": "--train.seed",
    "--device": "--train.device",
    "--threads": "--train.threads",
    "--data-dir": "--task.data_dir",
}
"""Short forms of settings."""

FLAGS = ("-h", "--help", "--json", "--quiet", "--tensorboard", "--print_config", "--recheck", "--open")
"""Options without a value."""


def write_out(words: Sequence[str], forms: Mapping[str, str] = SHORT_FORMS) -> list[str]:
    """Return the words with short forms written out.

    Example:
        >>> write_out(["--seed", "3", "--model=lstm"])
        ['--train.seed', '3', '--model.name=lstm']
    """
    return [_written(word, forms) for word in words]


def _written(word: str, forms: Mapping[str, str]) -> str:
    name, equals, value = word.partition("=")
    return f"{forms.get(name, name)}{equals}{value}"


def _options(words: Sequence[str]) -> Iterator[tuple[int, str, str | None, int]]:
    """Yield place, name, value and number of words of every option; a bare word has the name ``""``."""
    place = 0
    while place < len(words):
        name, equals, value = words[place].partition("=")
        if not name.startswith("-") or name == "-":
            yield place, "", words[place], 1
            place += 1
        elif equals or name in FLAGS or place + 1 == len(words):
            yield place, name, value if equals else None, 1
            place += 1
        else:
            yield place, name, words[place + 1], 2
            place += 2


def bare_words(words: Sequence[str]) -> list[int]:
    """Return the places of words that are neither options nor their values.

    Example:
        >>> bare_words(["--seed", "3", "addition", "--json"])
        [2]
    """
    return [place for place, name, _, _ in _options(words) if not name]


def value_of(words: Sequence[str], option: str) -> str | None:
    """Return the last value of an option, None where it is not given.

    Example:
        >>> value_of(["--model.name", "lstm"], "--model.name")
        'lstm'
    """
    values = values_of(words, option)
    return values[-1] if values else None


def values_of(words: Sequence[str], option: str) -> list[str]:
    """Return every value of an option, in order.

    Example:
        >>> values_of(["--config", "a.yaml", "--config=b.yaml"], "--config")
        ['a.yaml', 'b.yaml']
    """
    return [value for _, name, value, _ in _options(words) if name == option and value is not None]


def config_first(words: Sequence[str]) -> list[str]:
    """Return the words with ``--config FILE`` in front: what stands on the command line wins over a file.

    Example:
        >>> config_first(["--seed", "3", "--config", "a.yaml"])
        ['--config', 'a.yaml', '--seed', '3']
    """
    files: list[str] = []
    rest: list[str] = []
    for place, name, value, count in _options(words):
        (files if name == "--config" and value is not None else rest).extend(words[place : place + count])
    return [*files, *rest]


def nested(values: Mapping[str, Any], path: str) -> Any:
    """Return what a nested mapping holds at a dotted path, None where there is nothing.

    Example:
        >>> nested({"task": {"name": "copy"}}, "task.name")
        'copy'
    """
    found: Any = values
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found
