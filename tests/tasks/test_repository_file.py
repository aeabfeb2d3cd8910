"""Files of the Extreme Classification Repository: what is read, and what is refused."""

from pathlib import Path

import pytest

from steadyrnn.errors import ArgumentError, DataError
from steadyrnn.tasks.repository_file import read_repository, read_split
from tests.tasks.bad_files import make_bad_file_test

WHERE = Path("mediamill") / "Mediamill_data.txt"
SIZES = (3, 4, 2)
GOOD = b"3 4 2\n0,1 0:0.5 3:1\n 1:-2\n1\n"


@pytest.mark.parametrize("data", [GOOD, GOOD.replace(b"\n", b"\r\n"), GOOD + b"\n"])
def test_rows_may_lack_labels_or_features(data: bytes) -> None:
    rows = read_repository(data, WHERE, SIZES)
    assert rows.features.tolist() == [[0.5, 0.0, 0.0, 1.0], [0.0, -2.0, 0.0, 0.0], [0.0] * 4]
    assert rows.targets.tolist() == [[1, 1], [0, 0], [0, 1]]


test_a_bad_file_is_refused_with_its_path_and_the_reason = make_bad_file_test(
    lambda data: read_repository(data, WHERE, SIZES),
    WHERE,
    GOOD,
    b"0.5",
    "label,label",
    {
        GOOD: {b"": "empty"},
        b"3 4 2": {
            b"3 4": "rows features labels",
            b"3 x 2": "rows features labels",
            b"3 4 0": "rows features labels",
            b"3 9999999999999 2": "4 features and 2 labels, but its first line says 3, 9999999999999 and 2",
        },
        b"\n1\n": {
            b"\n": "3 rows, as its first line says, but has 2",
            b"\n1": "line end",
        },
        b"0,1 ": {
            b"0,2 ": "line 2: labels must have numbers from 0 to 1",
            b"1,1 ": "each once",
            b"0,a ": "label,label",
        },
        b"3:1": {
            b"4:1": "line 2: features must have numbers from 0 to 3",
            b"0:1": "each once",
            b"3": "label,label",
            b"3:\xff": "plain text",
        },
    },
)


def test_a_split_is_a_column_of_row_numbers_from_1() -> None:
    data = b"5 1\n2 3\n"
    assert [read_split(data, WHERE, rows=5, split=split).tolist() for split in (0, 1)] == [[1, 4], [0, 2]]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"0\n1\n", "from 1 to 5"),
        (b"6\n1\n", "from 1 to 5"),
        (b"2\n2\n", "at most once"),
        (b"1 2\n3\n", "2 columns"),
        (b"1\nx\n", "whole numbers"),
        (b"1\n2", "line end"),
    ],
)
def test_a_bad_split_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(DataError, match=words):
        read_split(data, WHERE, rows=5, split=0)


@pytest.mark.parametrize("split", [-1, 2])
def test_a_split_that_is_not_there_is_named(split: int) -> None:
    with pytest.raises(ArgumentError, match="`split` must be from 0 to 1"):
        read_split(b"1 2\n", WHERE, rows=5, split=split)
