"""ARFF files of the UCR and UEA archives."""

from pathlib import Path

import pytest

from tests.tasks.series.loading import load

UCR = "% UCR\n@RELATION Gun\n@attribute att1 numeric\n@attribute att2 real\n@attribute target {1,2}\n\n@DATA\n1,2,1\n3,?,2\n"
UEA = (
    "@relation Motions\n@attribute relationalAtt relational\n@attribute t1 numeric\n@attribute t2 numeric\n@end relationalAtt\n"
    "@attribute activity {Standing,'Slow walk'}\n@data\n'1,2\\n3,4',Standing\n\"5,?\\n6,?\",'Slow walk'\n"
)


def test_a_series_per_row_with_the_class_last(tmp_path: Path) -> None:
    found = load(tmp_path, UCR, "a.arff")
    assert found.lengths.tolist() == [2, 1]
    assert found.values.tolist() == [[1], [2], [3]]
    assert found.labels.tolist() == ["1", "2"]


def test_a_relational_attribute_has_the_dimensions(tmp_path: Path) -> None:
    found = load(tmp_path, UEA, "a.arff")
    assert found.channels == ("1", "2")
    assert found.values.tolist() == [[1, 3], [2, 4], [5, 6]]
    assert found.lengths.tolist() == [2, 1]
    assert found.labels.tolist() == ["Standing", "Slow walk"]


@pytest.mark.parametrize("text", [UCR, UEA])
def test_to_forecast_there_is_no_target(tmp_path: Path, text: str) -> None:
    assert load(tmp_path, text, "a.arff", horizon=1).target is None


def test_the_target_is_named(tmp_path: Path) -> None:
    head = "@attribute a1 numeric\n@attribute a2 numeric\n@attribute 'the class' {u,v}\n@attribute fee string\n@data\n"
    found = load(tmp_path, head + "1,2,u,lo\n3,4,v,'high one'\n", "a.arff", target="fee")
    assert found.labels.tolist() == ["lo", "high one"]
    assert found.notes == ("Column 'the class' holds strings and is not read.",)


def test_rows_may_be_steps(tmp_path: Path) -> None:
    found = load(tmp_path, UCR.replace("?", "4"), "a.arff", layout="long")
    assert found.channels == ("att1", "att2")
    assert found.lengths.tolist() == [2]
    assert found.target.each
