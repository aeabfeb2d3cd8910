"""What is wrong with a command line, in a sentence that names the option, what came and what was expected."""

import re
from argparse import Action
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from .preparse import LISTS, SHORT_FORMS, value_of

__all__ = ["complaint", "describe_type", "flag_names", "unknown_option"]

_KINDS: dict[Any, str] = {
    **{int: "a whole number", float: "a number", str: "text", bool: "true or false", NoneType: "null"},
}
_MANY = {int: "whole numbers", float: "numbers", str: "names"}


def describe_type(hint: Any) -> str:
    """Return what a value of a type looks like on a command line.

    Example:
        >>> describe_type(int | None), describe_type(tuple[float, float]), describe_type(tuple[str, ...])
        ('a whole number or null', 'a list of 2 numbers, [a,b]', 'a list of names, [a,b]')
    """
    parts = get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(map(describe_type, parts))
    if get_origin(hint) in (tuple, list):
        count = f"{len(parts)} " if len(parts) > 1 and parts[1] is not Ellipsis else ""
        return f"a list of {count}{_MANY.get(parts[0], 'values')}, [a,b]"
    return _KINDS.get(hint, "another value")


def unknown_option(parser: Any, words: Sequence[str]) -> str | None:
    """Return a complaint about the first option that a parser does not have, None where there is none."""
    known = {name for action in parser._actions for name in action.option_strings}
    for word in words:
        name = word.partition("=")[0]
        if name == "--":
            return None
        if name.startswith("-") and name != "-" and not _is_number(name) and name.removesuffix("+") not in known:
            return _unknown(parser, f"there is no option {name}", name, _list_options(parser))
    return None


def complaint(parser: Any, message: str) -> str:
    """Return a message of jsonargparse or argparse in the program's own words; one of ours is left as it is."""
    for pattern, say in _SAYINGS:
        found = re.search(pattern, message, re.DOTALL)
        if found:
            return say(parser, found)
    return " ".join(message.split())


def _wrong_value(parser: Any, found: re.Match[str]) -> str:
    """Complain about a value of the wrong type."""
    key, rest = found["key"], found["rest"]
    action = _action(parser, key)
    if action is None:
        return f"`{key}` has a value that does not fit"
    name = _display_name(action, parser)
    value = (
        value_of(getattr(parser, "args", []), action.option_strings[-1], flag_names(parser)) if action.option_strings else None
    )
    if value is None:
        came = re.findall(r"(?:Given value|Got value): (.*)", rest)
        value = came[-1].strip() if came else None
    if action.metavar == "CONFIG" and key != "config":
        parts = [option for option in parser.shown_options() if option.startswith(f"{name}.")]
        return f"{name} takes no value, its parts do: {', '.join(parts)}."
    expected = f"one of {', '.join(map(str, action.choices))}" if action.choices else describe_type(_hint(action))
    return f"{name} must be {expected}, but is {value!r}." if value is not None else f"{name} must be {expected}."


def _wrong_choice(parser: Any, found: re.Match[str]) -> str:
    name, value = found["name"], found["value"]
    action = next((a for a in parser._actions if name in (*a.option_strings, a.dest, a.metavar)), None)
    known = [] if action is None or action.choices is None else [str(choice) for choice in action.choices]
    near = get_close_matches(value, known, 1)
    hint = f" Did you mean `{near[0]}`?" if near else ""
    shown = name if action is None else _display_name(action, parser)
    return f"{shown} must be one of {', '.join(known)}, but is {value!r}.{hint}"


def _missing(parser: Any, found: re.Match[str]) -> str:
    names = found["names"].split(", ")
    shown = [_display_name(action, parser) for name in names for action in [_action(parser, name)] if action is not None]
    return f"{' and '.join(shown or names)} must be given: {parser.usage}"


def _no_value(parser: Any, found: re.Match[str]) -> str:
    action = _action(parser, found["name"])
    if action is None:
        return f"{found['name']} needs a value."
    expected = f"one of {', '.join(map(str, action.choices))}" if action.choices else describe_type(_hint(action))
    expected = "a file, YAML or JSON" if action.dest == "config" else expected
    return f"{_display_name(action, parser)} needs a value: {expected}."


def _too_much(parser: Any, found: re.Match[str]) -> str:
    return f"{found['words']!r} is one word too many: {parser.usage}"


def _no_setting(parser: Any, found: re.Match[str]) -> str:
    """Complain about an unknown setting in a file."""
    groups = found.groupdict()
    key = f"{groups['group']}.{groups['key']}" if groups.get("group") else found["key"]
    settings = [name.removeprefix("--") for name in parser.shown_options() if "." in name]
    return _unknown(parser, f"there is no setting {key}", key, settings)


def _takes_none(parser: Any, found: re.Match[str]) -> str:
    return f"{found['name']} takes no value, but {found['value']} is given."


_SAYINGS = (
    (r"^Group '(?P<group>.+?)' does not accept option '(?P<key>.+?)'", _no_setting),
    (r"^Option '(?P<key>.+?)' is not accepted", _no_setting),
    (r"^argument (?P<name>\S+): invalid choice: '(?P<value>.*?)' \(choose from", _wrong_choice),
    (r"^argument (?P<name>\S+): expected (?:one|at least one) argument", _no_value),
    (r"^argument (?P<name>\S+): ignored explicit argument (?P<value>.*)", _takes_none),
    (r"^the following arguments are required: (?P<names>.*)", _missing),
    (r"^unrecognized arguments: (?P<words>.*)", _too_much),
    (r"^.*Parser key \"(?P<key>[^\"]+)\"(?P<rest>.*)", _wrong_value),
)


def _unknown(parser: Any, said: str, name: str, known: Iterable[str]) -> str:
    """Return a complaint that leads to the nearest name, by all of it or by its last part, or else to the help."""
    offered = [option for option in known if option not in ("-h", "--help")] or ["--help"]
    ends, end = {_end(option): option for option in reversed(offered)}, _end(name)
    near = [ends[end]] if end in ends else get_close_matches(name, offered, 1)
    near = near or [ends[other] for other in get_close_matches(end, ends, 1)]
    return f"{said}. " + (f"Did you mean {near[0]}?" if near else f"`{parser.prog} --help` shows what there is.")


def _end(option: str) -> str:
    return option.lstrip("-").split(".")[-1]


def _list_options(parser: Any) -> list[str]:
    """Return the options that may be meant, short forms of settings with them."""
    shown: list[str] = parser.shown_options()
    forms = SHORT_FORMS | LISTS
    return [*shown, *(short for short, long in forms.items() if long in parser._option_string_actions)]


def _action(parser: Any, key: str) -> Action | None:
    """Return the action of a key, an option or a word of the usage."""
    return next((a for a in parser._actions if key in (a.dest, a.metavar, *a.option_strings)), None)


def _display_name(action: Action, parser: Any) -> str:
    """Return the name that a user knows an argument by."""
    if action.option_strings:
        return action.option_strings[-1]
    return str(action.metavar or action.dest.upper())


def flag_names(parser: Any) -> set[str]:
    """Return the options without a value."""
    return {name for action in parser._actions if action.nargs == 0 for name in action.option_strings}


def _hint(action: Action) -> Any:
    return getattr(action, "_typehint", None) or action.type


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
