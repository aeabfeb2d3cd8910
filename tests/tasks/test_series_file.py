"""Files of the UCR archive: what is read, and what is refused."""

from pathlib import Path

import pytest
import torch

from steadyrnn.errors import DataError
from steadyrnn.tasks.series_file import read_series

WHERE = Path("ucr") / "A_TRAIN.tsv"
GOOD = b"1\t0.5\t-2e-1\n-1\t3\t4\n"


def read(data: bytes) -> tuple[torch.Tensor, torch.Tensor]:
    return read_series(data, WHERE, rows=2, length=2, labels=(-1, 1))


def test_labels_become_classes_in_the_order_given() -> None:
    series, classes = read(GOOD)
    assert series.tolist() == [[0.5, pytest.approx(-0.2)], [3.0, 4.0]]
    assert classes.tolist() == [1, 0]
    assert series.dtype == torch.float32


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"\n\n", "empty"),
        (GOOD.replace(b"3", b"NaN"), "line 2 must hold finite numbers, but number 1 is nan"),
        (GOOD.replace(b"4", b"inf"), "number 2 is inf"),
        (GOOD.replace(b"4", b"4e38"), "float32"),
        (GOOD.replace(b"-1\t3", b"nan\t3"), "0 is the label"),
        (GOOD.replace(b"\t4", b""), "line 2 must have a label and 2 numbers, but has 2 fields"),
        (GOOD.replace(b"\t4", b"\t4\t5"), "has 4 fields"),
        (GOOD.replace(b"3", b"three"), "must hold numbers"),
        (GOOD.replace(b"3", b""), "must hold numbers"),
        (GOOD.replace(b"-1\t3", b"2\t3"), "a label among -1, 1, but has 2"),
        (GOOD.replace(b"-1\t3", b"0.5\t3"), "but has 0.5"),
        (GOOD.replace(b"\n", b"\r\n"), "has CR"),
        (GOOD.replace(b"\t", b","), "release of 2015"),
        (GOOD[:-1], "last line is cut off"),
        (GOOD + b"1\t0\t0\n", "2 series, but has 3"),
        (GOOD.split(b"\n")[0] + b"\n", "exchanged"),
        (GOOD.replace(b"\n", b"\n\n", 1), "2 series, but has 3"),
    ],
)
def test_a_bad_file_is_refused_with_its_path_and_the_reason(data: bytes, words: str) -> None:
    with pytest.raises(DataError, match=words) as caught:
        read(data)
    assert str(WHERE) in str(caught.value)
