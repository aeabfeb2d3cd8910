"""Files of the UCR archive: what is read, and what is refused."""

from pathlib import Path

import pytest
import torch

from steadyrnn.tasks.series_file import read_series
from tests.tasks.bad_files import make_bad_file_test

WHERE = Path("ucr") / "A_TRAIN.tsv"
GOOD = b"1\t0.5\t-2e-1\n-1\t3\t4\n"


def read(data: bytes) -> tuple[torch.Tensor, torch.Tensor]:
    return read_series(data, WHERE, rows=2, length=2, labels=(-1, 1))


def test_labels_become_classes_in_the_order_given() -> None:
    series, classes = read(GOOD)
    assert series.tolist() == [[0.5, pytest.approx(-0.2)], [3.0, 4.0]]
    assert classes.tolist() == [1, 0]
    assert series.dtype == torch.float32


test_a_bad_file_is_refused_with_its_path_and_the_reason = make_bad_file_test(
    read,
    WHERE,
    GOOD,
    b"0.5",
    "must hold numbers",
    {
        GOOD: {
            b"": "empty",
            b"\n\n": "empty",
        },
        b"3": {
            b"NaN": "line 2 must hold finite numbers, but number 1 is nan",
            b"": "must hold numbers",
        },
        b"4": {b"inf": "number 2 is inf"},
        b"-1\t3": {
            b"nan\t3": "0 is the label",
            b"2\t3": "a label among -1, 1, but has 2",
            b"0.5\t3": "but has 0.5",
        },
        b"\t4": {
            b"": "line 2 must have a label and 2 numbers, but has 2 fields",
            b"\t4\t5": "has 4 fields",
        },
        b"\n": {b"\r\n": "has CR"},
        b"\t": {b",": "release of 2015"},
        b"4\n": {
            b"4": "last line is cut off",
            b"4\n1\t0\t0\n": "2 series, but has 3",
        },
        b"-1\t3\t4\n": {b"": "exchanged"},
        b"\n-1": {b"\n\n-1": "2 series, but has 3"},
    },
)
