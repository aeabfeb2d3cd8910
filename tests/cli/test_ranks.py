"""The program under torchrun: one voice, and no command but ``train``."""

import subprocess
import sys
from pathlib import Path

import pytest

from steadyrnn.cli.main import main
from steadyrnn.cli.ranks import rank_count
from steadyrnn.errors import DataError, RanksError, SteadyError
from steadyrnn.runs.folder import Run
from steadyrnn.train.ranks import is_launched
from tests.train.rank_group import rank_variables

Capture = pytest.CaptureFixture[str]


@pytest.fixture(params=[0, 1])
def rank(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """This process as one of two."""
    number: int = request.param
    for name, value in rank_variables(number, 2, 1).items():
        monkeypatch.setenv(name, value)
    return number


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"])
def test_the_program_takes_itself_for_a_rank_where_the_trainer_does(
    rank: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (rank_count(), is_launched()) == (2, True)
    monkeypatch.delenv(name)
    assert (rank_count(), is_launched()) == (1, False)


REFUSED = {
    ("eval", "runs"): "`steadyrnn eval` runs in one process, but torchrun has started 2",
    ("compare", "addition"): "`steadyrnn compare` runs in one process, but torchrun has started 2",
    ("sweep", "sweep.yaml"): "`steadyrnn sweep` runs in one process, but torchrun has started 2",
    ("train", "addition", "--seeds", "0..2"): "Several seeds cannot be run by several ranks, but there are 2",
    ("train", "addition", "--models", "gru,lstm"): "A comparison of networks cannot be run by several ranks",
    ("train", "additon"): "there is no task 'additon'",
    ("train", "addition", "--train.setps", "3"): "--train.setps",
}


@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_what_ranks_cannot_do_is_refused_by_one_of_them(
    rank: int, capsys: Capture, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) in (1, 2)
    out, err = capsys.readouterr()
    assert out == ""
    assert (REFUSED[words] in err) if rank == 0 else err == ""
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("error", [DataError("gone"), RanksError("lost")])
def test_an_error_of_one_rank_is_printed_unless_rank_0_tells_it(
    rank: int, capsys: Capture, error: SteadyError, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    error.__dict__["told"] = told and rank > 0

    def fail(words: list[str]) -> int:
        raise error

    monkeypatch.setattr("steadyrnn.cli.train.main", fail)
    assert main(["train", "addition"]) == (3 if isinstance(error, DataError) else 1)
    whose = " (rank 1)" if rank else ""
    assert capsys.readouterr().err == ("" if told and rank else f"steadyrnn{whose}: {error}\n")


@pytest.mark.slow
def test_torchrun_trains_one_network_and_prints_once(tmp_path: Path) -> None:
    words = ["train", "addition", "--model.width", "6", "--task.length", "10", "--train.steps", "4", "--device", "cpu"]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "steadyrnn"]
    done = subprocess.run([*launcher, *words], cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    (folder,) = (path.parent for path in tmp_path.rglob("config.json"))
    assert done.stdout.count("next: steadyrnn report") == 1
    assert done.stderr.count("step 4/4") == 1
    environment = Run.open(folder).environment()
    assert environment is not None
    assert environment["ranks"] == 2
