"""What is read of a command line before it is parsed: as argparse will read it, and no more."""

import argparse
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadyrnn.cli import complaints
from steadyrnn.cli.commands import COMMANDS
from steadyrnn.cli.preparse import CommandLine, scan, value_of
from steadyrnn.cli.train_arguments import FLAGS, read, train_parser
from steadyrnn.tasks.registry import TASKS

WORDS = st.sampled_from(
    [
        "addition",
        "copy",
        "-",
        "-3",
        "-.5",
        "-1e3",
        "a b",
        "-a b",
        "3",
        "",
        "--json",
        "--quiet",
        "--seed",
        "--seed=4",
        "--out",
        "--",
    ]
)


def by_argparse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False)
    parser.add_argument("task", nargs="*")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quiet", action="store_true")
    parser.add_argument("--seed", action="append")
    parser.add_argument("--out", action="append")
    return parser.parse_intermixed_args(words)


@given(words=st.lists(WORDS, max_size=6))
def test_the_task_and_values_are_those_of_argparse(words: list[str]) -> None:
    try:
        parsed = by_argparse(words)
    except (argparse.ArgumentError, SystemExit, TypeError):  # a value is missing: the parser will complain
        return
    line = scan(words, ["--json", "--quiet"])
    assert line.task == (parsed.task[0] if parsed.task else None)
    assert value_of(words, "--seed", ["--json", "--quiet"]) == (parsed.seed[-1] if parsed.seed else None)


def test_files_and_the_task_are_taken_out_and_all_else_is_left_in_order() -> None:
    words = ["--config=a", "--seed", "-3", "copy", "--resume", "r", "x", "--config", "b", "--json"]
    left = ["--seed", "-3", "--resume", "r", "x", "--json"]
    assert scan(words, ["--json"]) == CommandLine("copy", ["a", "b"], "r", left)


@pytest.mark.parametrize("words", [["copy", "--config"], ["copy", "--config", "--json"]])
def test_an_option_without_its_value_is_left_for_the_parser(words: list[str]) -> None:
    assert scan(words, ["--json"]) == CommandLine("copy", [], None, words[1:])


@pytest.mark.parametrize("task", [None, *TASKS])
def test_flags_are_those_of_the_parser(task: str | None) -> None:
    assert complaints.flag_names(train_parser(task)) == set(FLAGS)


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "train"])
def test_a_value_behind_any_flag_is_found(name: str) -> None:
    parser = import_module(f"steadyrnn.cli.{COMMANDS[name].module}").parser()
    for flag in complaints.flag_names(parser):
        assert value_of([flag, "--out", "x"], "--out", complaints.flag_names(parser)) == "x"


def test_a_command_line_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = []
    real = argparse.ArgumentParser._parse_known_args

    def count(self: argparse.ArgumentParser, *args: object, **kwargs: object) -> object:
        parsed.append(self)
        return real(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(argparse.ArgumentParser, "_parse_known_args", count)
    read(["addition", "--model", "lstm", "--seed", "3"])
    assert len(parsed) == 1


def test_settings_of_several_files_add_up(tmp_path: Path) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text("task: {name: copy, delay: 7}\ntrain: {seed: 1, steps: 5}\n", encoding="utf-8")
    second.write_text("train: {seed: 2}\n", encoding="utf-8")
    asked = read(["--config", str(first), "--config", str(second)]).configuration
    assert (asked.task_name, asked.task.delay) == ("copy", 7)  # type: ignore[attr-defined]
    assert (asked.train.seed, asked.train.steps) == (2, 5)
