"""The program's front: help without torch, exit statuses, one line for an error."""

import io
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from steadyrnn.cli import train
from steadyrnn.cli.commands import COMMANDS
from steadyrnn.cli.main import main
from steadyrnn.errors import CheckpointError, DataError
from steadyrnn.train.signals import Interrupted
from tests.cli.program import QUICK, Program

DRIVER = """
import contextlib, io, sys
from steadyrnn.cli.main import main
for words in {lines!r}:
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(words) == 0, words
    assert not {{"torch", "optuna", "submitit"}} & {{*sys.modules}}, words
"""


def test_help_and_listings_do_not_import_torch() -> None:
    lines = [["--help"], ["--version"], *([name, "--help"] for name in COMMANDS)]
    lines += [["train", "addition", "--model", "ornn", "--help"], ["train", "addition", "--print_config"], ["data", "list"]]
    done = subprocess.run([sys.executable, "-c", DRIVER.format(lines=lines)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_first_page_does_without_the_parser() -> None:
    code = "import sys; from steadyrnn.cli.main import main; main(['--help']); sys.exit('jsonargparse' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert all(name in done.stdout for name in COMMANDS)


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "steadyrnn", "trian"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "steadyrnn: there is no command 'trian'. Did you mean `train`?\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_ends_with_examples(program: Program, name: str) -> None:
    done = program(name, "--help")
    assert done.status == 0
    lines = done.out.split("Examples:\n")[1].splitlines()
    assert lines
    assert all(line.startswith("  steadyrnn ") for line in lines)


def test_a_program_that_is_asked_to_end_saves_and_can_go_on(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "steadyrnn", "train", "addition", "--threads", "1", *QUICK, "--quiet"]
    words += ["--train.steps", "1000000", "--train.log_every", "5", "--train.validate_every", "1000000"]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        while process.poll() is None and not any('"train"' in file.read_text() for file in tmp_path.rglob("metrics.jsonl")):
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out) == (143, "")
    assert err.startswith("steadyrnn: Stopped by SIGTERM after ")
    (file,) = tmp_path.rglob("metrics.jsonl")
    assert '"interrupted"' in file.read_text().splitlines()[-1]
    assert list(tmp_path.rglob("checkpoints/last/checkpoint.json"))


def test_no_command_is_a_misuse_that_shows_the_first_page(program: Program) -> None:
    done = program()
    assert (done.status, done.out) == (2, "")
    assert "commands:" in done.err


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["eval", "nowhere"], 1, "`nowhere` is not a folder"),
        (["train", "addition", "--model.bound", "1", *QUICK], 1, "`bound` is no option of the model 'spectral'"),
        (["train", "addition", "--train.step", "3"], 2, "--train.step"),
        (["train", "addition", "--train.steps", "many"], 2, "train.steps"),
        (["train", "additon"], 2, "Did you mean `addition`?"),
        (["train", "addition", "--model", "lsmt"], 2, "Did you mean `lstm`?"),
        (["train"], 2, "which task?"),
        (["train", "addition", "--config", "nowhere.yaml"], 2, "there is no file 'nowhere.yaml'"),
        (["train", "addition", *QUICK, "--device", "tpu"], 1, "`device` must be"),
        (["train", "addition", *QUICK, "--threads", "0"], 1, "`threads` must be"),
        (["train", "addition", *QUICK, "--model.width", "-3"], 1, "`width` must be"),
        (["train", "addition", *QUICK, "--model", "rnn", "--model.width", "-3"], 1, "`width` must be"),
        (["train", "addition", *QUICK, "--threads", "100000000000"], 1, "`threads` must be at most 1,024"),
        (["bench", "rnn", "--threads", "100000000000"], 2, "--threads must be from 1 to 1,024"),
        (["bench", "rnn", "--steps", "1" + 30 * "0"], 2, "--steps must be from 1 to"),
        (["train", "addition", *QUICK, "--train.probe.names", "[spectra]"], 1, "`probe.names` must be one of"),
        (["eval", "nowhere", "--threads", "0"], 2, "--threads must be from 1 to 1,024"),
        (["eval", "nowhere", "--batch-size", "0"], 2, "--batch-size must be from 1 to"),
        (["eval", "nowhere", "--generate", "0"], 2, "--generate must be from 1 to"),
        (["eval", "nowhere", "--prompt", "the"], 2, "give --generate too"),
        (["report", "nowhere", "--out", "."], 2, "--out must name a file"),
        (["certify", ".", "--nonlinearity", "relu"], 1, "`--nonlinearity` belongs to a FILE"),
        (["train", "addition", *QUICK, "--train.optimizer.name", "adan"], 1, "`optimizer.name` must be"),
        (["convert", "runs"], 2, "--to"),
        (["data", "look"], 2, "ACTION must be one of describe, list, check"),
        (["completion", "fish"], 2, "SHELL must be one of bash, zsh"),
        (["train", "mnist", "--data-dir", "nowhere"], 3, "no such folder"),
    ],
)
def test_a_mistake_has_its_status_and_a_line_on_stderr(program: Program, words: list[str], status: int, message: str) -> None:
    done = program(*words)
    assert (done.status, done.out) == (status, "")
    assert message in done.err
    assert "Traceback" not in done.err
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["train", "addition", *QUICK, "--out", ""],
        ["train", "addition", *QUICK, "--out="],
        ["train", "--resume", ""],
        ["eval", ""],
        ["eval", ".", "--checkpoint", ""],
        ["certify", ""],
        ["certify", ".", "--checkpoint", ""],
        ["convert", "", "--to", "torch"],
        ["convert", ".", "--to", "torch", "--out", ""],
        ["convert", ".", "--to", "torch", "--checkpoint", ""],
        ["report", ""],
        ["report", ".", ""],
        ["report", ".", "--out", ""],
        ["bench", "--calibrate", "--out", ""],
    ],
    ids=" ".join,
)
def test_an_empty_path_is_not_the_current_folder(program: Program, words: list[str]) -> None:
    done = program(*words)
    assert (done.status, done.out) == (2, "")
    assert re.search(r"(--out|--resume|--checkpoint|RUN|RUN\|FILE) must not be empty$", done.err.strip())
    assert not [*Path().iterdir()]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (CheckpointError("damaged"), 1),
        (DataError("missing"), 3),
        (OSError(28, "No space left on device"), 1),
        (Interrupted(2, 5), 130),
        (Interrupted(15, 5), 143),
        (KeyboardInterrupt(), 130),
        (ModuleNotFoundError("No module named 'rich'", name="rich"), 1),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."), 1),
        (MemoryError(), 1),
    ],
)
def test_an_error_becomes_a_status(
    program: Program, monkeypatch: pytest.MonkeyPatch, error: BaseException, status: int
) -> None:
    def fail(argv: object) -> int:
        raise error

    monkeypatch.setattr(train, "main", fail)
    done = program("train", "addition")
    assert done.status == status
    assert done.err.startswith("steadyrnn: ")
    assert len(done.err.splitlines()) == 1


class Full(io.StringIO):
    """A file on a full disk."""

    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def test_a_full_disk_behind_stdout_is_a_line_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdout", Full())
    assert main(["--help"]) == 1
    assert capsys.readouterr().err == "steadyrnn: [Errno 28] No space left on device\n"


def test_debug_shows_where_an_error_came_from(program: Program) -> None:
    with pytest.raises(DataError):
        program("train", "mnist", "--data-dir", "nowhere", "--debug")


def test_a_fault_of_ours_is_not_hidden(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "main", lambda argv: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        program("train", "addition")


@pytest.mark.parametrize("number", [2**63 - 1, 2**64 - 1])
@pytest.mark.parametrize(
    "setting", ["addition --task.curriculum none --task.length", "copy --task.delay", "stable-system --task.length"]
)
def test_a_number_beyond_what_torch_counts_to_gets_a_sentence(program: Program, setting: str, number: int) -> None:
    done = program("train", *setting.split(), str(number), "--train.steps", "2", "--train.device", "cpu", "--quiet")
    assert (done.status, done.out) == (1, "")
    assert "larger than torch can compute with" in done.err
    assert done.err.count("\n") == 1
