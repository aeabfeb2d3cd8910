"""A file that is cut off anywhere is refused with its name, or is a smaller file of the same kind; nothing else happens."""

from pathlib import Path

import pytest
import torch

import steadyrnn as sr
from steadyrnn.tasks.series.records import RawTarget, SeriesSet
from tests.tasks.series import sets

SERIES = SeriesSet(
    torch.tensor([[1.5, -2.25], [3e-5, 4.0], [5.0, 6.0], [7.0, 8.0], [1.0, 0.5]], dtype=torch.float64), torch.tensor([2, 3]),
    ("x", "y"), ("s0", "s1"), RawTarget(("kind",), texts=sets.CLASSES[:2]), torch.tensor([0.0, 1.0, 0.0, 2.0, 5.0]).double(),
)  # fmt: skip
FILES: dict[str, tuple[str | bytes, dict[str, object]]] = {
    "long.csv": (sets.as_long_csv(SERIES, 1), {"series": "id", "time": "t", "target": "kind"}),
    "rows.csv": (sets.as_rows_csv(SERIES), {"target": "kind", "layout": "rows"}),
    "plain.tsv": ("x\ty\r\n1\t2\r\n3\t4\r\n", {}),
    "steps.parquet": (sets.as_parquet(SERIES), {"series": "id", "time": "t", "target": "kind"}),
    "arrays.npz": (sets.as_npz(SERIES), {"target": "y", "series": "name"}),
    "array.npy": (sets.as_npy(SERIES), {}),
    "series.ts": (sets.as_ts(SERIES), {}),
    "relational.arff": (sets.as_arff(SERIES), {}),
    "dense.arff": (sets.as_dense_arff(SERIES), {}),
}
WHOLE_OR_NOTHING = {"steps.parquet", "arrays.npz", "array.npy"}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_cut_off_is_refused_or_valid(tmp_path: Path, name: str) -> None:
    written, settings = FILES[name]
    data = written if isinstance(written, bytes) else written.encode()
    file = tmp_path / name
    file.write_bytes(data)
    assert sr.load_series(file, missing="mask", **settings).count == (1 if name in {"plain.tsv", "array.npy"} else 2)
    for size in range(len(data)):
        file.write_bytes(data[:size])
        try:
            found = sr.load_series(file, missing="mask", **settings)
        except sr.errors.DataError as error:
            assert str(file) in str(error)  # noqa: PT017
        else:
            assert name not in WHOLE_OR_NOTHING
            assert len(found.values) == found.lengths.sum() > 0


@pytest.mark.parametrize("name", [name for name in FILES if name != "steps.parquet"])
@pytest.mark.parametrize("byte", [0x00, 0x22, 0x2C, 0x0A, 0x3A, 0x39, 0xFF])
def test_a_file_with_one_altered_byte_is_refused_or_valid(tmp_path: Path, name: str, byte: int) -> None:
    written, settings = FILES[name]
    data = written if isinstance(written, bytes) else written.encode()
    file = tmp_path / name
    for place in range(0, len(data), 1 + len(data) // 150):
        file.write_bytes(data[:place] + bytes([byte]) + data[place + 1 :])
        try:
            found = sr.load_series(file, missing="mask", **settings)
        except (sr.errors.DataError, sr.errors.ArgumentError):
            continue
        assert len(found.values) == found.lengths.sum() > 0
