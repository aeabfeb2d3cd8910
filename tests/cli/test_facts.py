"""Facts of a run: any altered digit is noticed, and a run on data of one's own does not go on without them."""

import json
from pathlib import Path

import pytest

from steadyrnn.jobs.facts_file import FACTS, read_choices, read_facts
from steadyrnn.runs.folder import Run
from tests.cli.program import Program
from tests.cli.series_files import QUICK, WAVES, waves


@pytest.fixture
def run(program: Program) -> Path:
    waves()
    done = program("train", *WAVES, *QUICK, "--json")
    assert done.status == 0, done.err
    return Path(done.json["run"])


def test_facts_come_back(run: Path) -> None:
    stored = json.loads((run / FACTS).read_text())
    assert read_facts(Run.open(run)) == {name: value for name, value in stored.items() if name != "sha256"}
    assert [*read_choices(Run.open(run))] == ["model_choice"]


def test_an_altered_digit_is_noticed(run: Path, program: Program) -> None:
    waves("new.csv", seed=1)
    assert program("eval", str(run), "--data", "new.csv").status == 0
    text = (run / FACTS).read_text()
    start = text.index('"mean"')
    digits = [place for place in range(start, start + 80) if text[place].isdigit()]
    assert len(digits) > 10
    for place in digits[::4]:
        (run / FACTS).write_text(text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1 :])
        for words in (("eval", str(run), "--data", "new.csv"), ("eval", str(run)), ("train", "--resume", str(run))):
            done = program(*words)
            assert (done.status, done.out) == (1, "")
            assert "facts.json` was altered" in done.err


@pytest.mark.parametrize("content", [None, "", "{", "[]"])
def test_a_run_on_data_of_ones_own_needs_them(run: Path, program: Program, content: str | None) -> None:
    (run / FACTS).unlink()
    if content is not None:
        (run / FACTS).write_text(content)
    for words in (("eval", str(run)), ("train", "--resume", str(run))):
        done = program(*words)
        assert (done.status, done.out) == (1, ""), done
        assert "facts.json" in done.err


def test_those_of_an_earlier_release_have_no_checksum(run: Path, program: Program) -> None:
    facts = json.loads((run / FACTS).read_text())
    del facts["sha256"]
    (run / FACTS).write_text(json.dumps(facts))
    assert program("eval", str(run)).status == 0
