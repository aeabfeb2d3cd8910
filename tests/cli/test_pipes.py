"""A program whose output nobody reads any more is silent, whatever it was about to print."""

import io
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from steadyrnn.cli.commands import COMMANDS
from steadyrnn.cli.main import main
from tests.cli.program import QUICK

NOT_READ = 141
WORK = {
    "train": ["addition", *QUICK],
    "compare": ["addition", "--models=gru", *QUICK],
    "sweep": ["{sweep}", "--jobs", "1", *QUICK],
    "eval": ["{runs}/addition/contractive"],
    "certify": ["{runs}/addition/contractive", "--input-bound", "2"],
    "convert": ["{runs}/addition/contractive", "--to", "torch"],
    "report": ["{runs}/addition/contractive"],
    "reproduce": ["--list"],
    "data": ["list"],
    "bench": ["rnn", "--steps", "5", "--batch", "2", "--width", "4", "--inputs", "2", "--pairs", "1"],
    "completion": ["bash"],
}
"""Words with which every command prints something."""


def closed_pipe() -> io.TextIOWrapper:
    """Return a stream into a pipe whose other end is closed."""
    read, write = os.pipe()
    os.close(read)
    return open(write, "w", encoding="utf-8")


def unread(stream: str, words: list[str]) -> int:
    """Run the program with nobody reading what it prints on ``stdout`` or ``stderr``."""
    with pytest.MonkeyPatch.context() as patch, closed_pipe() as pipe:  # closing flushes, and raises where text is left
        patch.setattr(sys, stream, pipe)
        return main(words)


def test_every_command_is_among_those_tried() -> None:
    assert [*WORK] == [*COMMANDS]


@pytest.mark.parametrize("form", ["plain", "json", "quiet"])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_whose_output_is_not_read_ends_silently(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, form: str
) -> None:
    if form == "json" and name == "completion":
        pytest.skip("`completion` prints a script and nothing for a machine")
    if form == "quiet" and name not in ("train", "compare", "sweep", "convert", "report"):
        pytest.skip("the command exists to print, and has no --quiet")
    sweep = tmp_path / "sweep.yaml"
    sweep.write_text("task: addition\nmodels: [gru]\ngrid: {train.optimizer.lr: [0.01]}\n")
    words = [name, *(word.format(runs=runs, sweep=sweep) for word in WORK[name]), *([] if form == "plain" else [f"--{form}"])]
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    assert unread("stdout", words) == NOT_READ
    lines = [
        line
        for line in capsys.readouterr().err.splitlines()
        if not line.startswith(("step ", "run ", "sweep ", "trial ", "- "))
    ]
    assert lines == []


@pytest.mark.parametrize("words", [["--help"], ["--version"], *([name, "--help"] for name in COMMANDS)])
def test_help_that_is_not_read_ends_silently(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert unread("stdout", words) == NOT_READ
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("words", [["trian"], ["eval", "nowhere"], ["eval", "--bogus"], ["train", "additon"], []])
def test_a_complaint_that_is_not_read_ends_silently(words: list[str]) -> None:
    assert unread("stderr", words) == NOT_READ


def test_progress_that_is_not_read_ends_silently(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert unread("stderr", ["train", "addition", *QUICK, "--json"]) == NOT_READ


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["data", "list"], ["trian"]])
def test_the_interpreter_does_not_complain_either(words: list[str]) -> None:
    with closed_pipe() as pipe:
        out = pipe if words != ["trian"] else subprocess.PIPE
        err = subprocess.PIPE if words != ["trian"] else pipe
        done = subprocess.run([sys.executable, "-m", "steadyrnn", *words], stdout=out, stderr=err, check=False)
    assert done.returncode == NOT_READ
    assert not done.stderr
    assert not done.stdout


@pytest.mark.parametrize("words", [["--help"], ["data", "list"], ["completion", "bash"]])
def test_a_program_without_stdout_runs(words: list[str]) -> None:
    close = "import os, sys; os.close(1); os.execv(sys.executable, [sys.executable, '-m', 'steadyrnn', *sys.argv[1:]])"
    done = subprocess.run([sys.executable, "-c", close, *words], stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_was_closed_before_the_start_changes_nothing(tmp_path: Path, closed: str) -> None:
    words = ["train", "addition", *QUICK, "--json", "--out", "runs"]
    line = shlex.join([sys.executable, "-m", "steadyrnn", *words])
    done = subprocess.run(["sh", "-c", f"{line} {closed}"], cwd=tmp_path, stdout=subprocess.PIPE, check=False)
    assert done.returncode == 0
    if ">&- " not in closed:
        assert "result" in json.loads(done.stdout)
    (run,) = (tmp_path / "runs" / "addition").glob("*/*")
    assert (run / "certificate.json").is_file()
    assert (run / "lock").read_bytes() == b""


def test_nothing_follows_a_report_on_stdout(runs: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "steadyrnn", "report", str(runs), "--out", "/dev/stdout"]
    with (tmp_path / "page.html").open("wb") as page:
        subprocess.run(words, stdout=page, check=True)
    assert (tmp_path / "page.html").read_text(encoding="utf-8").rstrip().endswith("</html>")
    piped = subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout
    assert piped.rstrip().endswith(b"</html>")


def test_a_report_is_not_written_to_a_file_named_like_stdout(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(runs), "--out", "-"]) == 2
    assert "/dev/stdout" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
