"""Bars, lines, silence."""

import io
import sys
import time

import pytest

from steadyrnn.errors import ArgumentError
from steadyrnn.train import progress as module
from steadyrnn.train.progress import Bar, Lines, Silent, make_progress


class Clock:
    """A clock that a test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_come_now_and_then_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, file = Clock(monkeypatch), io.StringIO()
    lines = Lines(file, seconds=10.0)
    lines.begin(total=1000, done=100)
    for step in range(101, 401):
        clock.now += 0.125
        lines.update(step, {"loss": 1 / step, "examples/s": 1280})
    lines.end()
    text = file.getvalue().splitlines()
    assert [line.split()[1] for line in text] == ["180/1000", "260/1000", "340/1000", "400/1000"]
    assert text[0] == "step 180/1000  loss 0.005556  examples/s 1280  1:42 left"


def test_the_last_line_is_not_written_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    file = io.StringIO()
    lines = Lines(file, seconds=0.0)
    lines.begin(total=1, done=0)
    lines.update(1, {})
    lines.end()
    lines.end()
    assert len(file.getvalue().splitlines()) == 1


def test_a_bar_shows_numbers_and_is_drawn_a_few_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    clock, file = Clock(monkeypatch), Terminal()
    monkeypatch.setattr(sys, "stderr", file)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    bar = Bar()
    drawn = []
    refresh = bar._bar.refresh
    monkeypatch.setattr(bar._bar, "refresh", lambda: (drawn.append(clock.now), refresh())[1])
    bar.begin(total=1000, done=0)
    before = len(drawn)
    for step in range(1, 1001):
        clock.now += 0.01
        bar.update(step, {"loss": 0.125, "examples/s": 1280})
    assert len(drawn) - before <= 41  # ten seconds
    bar.end()
    assert "1000/1000" in file.getvalue()
    assert "loss 0.125" in file.getvalue()


@pytest.mark.parametrize(("terminal", "rich", "kind"), [(True, True, Bar), (True, False, Lines), (False, True, Lines)])
def test_auto_chooses_a_bar_on_a_terminal_that_rich_can_draw_on(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, rich: bool, kind: type
) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal() if terminal else io.StringIO())
    monkeypatch.setattr(module, "find_spec", lambda name: object() if rich else None)
    assert type(make_progress()) is kind


def test_silence_can_be_had() -> None:
    assert type(make_progress("silent")) is Silent


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ArgumentError, match="`kind` must be one of auto, bar, lines, silent"):
        make_progress("loud")


def test_a_bar_counts_to_another_total(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    file = Terminal()
    monkeypatch.setattr(sys, "stderr", file)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    bar = Bar()
    bar.begin(total=1000, done=0)
    bar.set_total(600)
    bar.update(600, {})
    bar.end()
    assert "600/600" in file.getvalue()
