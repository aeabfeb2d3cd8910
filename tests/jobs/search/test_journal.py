"""The journal: what killed writers, full disks and strangers leave in it is put right or refused, and never believed."""

import errno
import io
import os
from pathlib import Path
from typing import Any

import pytest

from steadyrnn.errors import RunError
from steadyrnn.jobs.search import journal as module
from steadyrnn.jobs.search.folder import TrialRecord
from steadyrnn.jobs.search.journal import JOURNAL, open_journal, repair_journal
from steadyrnn.jobs.search.study import Studies
from tests.jobs.search.sweeps import LR, make_plan, operations

PLAN = make_plan(models=("gru", "lstm"))


@pytest.fixture
def studies(tmp_path: Path) -> Studies:
    """Two studies in which four trials were asked for and two have ended."""
    made = Studies(tmp_path, PLAN, higher=False)
    for entry in PLAN.entries()[:4]:
        known = made.ask(entry)
        if entry.number % 2 == 0:
            made.tell(known, TrialRecord(entry.number, entry.model, known.settings, "finished", 0.5 + entry.number))
    return made


def test_what_was_told_is_known_again(tmp_path: Path, studies: Studies) -> None:
    known = Studies(tmp_path, PLAN, higher=False).known()
    assert {number: trial.state for number, trial in known.items()} == {
        0: "finished",
        1: "running",
        2: "finished",
        3: "running",
    }
    assert (known[2].model, known[2].value) == ("gru", 2.5)
    assert known == studies.known()


def test_opening_and_reading_change_nothing(tmp_path: Path, studies: Studies) -> None:
    before = (tmp_path / JOURNAL).read_bytes()
    assert not repair_journal(tmp_path)
    Studies(tmp_path, PLAN, higher=False).known()
    assert (tmp_path / JOURNAL).read_bytes() == before


def test_a_half_written_last_line_is_cut_off_at_any_byte(tmp_path: Path, studies: Studies) -> None:
    path = tmp_path / JOURNAL
    whole = path.read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    for size in range(last + 1, len(whole)):
        path.write_bytes(whole[:size])
        assert repair_journal(tmp_path)
        assert path.read_bytes() == whole[:last]
    assert set(Studies(tmp_path, PLAN, higher=False).known()) == {0, 1, 2}  # the last line was a setting of trial 3


def test_a_trial_that_was_cut_off_while_it_was_drawn_is_drawn_as_it_was(tmp_path: Path, studies: Studies) -> None:
    drawn = studies.known()[3].settings
    path = tmp_path / JOURNAL
    path.write_bytes(path.read_bytes()[:-5])
    repair_journal(tmp_path)
    again = Studies(tmp_path, PLAN, higher=False)
    assert 3 not in again.known()
    again.close_cut_off()
    assert again.ask(PLAN.entries()[3]).settings == drawn
    assert Studies(tmp_path, PLAN, higher=False).known()[3].state == "running"


def test_a_half_line_does_not_spoil_the_next_one(tmp_path: Path, studies: Studies) -> None:
    with (tmp_path / JOURNAL).open("ab") as file:
        file.write(b'{"op_code": 4, "worker')
    studies.ask(PLAN.entries()[4])
    assert set(Studies(tmp_path, PLAN, higher=False).known()) == {0, 1, 2, 3, 4}
    operations(tmp_path)


class _Full(io.FileIO):
    """A file on a disk that has a few bytes left."""

    def write(self, data: Any) -> int:
        super().write(bytes(data)[:7])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_gets_a_sentence_and_loses_nothing(
    tmp_path: Path, studies: Studies, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (tmp_path / JOURNAL).read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(module, "open", lambda path, mode, buffering: _Full(path, mode), raising=False)
        with pytest.raises(RunError, match=r"journal\.log` could not be written: No space left on device"):
            studies.ask(PLAN.entries()[4])
    assert (tmp_path / JOURNAL).read_bytes() == before
    assert not (tmp_path / f"{JOURNAL}.lock").exists()
    again = Studies(tmp_path, PLAN, higher=False)
    assert set(again.known()) == {0, 1, 2, 3}
    again.ask(PLAN.entries()[4])


@pytest.mark.parametrize(
    "line",
    [
        b"not json", b"[1]", b'{"op_code": 99, "worker_id": "a"}', b'{"op_code": "4", "worker_id": "a"}', b"{}", b"",
        b'{"op_code": 5, "worker_id": "a"}',
        b'{"op_code": 4, "worker_id": "a", "study_id": 0, "state": "x"}',
        b'{"op_code": 0, "worker_id": "a", "study_name": ["gru"], "directions": 3}',
        b'{"op_code": 4, "worker_id": "a", "study_id": 0, "user_attrs": ' + b"[" * 200 + b"]" * 200 + b"}",
    ],
)  # fmt: skip
def test_a_damaged_line_is_refused(tmp_path: Path, studies: Studies, line: bytes) -> None:
    path = tmp_path / JOURNAL
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], line + b"\n", *lines[3:]]))
    with pytest.raises(RunError, match=r"journal\.log` "):
        Studies(tmp_path, PLAN, higher=False).known()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"user_attrs": {"number": 3}', b'"user_attrs": {"number": 2}'),
        (b'"user_attrs": {"number": 3}', b'"user_attrs": {"number": 4000}'),
        (b'"user_attrs": {"number": 3}', b'"user_attrs": {"number": "3"}'),
        (b'"user_attrs": {"number": 3}', b'"user_attrs": {}'),
        (b'"study_name": "lstm"', b'"study_name": "rnn"'),
        (b'"directions": [1]', b'"directions": [2]'),
    ],
)
def test_a_journal_of_another_sweep_is_refused(tmp_path: Path, studies: Studies, before: bytes, after: bytes) -> None:
    path = tmp_path / JOURNAL
    data = path.read_bytes()
    assert before in data
    path.write_bytes(data.replace(before, after))
    with pytest.raises(RunError, match=r"journal\.log` "):
        Studies(tmp_path, PLAN, higher=False).known()


def test_a_link_a_pipe_and_a_huge_file_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, other = tmp_path / JOURNAL, tmp_path / "other"
    other.write_bytes(b"")
    path.symlink_to(other)
    for refuse in (open_journal, repair_journal):
        with pytest.raises(RunError, match="a link"):
            refuse(tmp_path)
    path.unlink()
    os.mkfifo(path)
    for refuse in (open_journal, repair_journal):
        with pytest.raises(RunError, match="a pipe"):
            refuse(tmp_path)
    path.unlink()
    with path.open("wb") as file:
        file.truncate(1 << 40)
    for refuse in (open_journal, repair_journal):
        with pytest.raises(RunError, match="at most"):
            refuse(tmp_path)


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_settings_depend_on_seed_and_number_and_not_on_when_a_trial_ends(tmp_path: Path, sampler: str) -> None:
    plan = make_plan(sampler=sampler, trials=6)
    drawn = []
    for name, at_once in (("one", 1), ("three", 3)):
        (tmp_path / name).mkdir()
        made, found = Studies(tmp_path / name, plan, higher=False), dict[int, float]()
        entries = list(plan.entries())
        for start in range(0, len(entries), at_once):
            running = [made.ask(entry) for entry in entries[start : start + at_once]]
            for known in reversed(running):
                found[known.number] = known.settings[LR]
                made.tell(known, TrialRecord(known.number, "gru", known.settings, "finished", known.settings[LR]))
        drawn.append([found[number] for number in range(6)])
    assert drawn[0] == drawn[1]  # of tpe too: its first ten trials are random
    assert len({*drawn[0]}) == 6


def test_a_search_that_goes_on_draws_as_one_that_was_not_interrupted(tmp_path: Path) -> None:
    plan = make_plan(sampler="tpe", trials=14)
    drawn = []
    for name, again in (("whole", False), ("stopped", True)):
        (tmp_path / name).mkdir()
        made, found = Studies(tmp_path / name, plan, higher=False), []
        for entry in plan.entries():
            made = Studies(tmp_path / name, plan, higher=False) if again else made
            known = made.ask(entry)
            found.append(known.settings[LR])
            made.tell(known, TrialRecord(entry.number, "gru", known.settings, "finished", abs(known.settings[LR] - 0.01)))
        drawn.append(found)
    assert drawn[0] == drawn[1]
    assert len({*drawn[0]}) == 14
