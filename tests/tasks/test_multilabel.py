"""Multi-label learning: forms of the data, loss and precision."""

import math
from pathlib import Path

import pytest
import torch

from steadyrnn.errors import ArgumentError, DataError, ShapeError
from steadyrnn.tasks.base import Batch
from steadyrnn.tasks.registry import make_task
from tests.support.stored_data import make_folder


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return make_folder(tmp_path, monkeypatch)


def test_precision_counts_labels_among_the_largest_outputs() -> None:
    task = make_task("mediamill")
    target = torch.tensor([[1.0, 0, 1, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0, 0]])
    output = torch.tensor([[7.0, 6, 5, 4, 3, 2, 1]]).expand(2, -1)
    batch = Batch(torch.zeros(2, 3), target)
    sums = {key: float(value) for key, value in task.scores(output, batch).items()}
    found = task.summary(sums)
    assert found["precision@1"] == 1 / 2  # the row without labels counts as 0
    assert found["precision@3"] == pytest.approx(2 / 6)
    assert found["precision@5"] == pytest.approx(2 / 10)


def test_the_loss_is_a_mean_over_rows_and_labels() -> None:
    task = make_task("bibtex")
    batch = task.train_batch(0, 4)
    assert float(task.loss(torch.zeros(4, 6), batch)) == pytest.approx(math.log(2))


def test_columns_of_the_split_files_are_different_ways_to_part_the_rows() -> None:
    first, second = (next(iter(make_task("mediamill", split=split).batches("test", 9))).input for split in (0, 1))
    assert first[:, 0].tolist() == [i + 0.5 for i in range(9, 15)]
    assert second[:, 0].tolist() == [i + 0.5 for i in range(6)]


def test_a_form_whose_files_are_there_is_taken(folder: Path) -> None:
    names = [*(f"word{i}" for i in range(3)), *(f"tag{i}" for i in range(7))]
    header = "".join(f"@attribute {name} {'numeric' if i < 3 else '{0,1}'}\n" for i, name in enumerate(names))
    for part, rows in (("train", 9), ("test", 6)):
        body = "".join(f"{{0 {i}.25,{3 + i % 7} 1}}\n" for i in range(rows))
        (folder / "mediamill" / f"mediamill-{part}.arff").write_text(f"{header}@data\n{body}")
    xml = "".join(f'<label name="{name}"/>\n' for name in names[3:])
    (folder / "mediamill" / "mediamill.xml").write_text(xml)
    assert next(iter(make_task("mediamill", form="mulan").batches("test", 9))).input[1].tolist() == [1.25, 0.0, 0.0]
    assert next(iter(make_task("mediamill").batches("test", 9))).input[0, 0] == 9.5
    (folder / "mediamill" / "Mediamill_data.txt").unlink()
    assert next(iter(make_task("mediamill").batches("test", 9))).input[1, 0] == 1.25


@pytest.mark.parametrize(
    ("settings", "words"), [({"form": "libsvm"}, "`form` must be one of mulan, repository"), ({"split": 2}, "`split`")]
)
def test_a_wrong_setting_is_named(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        make_task("mediamill", **settings)


def test_a_row_that_both_trains_and_tests_is_refused(folder: Path) -> None:
    (folder / "mediamill" / "mediamill_tstSplit.txt").write_text("".join(f"{i}\n" for i in range(9, 15)))
    (folder / "mediamill" / "mediamill_trSplit.txt").write_text("".join(f"{i}\n" for i in range(1, 10)))
    with pytest.raises(DataError, match="share no row"):
        make_task("mediamill")


def test_data_that_counts_something_else_is_refused(folder: Path) -> None:
    data = folder / "mediamill" / "Mediamill_data.txt"
    data.write_text(data.read_text().replace("15 3 7", "15 4 7"))
    with pytest.raises(DataError, match="15 rows, 3 features and 7 labels, but its first line says 15, 4 and 7"):
        make_task("mediamill")


def test_a_split_of_other_sizes_is_refused(folder: Path) -> None:
    path = folder / "mediamill" / "mediamill_trSplit.txt"
    path.write_text("".join(f"{line}\n" for line in path.read_text().splitlines()[1:]))
    with pytest.raises(DataError, match="9 training rows, 3 features and 7 labels, but has 8, 3 and 7"):
        make_task("mediamill")


def test_a_form_with_one_split_has_no_other() -> None:
    with pytest.raises(ArgumentError, match="`split` must be 0 for the form `mulan`"):
        make_task("bibtex", split=1)


def test_an_output_of_the_wrong_shape_is_refused() -> None:
    task = make_task("bibtex")
    with pytest.raises(ShapeError, match="`output`"):
        task.loss(torch.zeros(4, 1), task.train_batch(0, 4))
