"""Which series several processes can read together: `parallel` is refused for the others."""

from collections.abc import Callable

import pytest

from steadyrnn.errors import ArgumentError
from steadyrnn.tasks.series.task import SeriesTask
from tests.tasks.series.made import classes, made, make, numbers

REFUSED: dict[str, tuple[Callable[[], SeriesTask], str]] = {
    "an answer per series": (
        lambda: make(made([9] * 20, 1, classes(20, each=False)), parallel="ranks"), "a series has one answer. Leave",
    ),
    "forecasts of windows": (lambda: make(made([300], 1), horizon=2, parallel="ranks"), "a window has one answer. Give `bptt`"),
    "ragged windows": (
        lambda: make(made([9, 5, 7] * 7, 1, numbers(147)), split="series", parallel="ranks"), "windows of one length",
    ),
    "another word": (lambda: make(made([300], 1), horizon=2, parallel="rows"), "`parallel` must be one of"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_series_that_cannot_be_shared_are_refused(name: str) -> None:
    build, sentence = REFUSED[name]
    with pytest.raises(ArgumentError, match=sentence):
        build()


def test_the_settings_say_what_ranks_share() -> None:
    shared = [make(made([300], 1), horizon=2, bptt=20, parallel=word).ranks_share for word in ("none", "ranks")]
    assert shared == ["rows", "time"]
