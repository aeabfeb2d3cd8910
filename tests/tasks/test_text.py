"""Language modelling: how a text becomes batches, and what is counted."""

import math
from pathlib import Path

import pytest
import torch

import steadyrnn as sr
from steadyrnn.errors import ArgumentError, DataError, ShapeError
from steadyrnn.tasks.base import Batch
from steadyrnn.tasks.registry import make_task
from steadyrnn.tasks.settings import PtbSettings
from steadyrnn.tasks.text import Language
from tests.support.stored_data import make_folder


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return make_folder(tmp_path, monkeypatch)


def language(**settings: int) -> Language:
    return Language(PtbSettings(**settings))


@pytest.mark.parametrize("size", [1, 2, 7])
def test_training_rows_go_on_from_batch_to_batch(size: int) -> None:
    task = language(bptt=4)
    text = task.texts["train"]
    batches = [task.train_batch(step, size) for step in range(task.epoch_steps(size))]
    n = (len(text) - 1) // size
    x, y = (torch.cat(parts).t().flatten() for parts in zip(*((b.input, b.target) for b in batches), strict=True))
    assert x.equal(text[: size * n])
    assert y.equal(text[1 : size * n + 1])
    assert [batch.fresh for batch in batches] == [True] + [False] * (len(batches) - 1)


def test_the_next_epoch_starts_afresh_with_the_same_text() -> None:
    task = language(bptt=4)
    again = task.train_batch(task.epoch_steps(3), 3)
    assert again.fresh
    assert again.input.equal(task.train_batch(0, 3).input)


@pytest.mark.parametrize("rows", [1, 2, 5, 10_000])
def test_evaluation_asks_for_every_token_but_the_first_exactly_once(rows: int) -> None:
    task = language(bptt=4, evaluation_rows=rows)
    text = task.texts["test"]
    batches = list(task.batches("test", 128))
    asked = torch.cat([batch.target for batch in batches]).t()  # (B, T)
    counted = asked != -100
    assert asked[counted].equal(text[1:])
    assert torch.cat([batch.input for batch in batches]).t()[counted].equal(text[:-1])
    assert int(counted.sum(1).max() - counted.sum(1).min()) <= 1
    assert [batch.fresh for batch in batches] == [True] + [False] * (len(batches) - 1)


def test_one_row_gives_the_texts_own_perplexity_however_it_is_cut() -> None:
    words = language().interface.outputs
    model = sr.SequenceModel(sr.GRU(4, 8), words, vocab_size=words, readout="each").double().requires_grad_(False)
    found = []
    for bptt in (1, 4, 1000):
        task, state, sums = language(bptt=bptt, evaluation_rows=1), None, {"cross_entropy": 0.0, "count": 0.0}
        for batch in task.batches("test", 1):
            output, state = model(batch.input, None if batch.fresh else state)
            sums = {key: sums[key] + float(value) for key, value in task.scores(output, batch).items()}
        found.append(task.summary(sums)["perplexity"])
    assert found == pytest.approx([found[0]] * 3, rel=1e-9)


def test_padding_takes_no_part_in_the_loss() -> None:
    task = language()
    output = torch.randn(2, 2, 5)
    target = torch.tensor([[1, 2], [3, -100]])
    want = torch.nn.functional.cross_entropy(output.flatten(0, 1)[:3], target.flatten()[:3])
    batch = Batch(target.clamp(min=0), target)
    assert float(task.loss(output, batch)) == pytest.approx(float(want))
    assert float(task.scores(output, batch)["count"]) == 3


def test_perplexity_is_the_exponential_of_the_loss_and_infinite_beyond_any_number() -> None:
    task = language()
    assert task.summary({"cross_entropy": 6.0, "count": 2.0}) == {"loss": 3.0, "perplexity": pytest.approx(math.exp(3.0))}
    assert task.summary({"cross_entropy": 1e4, "count": 1.0})["perplexity"] == math.inf


@pytest.mark.parametrize("name", ["bptt", "evaluation_rows"])
def test_a_setting_that_is_not_positive_is_named(name: str) -> None:
    with pytest.raises(ArgumentError, match=f"`{name}`"):
        make_task("ptb", **{name: 0})


def test_more_rows_than_the_text_has_predictions_are_refused() -> None:
    with pytest.raises(ArgumentError, match="`batch_size` must be at most"):
        language().train_batch(0, 10_000)


def test_a_negative_step_is_refused() -> None:
    with pytest.raises(ArgumentError, match="`step`"):
        language().train_batch(-1, 2)


def test_an_output_of_the_wrong_shape_is_refused() -> None:
    task = language()
    batch = task.train_batch(0, 2)
    with pytest.raises(ShapeError, match="`output`"):
        task.loss(torch.zeros(2, task.interface.outputs), batch)


def test_a_word_of_the_test_text_that_training_lacks_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steadyrnn.tasks.locate.CHECKSUMS", {})
    (folder / "ptb" / "ptb.test.txt").write_bytes(b" the zebra \n")
    with pytest.raises(DataError, match="'zebra'"):
        language()
