"""Text from files and names of folders reaches a terminal without what the terminal would obey, and a page without markup."""

import io
import json
import os
import shutil
import unicodedata
from pathlib import Path

import pytest

from steadyrnn import errors
from steadyrnn.cli.main import main
from steadyrnn.cli.output import Output
from steadyrnn.errors import SteadyError, printable
from tests.safety.run_folders import make_run

HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202eevil\u2066\u200b\x7f\r\x08\udcff[red]x[/red]\x00"
NAME = HOSTILE.replace("\x00", "").replace("/", "")


def obeyed(text: str) -> list[str]:
    """Return the characters of a text that a terminal acts upon, or that cannot be written to it."""
    return [letter for letter in text if letter != "\n" and unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp")]


def test_the_text_has_what_it_is_about() -> None:
    assert len(obeyed(HOSTILE)) >= 10


@pytest.mark.parametrize("name", [name for name in errors.__all__ if name.endswith("Error")])
def test_every_error_is_safe_to_print(name: str) -> None:
    error: SteadyError = getattr(errors, name)(f"`{HOSTILE}` is wrong.")
    assert not obeyed(str(error))
    assert "\\x1b[2J" in str(error)


def test_an_error_that_quotes_a_whole_file_is_cut_in_the_middle() -> None:
    text = str(SteadyError("the file `a` holds " + "x" * 10**7 + ", which is wrong"))
    assert len(text) < 2000
    assert text.startswith("the file `a` holds x")
    assert text.endswith("x, which is wrong")


def test_plain_text_of_any_language_stays_as_it_is() -> None:
    text = "naïve 漢字 עברית 1 ≤ 2 [red] `a`\nsecond line"
    assert printable(text) == text


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("terminal") / "runs")


def hostile_everywhere(value: object) -> object:
    """Return a JSON value with hostile text in every text of it."""
    if isinstance(value, dict):
        return {f"{key}{HOSTILE}" if key not in KEPT else key: hostile_everywhere(item) for key, item in value.items()}
    if isinstance(value, list):
        return [hostile_everywhere(item) for item in value]
    return f"{value}{HOSTILE}" if isinstance(value, str) else value


KEPT = {"task", "model", "train", "name", "format", "command", "kind", "step", "certificate", "input_bound", "value", "source",
        "reason", "metric", "interface", "baselines"}  # fmt: skip
COMMANDS: dict[str, list[str]] = {
    "resume": ["train", "--resume", "RUN"],
    "config": ["train", "--config", "RUN/config.json"],
    "eval": ["eval", "RUN"],
    "certify": ["certify", "RUN"],
    "recheck": ["certify", "RUN", "--recheck"],
    "weights": ["certify", "RUN/checkpoints/best/checkpoint.json"],
    "convert": ["convert", "RUN", "--to", "torch", "--out", "RUN/out"],
    "report": ["report", "RUN", "--out", "RUN/page.html"],
    "data": ["data", "list", "--data-dir", "RUN"],
    "data check": ["data", "check", "mnist", "--data-dir", "RUN"],
    "unknown": ["train", "addition", "--train.steps", HOSTILE.replace("\x00", "")],
    "command": [NAME],
}
FILES = ("config.json", "metrics.jsonl", "facts.json", "certificate.json", "environment.json", "none")


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_hands_a_files_text_to_the_terminal(
    finished: Path, tmp_path: Path, command: str, file: str, capfd: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / NAME
    shutil.copytree(finished, run)
    if file == "metrics.jsonl":
        lines = [json.dumps(hostile_everywhere(json.loads(line))) for line in (run / file).read_text().splitlines()]
        (run / file).write_text("\n".join([*lines, HOSTILE.replace("\udcff", ""), *lines, ""]))
    elif file != "none":
        (run / file).write_text(json.dumps(hostile_everywhere(json.loads((run / file).read_text()))))
    capfd.readouterr()
    main([word.replace("RUN", os.fspath(run)) for word in COMMANDS[command]])
    said = capfd.readouterr()
    assert said.out + said.err
    assert not obeyed(said.out + said.err)
    assert len(said.out + said.err) < 30_000


def test_markup_of_the_terminal_library_is_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    Output().table("[red]title[/red]", ("a", "b"), [["[bold]x[/bold]", "[link=http://a]y[/link]"]])
    Output().text("[red]text[/red]")
    said = capsys.readouterr().out
    assert all(text in said for text in ("[red]title[/red]", "[bold]x[/bold]", "[link=http://a]y[/link]", "[red]text[/red]"))


def test_the_bar_shows_brackets_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    progress = pytest.importorskip("steadyrnn.train.progress")
    bar = progress.Bar()
    bar._bar.live.console.file = said = io.StringIO()
    bar.begin(10, 0)
    bar.update(5, {"[red]loss[/red]": 0.5})
    bar.end()
    assert "[red]loss[/red]" in said.getvalue()


@pytest.mark.parametrize("file", FILES[:-1])
def test_a_page_has_no_markup_of_a_file(finished: Path, tmp_path: Path, file: str) -> None:
    run = tmp_path / "<img src=x onerror=alert(1)>"
    shutil.copytree(finished, run)
    evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 7*7 }}\ud800\x1b[2J\u202e\x9b"
    text = (run / file).read_text()
    for word in ("addition", "rnn", "adam", "cosine", "loss", "finished", "best", "may", "Linux"):
        text = text.replace(f'"{word}"', json.dumps(word + evil))
    (run / file).write_text(text)
    assert main(["report", os.fspath(run), "--out", os.fspath(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert all(letter not in page for letter in ("\x1b", "\u202e", "\x9b"))  # a page may go to /dev/stdout
    assert "<script" not in page
    assert "<img" not in page
