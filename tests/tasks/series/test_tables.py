"""Tables with a row per step or per series: dialects, types, roles of columns, layouts."""

import datetime
import decimal
import hashlib
import io
from collections.abc import Sequence
from pathlib import Path

import polars
import pytest
import torch

import steadyrnn as sr
from steadyrnn.errors import ArgumentError, DataError
from steadyrnn.tasks.locate import VARIABLE, data_folder, is_there
from steadyrnn.tasks.ucr import read_ucr
from steadyrnn.tasks.ucr_sets import ucr_set
from tests.tasks.series.loading import load


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("quote", ["", '"'])
def test_every_dialect_is_the_same_table(tmp_path: Path, delimiter: str, end: str, mark: str, quote: str) -> None:
    rows = [["x", "y"], ["1", "2.5"], ["-3", " 4e1 "]]
    text = mark + "".join(delimiter.join(f"{quote}{cell}{quote}" for cell in row) + end for row in rows)
    found = load(tmp_path, text)
    assert found.channels == ("x", "y")
    assert found.values.tolist() == [[1.0, 2.5], [-3.0, 40.0]]
    assert found.names == ("data",)


@pytest.mark.parametrize("text", ["x\n1\n\n2\n\n", '"x"\n1\n\n2\n\n', "\nx\n1\n\n2\n"])
def test_an_empty_line_of_one_column_is_a_missing_value(tmp_path: Path, text: str) -> None:
    assert load(tmp_path, text, missing="mask").values[:, 0].isnan().tolist() == [False, True, False]


@pytest.mark.parametrize("text", ["x,y\n1,2\n\n\n3,4\n\n", 'x,y\n1,2\n\n\n"3",4\n\n'])
def test_blank_lines_between_rows_are_left_out_and_counted(tmp_path: Path, text: str) -> None:
    assert load(tmp_path, text).values.tolist() == [[1, 2], [3, 4]]
    with pytest.raises(sr.errors.DataError, match="line 5, column 'y'"):
        load(tmp_path, text.replace("4", "four"), channels="y")


@pytest.mark.parametrize("word", ["", "NaN", "nan", "NA", "null", "?", " "])
def test_words_for_missing_values(tmp_path: Path, word: str) -> None:
    assert load(tmp_path, f"x,y\n1,2\n3,{word}\n", missing="mask").values.isnan().tolist() == [[False, False], [False, True]]


def test_dates_become_seconds_and_sort_the_rows(tmp_path: Path) -> None:
    found = load(tmp_path, "when,x\n1970-01-02,2\n1970-01-01 00:00:01.5,1\n", time="when")
    assert found.times.tolist() == [1.5, 86400.0]
    assert found.values.tolist() == [[1.0], [2.0]]
    zoned = load(tmp_path, "when,x\n1970-01-01T01:00+01:00,2\n1970-01-01T00:00:02Z,1\n", time="when")
    assert zoned.times.tolist() == [0.0, 2.0]


def test_types_of_parquet(tmp_path: Path) -> None:
    days = [datetime.datetime(1970, 1, 2), datetime.datetime(1970, 1, 1)]
    columns = {
        "day": days,
        "date": [day.date() for day in days],
        "whole": [1, 2],
        "half": polars.Series([0.5, None], dtype=polars.Float32),
        "yes": [True, False],
        "money": [decimal.Decimal("1.25"), None],
        "kind": polars.Series(["a", "b"], dtype=polars.Categorical),
        "code": ["01", "02"],
    }
    polars.DataFrame(columns).write_parquet(file := io.BytesIO())
    for time in ("day", "date"):
        found = load(tmp_path, file.getvalue(), "t.parquet", time=time, target="kind", missing="mask")
        assert found.times.tolist() == [0.0, 86400.0]
        assert found.channels == ("whole", "half", "yes", "money")
        assert found.values.nan_to_num(-1.0).tolist() == [[2, -1, 0, -1], [1, 0.5, 1, 1.25]]
        assert found.labels.tolist() == ["b", "a"]
    assert load(tmp_path, file.getvalue(), "t.parquet", target="code", channels="whole").labels.tolist() == ["01", "02"]
    assert "Column 'code' holds strings and is not read." in found.notes


def test_a_target_that_is_constant_within_each_series_is_one_per_series(tmp_path: Path) -> None:
    text = "id,x,y\na,1,5\nb,2,6\na,3,5\n"
    assert load(tmp_path, text, series="id", target="y").labels.tolist() == [5.0, 6.0]
    assert load(tmp_path, text.replace("3,5", "3,7"), series="id", target="y").labels.tolist() == [5.0, 7.0, 6.0]
    assert load(tmp_path, text, target="y", channels="x").labels.tolist() == [5.0, 6.0, 5.0]


def test_several_targets_are_numbers(tmp_path: Path) -> None:
    found = load(tmp_path, "x,u,v\n1,2,3\n4,5,6\n", target="u, v")
    assert found.channels == ("x",)
    assert found.labels.tolist() == [[2, 3], [5, 6]]


def test_what_is_forecast_is_a_channel(tmp_path: Path) -> None:
    found = load(tmp_path, "x,u,v\n1,2,3\n4,5,6\n", target="u", horizon=1)
    assert found.channels == ("x", "u", "v")
    assert found.target is None
    assert load(tmp_path, "x,u,v\n1,2,3\n4,5,6\n", target="u", channels="v", kind="forecasting").channels == ("v", "u")


def test_groups_are_of_series(tmp_path: Path) -> None:
    found = load(tmp_path, "id,who,x\n1,p,1\n2,q,2\n1,p,3\n", series="id", group="who")
    assert found.groups == ("p", "q")
    assert found.names == ("1", "2")


@pytest.mark.parametrize(
    ("header", "channels"),
    [
        ("k,x_1,x_0,y_0,y_1", {"x": [2, 1], "y": [3, 4]}),
        ("k,a1,a0,a2,a3", {"value": [2, 1, 3, 4]}),
        ("k,x[0],x[1],y[0],y[1]", {"x": [1, 2], "y": [3, 4]}),
        ("k,0.5,2.5,1.5,11", {"value": [1, 3, 2, 4]}),
        ("k,mon,tue,wed,thu", {"value": [1, 2, 3, 4]}),
    ],
)
def test_names_of_steps_say_channel_and_order(tmp_path: Path, header: str, channels: dict[str, list[int]]) -> None:
    found = load(tmp_path, f"{header}\na,1,2,3,4\nb,1,2,3,4\n", target="k", layout="rows")
    assert found.channels == tuple(channels)
    assert found.series[0].T.tolist() == list(channels.values())


@pytest.mark.parametrize("header", ["0,1", "1,2"])
def test_columns_may_be_named_by_numbers(tmp_path: Path, header: str) -> None:
    assert load(tmp_path, f"{header}\n3,4\n").channels == tuple(header.split(","))


@pytest.mark.parametrize(
    ("settings", "layout"),
    [
        ({"target": "k"}, "rows"),
        ({"target": "k", "series": "t1"}, "long"),
        ({"target": "k", "time": "t2"}, "long"),
        ({"horizon": 2}, "long"),
        ({}, "long"),
    ],
)
def test_the_layout_is_chosen_and_said(tmp_path: Path, settings: dict[str, object], layout: str) -> None:
    header = ",".join(["k", *(f"t{step}" for step in range(1, 10))])
    rows = "".join(f"{row % 2},{','.join(str(step + row) for step in range(9))}\n" for row in range(3))
    found = load(tmp_path, f"{header}\n{rows}", **settings)
    assert f"`layout` {layout}" in found.notes[0]
    assert (found.lengths.tolist() == [9, 9, 9]) == (layout == "rows")


QUARTERS = [f"{hour:02d}:{minute:02d}" for hour in range(3) for minute in (0, 15, 30, 45)]


@pytest.mark.parametrize(
    ("names", "order"),
    [
        (QUARTERS, range(12)),
        ([f"load {name}" for name in reversed(QUARTERS)], range(11, -1, -1)),
        ([f"{year}-{month:02d}" for year in (2020, 2021) for month in range(1, 13)], range(24)),
        ([f"2020-01-{day:02d} {hour}:00" for hour in (5, 11) for day in range(1, 6)], [0, 5, 1, 6, 2, 7, 3, 8, 4, 9]),
        ([f"t{step / 2}" for step in range(20)], range(20)),
        ([f"t_{step / 4:.2f}" for step in range(12)], range(12)),
        ([f"t-{lag}" for lag in range(10, 0, -1)], range(10)),
        ([f"t-{step}" for step in range(10)], range(10)),
        ([f"lag_{lag}" for lag in range(1, 11)], range(9, -1, -1)),
        ([f"{step / 10:g}" for step in range(9, -1, -1)], range(9, -1, -1)),
    ],
    ids=lambda value: f"{value[0]} {value[1]}" if isinstance(value, list) else "",
)
def test_columns_named_by_times_or_numbers_are_steps_in_their_order(
    tmp_path: Path, names: list[str], order: Sequence[int]
) -> None:
    row = ",".join(str(place) for place in range(len(names)))
    found = load(tmp_path, f"k,{','.join(names)}\na,{row}\nb,{row}\n", target="k")
    assert found.channels == ("value",)
    assert found.series[0].flatten().tolist() == [*map(float, order)]


def test_a_step_named_twice_by_its_time_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="must name each step once, but columns '0:15' and '00:15' are the same step"):
        load(tmp_path, "k,0:15,00:15,00:30\na,1,2,3\nb,1,2,3\n", target="k", layout="rows")


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([f"ch{number}" for number in range(8)], "'ch0', 'ch1', ... may be the steps of a series in each row, or 8 channels"),
        (["age", *(f"t{number}" for number in range(9))], "or 9 channels, and 'age' is none of them"),
    ],
)
def test_a_layout_that_cannot_be_told_is_asked_for(tmp_path: Path, names: list[str], words: str) -> None:
    cells = ",".join("1" for _ in names)
    text = f"k,{','.join(names)}\na,{cells}\nb,{cells}\nb,{cells}\n"
    with pytest.raises(ArgumentError, match=r"`layout` must be given for .*data\.csv") as caught:
        load(tmp_path, text, target="k")
    assert words in str(caught.value)
    assert load(tmp_path, text, target="k", layout="long").channels == tuple(names)


def test_channels_and_steps_of_rows_are_said(tmp_path: Path) -> None:
    names = [f"{channel}_{step}" for channel in "xy" for step in range(8)]
    cells = ",".join("1" for _ in names)
    notes = load(tmp_path, f"k,{','.join(names)}\na,{cells}\nb,{cells}\n", target="k").notes
    assert "Each row has 2 channels of 8 steps: x, y." in notes


def test_the_file_is_named_with_its_checksum(tmp_path: Path) -> None:
    (file,) = load(tmp_path, "x\n1\n").files
    assert file.path == tmp_path / "data.csv"
    assert file.size == 4
    assert file.sha256 == hashlib.sha256(b"x\n1\n").hexdigest()


@pytest.mark.skipif(not is_there("ucr"), reason=f"needs the UCR archive: {VARIABLE} names the data folder")
def test_a_set_of_the_ucr_archive_is_what_its_own_reader_reads() -> None:
    folder = data_folder()
    train, _ = read_ucr(folder, ucr_set("CBF"))
    file = next((folder / "ucr").rglob("CBF_TRAIN.tsv"))
    found = sr.load_series(file, header=False, layout="rows", target="1")
    assert torch.equal(found.values.float().view(len(train), -1), train.features)
    assert (found.labels - 1).tolist() == train.targets.tolist()
