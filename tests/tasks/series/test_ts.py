"""Files of sktime and aeon."""

from pathlib import Path

from tests.tasks.series.loading import load

HEAD = "# a comment\n@problemName Gait\n@timeStamps false\n@missing true\n@univariate false\n@dimension 2\n@equalLength false\n"


def test_dimensions_are_channels_and_the_class_is_last(tmp_path: Path) -> None:
    found = load(tmp_path, HEAD + "@classLabel true walk run\n@data\n1,2:3,4:walk\n\n5:?:run\n", "a.ts", missing="mask")
    assert found.channels == ("1", "2")
    assert found.lengths.tolist() == [2, 1]
    assert found.values.nan_to_num(-1.0).tolist() == [[1, 3], [2, 4], [5, -1]]
    assert found.labels.tolist() == ["walk", "run"]
    assert found.target.names == ("class",)


def test_a_target_is_a_number(tmp_path: Path) -> None:
    found = load(
        tmp_path, "@univariate true\n@equalLength true\n@seriesLength 2\n@targetLabel true\n@data\n1,2:0.5\n3,4:-1\n", "a.ts"
    )
    assert found.labels.tolist() == [0.5, -1.0]
    assert found.channels == ("value",)


def test_without_a_label_there_is_no_target(tmp_path: Path) -> None:
    found = load(tmp_path, "@CLASSLABEL false\r\n@DATA\r\n1,2\r\n3,4\r\n", "a.ts")
    assert found.target is None
    assert found.names == ("1", "2")


def test_to_forecast_the_class_is_left_out(tmp_path: Path) -> None:
    found = load(tmp_path, HEAD + "@classLabel true a\n@data\n1,2:3,4:a\n", "a.ts", horizon=1, target="2", channels="1")
    assert found.target is None
    assert found.channels == ("1", "2")


def test_channels_are_chosen_by_number(tmp_path: Path) -> None:
    found = load(tmp_path, HEAD + "@classLabel true a\n@data\n1,2:3,4:a\n", "a.ts", channels="2", target="class")
    assert found.values.tolist() == [[3], [4]]
    assert found.labels.tolist() == ["a"]
