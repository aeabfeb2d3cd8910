"""What must be known of a command line before it is parsed: the task, whose options there are, and files of settings.

Nothing is converted or checked here; the parser does that, once.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["LISTS", "PLURALS", "SHORT_FORMS", "CommandLine", "get_nested", "scan", "split_options", "value_of", "write_out"]

SHORT_FORMS = {
    "--model": "--model.name",
    "--seed": "--train.seed",
    "--device": "--train.device",
    "--threads": "--train.threads",
    "--data-dir": "--task.data_dir",
    **{
        f"--{name.replace('_', '-')}": f"--task.{name}"
        for name in ("target", "series", "time", "group", "channels", "horizon", "window", "bptt", "missing", "test_data")
    },
    "--train.average": "--train.average.name",
}
"""Short forms of settings."""

LISTS = {"--probe": "--train.probe.names"}
"""Short forms of settings that are lists: with names between commas, and again for more."""

PLURALS = {
    **{name: ("--seeds", re.compile(r"\.\.|,")) for name in ("--seed", "--train.seed")},
    **{name: ("--models", re.compile(",")) for name in ("--model", "--model.name")},
}
"""Options that several values can be given to, their plurals, and what several values have in them."""

_NEGATIVE = re.compile(r"-(\d+(_\d+)*(\.\d+)?|\.\d+)")


@dataclass(frozen=True)
class CommandLine:
    """What a command line says before it is parsed.

    Args:
        task: The first word that is neither an option nor the value of one.
        files: Values of ``--config``, in order.
        resume: The last value of ``--resume``.
        words: All other words, and ``--resume``: what is left to parse.
    """

    task: str | None
    files: list[str]
    resume: str | None
    words: list[str]


def write_out(words: Sequence[str], forms: Mapping[str, str] = SHORT_FORMS) -> list[str]:
    """Return the words with short forms written out.

    Example:
        >>> write_out(["--seed", "3", "--model=lstm"])
        ['--train.seed', '3', '--model.name=lstm']
        >>> write_out(["--probe", "margin,dead-units", "addition", "--probe=spectrum"])
        ['addition', '--train.probe.names=[margin,dead-units,spectrum]']
    """
    rest, listed, place = list[str](), dict[str, list[str]](), 0
    words = _name_several(words)
    while place < len(words):
        name, equals, value = words[place].partition("=")
        if words[place] == "--":
            break
        if name in LISTS and not equals and place + 1 < len(words) and not _is_option(words[place + 1]):
            place, equals, value = place + 1, "=", words[place + 1]
        if name in LISTS and equals:
            listed.setdefault(LISTS[name], []).append(value)
        else:
            rest.append(_write_out(words[place], forms))
        place += 1
    return [*rest, *(f"{name}=[{','.join(values)}]" for name, values in listed.items()), *words[place:]]


def _name_several(words: Sequence[str]) -> list[str]:
    """Return the words with ``--seed`` and ``--model`` in the plural where several are given.

    Example:
        >>> _name_several(["--seed", "0..4", "--model=lstm,gru", "--seed", "3"])
        ['--seeds', '0..4', '--models=lstm,gru', '--seed', '3']
    """
    named, ended = list[str](), False
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        ended = ended or word == "--"
        given = value if equals else next(iter(words[place + 1 : place + 2]), "")
        several = name in PLURALS and not ended and PLURALS[name][1].search(given)
        named.append(f"{PLURALS[name][0]}{equals}{value}" if several else word)
    return named


def _write_out(word: str, forms: Mapping[str, str]) -> str:
    name, equals, value = word.partition("=")
    return f"{forms.get(name, LISTS.get(name, name))}{equals}{value}"


def split_options(words: Sequence[str], flags: Collection[str]) -> Iterator[tuple[str, str | None, Sequence[str]]]:
    """Yield name, value and words of every option, as argparse tells them apart; a bare word has the name ``""``."""
    place = 0
    while place < len(words):
        if words[place] == "--":  # options end here
            for word in words[place + 1 :]:
                yield "", word, [word]
            return
        name, equals, value = words[place].partition("=")
        if not _is_option(words[place]):
            yield "", words[place], words[place : place + 1]
        elif equals or name in flags or place + 1 == len(words) or _is_option(words[place + 1]):
            yield name, value if equals else None, words[place : place + 1]
        else:
            yield name, words[place + 1], words[place : place + 2]
            place += 1
        place += 1


def _is_option(word: str) -> bool:
    """Say whether argparse reads a word as an option: not ``-``, a negative number, or a text with spaces."""
    name = word.partition("=")[0]
    return word.startswith("-") and len(word) > 1 and " " not in name and not _NEGATIVE.fullmatch(word)


def scan(words: Sequence[str], flags: Collection[str]) -> CommandLine:
    """Return what a command line says before it is parsed.

    Args:
        words: With short forms written out.
        flags: The options without a value.

    Example:
        >>> scan(["--train.seed", "3", "--config", "a.yaml", "addition", "--json"], ["--json"])
        CommandLine(task='addition', files=['a.yaml'], resume=None, words=['--train.seed', '3', '--json'])
    """
    task, resume, files, rest = None, None, [], list[str]()
    for name, value, taken in split_options(words, flags):
        if not name and task is None:
            task = value
        elif name == "--config" and value is not None:
            files.append(value)
        else:
            resume = value if name == "--resume" else resume
            rest.extend(taken)
    return CommandLine(task, files, resume, rest)


def value_of(words: Sequence[str], option: str, flags: Collection[str]) -> str | None:
    """Return the last value of an option, None where it is not given.

    Example:
        >>> value_of(["--model.name", "lstm", "--json"], "--model.name", ["--json"])
        'lstm'
    """
    values = [value for name, value, _ in split_options(words, flags) if name == option and value is not None]
    return values[-1] if values else None


def get_nested(values: Mapping[str, Any], path: str) -> Any:
    """Return what a nested mapping holds at a dotted path, None where there is nothing.

    Example:
        >>> get_nested({"task": {"name": "copy"}}, "task.name")
        'copy'
    """
    found: Any = values
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found
