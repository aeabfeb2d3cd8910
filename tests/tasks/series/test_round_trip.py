"""Any series, written in any format, are read back to the bit."""

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steadyrnn.tasks.series.records import SeriesSet
from tests.tasks.series import sets
from tests.tasks.series.loading import load

any_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@any_folder
@given(series=sets.series_sets(), seed=st.integers(0, 99))
def test_rows_of_steps_in_any_order(tmp_path: Path, series: SeriesSet, seed: int) -> None:
    found = load(tmp_path, sets.as_long_csv(series, seed), series="id", time="t", target="kind")
    sets.assert_same_series(found.take([found.names.index(name) for name in series.names]), series)


@any_folder
@given(series=sets.series_sets(missing=True))
def test_rows_of_series(tmp_path: Path, series: SeriesSet) -> None:
    found = load(tmp_path, sets.as_rows_csv(series), target="kind", layout="rows", missing="mask")
    sets.assert_same_series(found, series, channels=len(series.channels) > 1, names=False, times=False)


@any_folder
@given(series=sets.series_sets(missing=True))
def test_parquet(tmp_path: Path, series: SeriesSet) -> None:
    found = load(tmp_path, sets.as_parquet(series), "data.parquet", series="id", time="t", target="kind", missing="mask")
    sets.assert_same_series(found, series)


@any_folder
@given(series=sets.series_sets(missing=True))
def test_archives_of_numpy(tmp_path: Path, series: SeriesSet) -> None:
    found = load(tmp_path, sets.as_npz(series), "data.npz", series="name", target="y", missing="mask")
    sets.assert_same_series(found, series, channels=False, times=False)


@any_folder
@given(series=sets.series_sets(missing=True))
def test_files_of_sktime(tmp_path: Path, series: SeriesSet) -> None:
    found = load(tmp_path, sets.as_ts(series), "data.ts", missing="mask")
    assert [sets.CLASSES[int(label[-1])] for label in found.labels] == series.labels.tolist()
    sets.assert_same_series(found, series, channels=False, names=False, times=False, labels=False)


@any_folder
@given(series=sets.series_sets(missing=True))
def test_files_of_weka(tmp_path: Path, series: SeriesSet) -> None:
    found = load(tmp_path, sets.as_arff(series), "data.arff", missing="mask")
    assert found.labels.tolist() == [label.replace("\n", " ") for label in series.labels]
    sets.assert_same_series(found, series, channels=False, names=False, times=False, labels=False)
    first = load(tmp_path, sets.as_dense_arff(series), "data.arff", missing="mask", target=None)
    there = series.values[:, 0].nan_to_num(0.0)
    if torch.equal(first.lengths, series.lengths):  # else the channel is missing at the end of a series
        assert torch.equal(first.values[:, 0].nan_to_num(0.0).view(torch.int64), there.view(torch.int64))


@pytest.mark.parametrize("seed", range(3))
def test_the_same_file_is_read_alike_every_time(tmp_path: Path, seed: int) -> None:
    rows = "".join(f"{(row * 7 + seed) % 5},{row},{row / 3!r}\n" for row in range(200))
    first, second = (load(tmp_path, f"id,t,x\n{rows}", series="id", time="t") for _ in range(2))
    assert first.names == second.names
    assert torch.equal(first.values, second.values)
    assert first.files == second.files
