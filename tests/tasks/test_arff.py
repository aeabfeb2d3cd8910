"""ARFF files and their XML: what is read, and what is refused."""

from pathlib import Path

import pytest

from steadyrnn.errors import DataError
from steadyrnn.tasks.arff import read_arff, read_label_names
from tests.tasks.bad_files import make_bad_file_test

WHERE = Path("set") / "train.arff"
GOOD = (
    b"% a comment\n@relation r\n\n@attribute x numeric\n@ATTRIBUTE 'it\\'s y' real\n@attribute tag {0,1}\n"
    b'@attribute "other tag" { 0 , 1 }\n\n@data\n{0 2.5,3 1}\n{ }\n% between\n{1 -1, 2 1}\n'
)
LABELS = ["other tag", "tag"]


def test_sparse_rows_are_zero_where_nothing_stands_and_labels_follow_the_names() -> None:
    rows = read_arff(GOOD, WHERE, LABELS)
    assert rows.features.tolist() == [[2.5, 0.0], [0.0, 0.0], [0.0, -1.0]]
    assert rows.targets.tolist() == [[1, 0], [0, 0], [0, 1]]


def test_dense_rows_and_two_byte_line_ends_give_the_same() -> None:
    dense = GOOD.split(b"@data\n")[0] + b"@data\n2.5,0,0,1\n0,0,0,0\n0, -1, 1, 0\n"
    want = read_arff(GOOD, WHERE, LABELS)
    for data in (dense, GOOD.replace(b"\n", b"\r\n")):
        rows = read_arff(data, WHERE, LABELS)
        assert rows.features.equal(want.features)
        assert rows.targets.equal(want.targets)


test_a_bad_file_is_refused_with_its_path_and_the_reason = make_bad_file_test(
    lambda data: read_arff(data, WHERE, LABELS),
    WHERE,
    GOOD,
    b"2.5",
    "pairs",
    {
        b"@data": {b"@date": "has none"},
        b"{0 2.5,3 1}\n{ }\n% between\n{1 -1, 2 1}\n": {b"\n": "rows behind @data"},
        b"x numeric": {b"x string": "numeric or {0,1}"},
        b"tag {0,1}": {
            b"tag {1,0}": "numeric or {0,1}",
            b"tag": "numeric or {0,1}",
            b"label {0,1}": "none for 'tag'",
            b"x {0,1}": "repeats",
        },
        b"{0 2.5,": {
            b"{4 2.5,": "line 10 must name columns from 0 to 3",
            b"{-1 2.5,": "columns from 0 to 3",
            b"{3 2.5,": "each once",
            b"{0 2.5 7,": "pairs",
            b"{0,": "pairs",
        },
        b"3 1}": {
            b"3 1": "cut off",
            b"3 2}": "labels of 0 or 1",
        },
        b"{0 2.5,3 1}": {
            b"1,2,0": "4 values, one per column, but has 3",
            b"1,?,0,1": "numbers between commas",
        },
        b"comment": {b"\xff": "UTF-8"},
    },
)


def test_label_names_come_from_the_xml_in_order() -> None:
    assert read_label_names(b'<labels>\n<label name="b &amp; c"></label>\n<label  name="a"/></labels>', WHERE) == ["b & c", "a"]


@pytest.mark.parametrize(
    ("data", "words"), [(b"<labels></labels>", "names none"), (b'<label name="a"/><label name="a"/>', "repeats one")]
)
def test_an_xml_file_without_labels_or_with_one_twice_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(DataError, match=words):
        read_label_names(data, WHERE)
