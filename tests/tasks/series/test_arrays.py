"""Files of NumPy: which array is what, shapes, lengths, targets."""

from pathlib import Path

import numpy as np
import pytest

import steadyrnn as sr
from steadyrnn.errors import DataError
from tests.tasks.series.loading import load, npy, npz

X = np.arange(12.0).reshape(2, 3, 2)


@pytest.mark.parametrize(
    ("array", "lengths", "channels", "names"),
    [
        (X[0, :, 0], [3], ("value",), ("a",)),
        (X[0], [3], ("1", "2"), ("a",)),
        (X, [3, 3], ("1", "2"), ("1", "2")),
        (np.asfortranarray(X), [3, 3], ("1", "2"), ("1", "2")),
    ],
)
def test_shapes_of_one_array(tmp_path: Path, array: np.ndarray, lengths: list[int], channels: tuple, names: tuple) -> None:
    found = load(tmp_path, npy(array), "a.npy")
    assert found.lengths.tolist() == lengths
    assert (found.channels, found.names) == (channels, names)
    assert np.array_equal(np.concatenate(found.series), array.reshape(-1, len(channels)))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "float32", ">f8"])
def test_every_dtype_of_numbers(tmp_path: Path, dtype: str) -> None:
    found = load(tmp_path, npy(np.array([[1, 0]]).astype(dtype)), "a.npy")
    assert found.values.tolist() == [[1.0, 0.0]]


def test_channels_of_an_array_are_chosen_by_number(tmp_path: Path) -> None:
    assert load(tmp_path, npy(X[0]), "a.npy", channels="2").values.tolist() == [[1], [3], [5]]
    found = load(tmp_path, npy(X[0]), "a.npy", channels="2", target="1", horizon=1)
    assert found.channels == ("2", "1")
    assert found.target is None


@pytest.mark.parametrize("name", ["X", "x", "data", "values", "whatever"])
def test_the_array_of_values_is_found_by_name_or_because_it_is_the_only_one(tmp_path: Path, name: str) -> None:
    found = load(tmp_path, npz(**{name: X, "y": np.array(["u", "v"])}), "a.npz", target="y")
    assert found.labels.tolist() == ["u", "v"]
    assert found.values.shape == (6, 2)


def test_the_array_of_values_is_named(tmp_path: Path) -> None:
    found = load(tmp_path, npz(X=X, other=X[:, :, 0]), "a.npz", channels="other")
    assert found.channels == ("value",)
    assert found.notes == ("Array 'X' is not read.",)


def test_lengths_cut_series_and_targets_of_each_step(tmp_path: Path) -> None:
    y = np.arange(6).reshape(2, 3)
    found = load(tmp_path, npz(X=X, y=y, lengths=np.array([1, 3])), "a.npz", target="y")
    assert found.lengths.tolist() == [1, 3]
    assert found.labels.tolist() == [0, 3, 4, 5]
    assert found.target.each
    assert [len(part) for part in found.series] == [1, 3]


@pytest.mark.parametrize(
    ("y", "labels", "each"),
    [
        (np.array([1, 2]), [1, 2], False),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]], False),
        (np.array([["a", "b", "c"], ["d", "e", "f"]]), ["a", "b", "c", "d", "e", "f"], True),
        (np.arange(12).reshape(2, 3, 2), np.arange(12).reshape(6, 2).tolist(), True),
        (np.array([b"a", b"b"]), ["a", "b"], False),
        (np.array([True, False]), [1, 0], False),
    ],
)
def test_shapes_of_targets(tmp_path: Path, y: np.ndarray, labels: list, each: bool) -> None:
    found = load(tmp_path, npz(X=X, y=y), "a.npz", target="y")
    assert found.labels.tolist() == labels
    assert found.target.each == each


def test_names_and_groups_are_arrays_too(tmp_path: Path) -> None:
    found = load(tmp_path, npz(X=X, who=np.array([7, 9]), where=np.array(["n", "n"])), "a.npz", series="who", group="where")
    assert found.names == ("7", "9")
    assert found.groups == ("n", "n")


def test_an_array_that_was_compressed_to_almost_nothing_is_refused(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "bomb.npz", X=np.zeros((9_000_000, 1)))
    with pytest.raises(DataError, match=r"array 'X' has 72,000,\d{3} bytes, compressed to [\d,]+: less than one in 200"):
        sr.load_series(tmp_path / "bomb.npz")
    np.savez_compressed(tmp_path / "small.npz", X=np.zeros((90_000, 1)))
    assert sr.load_series(tmp_path / "small.npz").values.shape == (90_000, 1)
