"""The real data sets count what is published of them; skipped where they are not."""

import os
from pathlib import Path

import pytest
import torch

from steadyrnn.tasks.locate import check_data_set
from steadyrnn.tasks.mnist import Mnist, read_digits
from steadyrnn.tasks.multilabel import MultiLabel
from steadyrnn.tasks.registry import make_task
from steadyrnn.tasks.settings import BibtexSettings, PixelMnistSettings
from steadyrnn.tasks.text import CORPORA, read_corpus
from steadyrnn.tasks.ucr import read_ucr
from steadyrnn.tasks.ucr_sets import UCR_SETS

FOLDER = Path(os.environ.get("STEADYRNN_DATA") or "/nonexistent")


def needs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not (FOLDER / name).is_dir(), reason=f"{name} is not in STEADYRNN_DATA")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=needs(name)) for name in ("mnist", "ptb", "wikitext-2", "ucr", "bibtex")]
)
def test_the_files_are_the_published_ones(name: str) -> None:
    assert check_data_set(FOLDER, name) == []


@needs("mnist")
@pytest.mark.parametrize(
    ("part", "mean", "counts"),
    [
        ("train", 33.3184, [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]),
        ("t10k", 33.7912, [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]),
    ],
)
def test_mnist_has_its_digits(part: str, mean: float, counts: list[int]) -> None:
    digits = read_digits(FOLDER, part)
    assert torch.bincount(digits.targets).tolist() == counts
    assert digits.features.shape == (sum(counts), 784)
    assert float(digits.features.double().mean()) == pytest.approx(mean, abs=5e-5)


@needs("mnist")
def test_mnist_holds_out_what_is_requested() -> None:
    task = Mnist(PixelMnistSettings(validation=10_000))
    assert {name: len(part) for name, part in task.splits.parts.items()} == {"train": 50000, "validation": 10000, "test": 10000}
    assert task.baselines["accuracy"] == 0.1135


TEXTS = {
    "ptb": ([929_589, 73_760, 82_430], 10_000, [45_020, 3_485, 4_794]),
    "wikitext-2": ([2_088_628, 217_646, 245_569], 33_278, [54_625, 11_718, 15_218]),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=needs(name)) for name in TEXTS])
def test_texts_have_their_tokens_and_words(name: str) -> None:
    counts, words, unknown = TEXTS[name]
    vocabulary, texts = read_corpus(FOLDER, CORPORA[name])
    assert [len(text) for text in texts.values()] == counts
    assert len(vocabulary) == words
    assert [int((text == vocabulary.numbers["<unk>"]).sum()) for text in texts.values()] == unknown


@needs("ptb")
def test_the_test_text_is_counted_whole() -> None:
    task = make_task("ptb", evaluation_rows=10, data_dir=str(FOLDER))
    assert sum(int((batch.target != -100).sum()) for batch in task.batches("test", 20)) == 82_430 - 1


@needs("ucr")
@pytest.mark.parametrize("name", UCR_SETS)
def test_series_have_their_sizes_and_classes_and_are_normalized(name: str) -> None:
    known = UCR_SETS[name]
    train, test = read_ucr(FOLDER, known)
    assert (len(train), len(test)) == known.counts()
    for part in (train, test):
        assert part.features.shape[1] == known.length
        assert part.targets.unique().tolist() == list(range(len(known.labels)))
        assert float(part.features.mean(1).abs().max()) < 1e-4
        assert float((part.features.std(1) - 1).abs().max()) < 1e-3


@needs("bibtex")
def test_bibtex_has_its_rows_features_and_labels() -> None:
    task = MultiLabel(BibtexSettings(validation=0.2, data_dir=str(FOLDER)))
    assert {name: len(part) for name, part in task.splits.parts.items()} == {"train": 3904, "validation": 976, "test": 2515}
    test = task.splits.parts["test"]
    assert float(test.targets.double().sum(1).mean()) == pytest.approx(2.444, abs=5e-4)
    assert float((test.features != 0).double().sum(1).mean()) == pytest.approx(68.98, abs=5e-3)
    assert test.features.unique().tolist() == [0.0, 1.0]
