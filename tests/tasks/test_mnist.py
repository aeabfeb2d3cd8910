"""Digits: how an image is read."""

from pathlib import Path

import numpy
import pytest
import torch

from steadyrnn.errors import ArgumentError
from steadyrnn.tasks.registry import make_task
from tests.support.stored_data import make_folder


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return make_folder(tmp_path, monkeypatch)


def test_a_flat_image_has_its_pixels_over_255() -> None:
    flat, _ = images("mnist")
    assert flat.shape == (9, 784)
    assert float(flat.max()) == 1.0
    assert (flat[:, 0] * 255).round().tolist() == list(range(100, 109))


def images(name: str, **settings: object) -> tuple[torch.Tensor, torch.Tensor]:
    batch = next(iter(make_task(name, validation=5, **settings).batches("test", 100)))
    return batch.input, batch.target


def test_pixels_and_rows_follow_the_flat_image() -> None:
    flat, labels = images("mnist")
    pixels, _ = images("pixel-mnist")
    pairs, _ = images("pixel-mnist", pixels_per_step=2)
    rows, again = images("mnist-rows")
    assert (pixels.shape, pairs.shape, rows.shape) == ((784, 9, 1), (392, 9, 2), (28, 9, 28))
    for sequence in (pixels, pairs, rows):
        assert sequence.transpose(0, 1).flatten(1).equal(flat)
    assert labels.equal(again)


def test_one_order_of_pixels_serves_every_image_split_and_seed() -> None:
    flat, _ = images("mnist")
    permuted, _ = images("permuted-mnist")
    other_seed, _ = images("permuted-mnist", seed=7)
    other_order, _ = images("permuted-mnist", permutation=1)
    assert permuted.equal(other_seed)
    assert not permuted.equal(other_order)
    rows = permuted.squeeze(-1).t()
    assert rows.sort(1).values.equal(flat.sort(1).values)
    assert not rows.equal(flat)
    task, plain = make_task("permuted-mnist", validation=5), make_task("pixel-mnist", validation=5)
    order = task.layout.order  # type: ignore[attr-defined]
    assert task.train_batch(0, 4).input.equal(plain.train_batch(0, 4).input[order])


def test_the_order_of_pixels_never_changes_from_release_to_release() -> None:
    order = make_task("permuted-mnist", validation=5).layout.order  # type: ignore[attr-defined]
    assert order[:6].tolist() == [7, 300, 549, 172, 654, 344]


@pytest.mark.parametrize("number", [-1, 2**63])
def test_a_permutation_out_of_range_is_refused_by_its_own_name(number: int) -> None:
    with pytest.raises(ArgumentError, match=f"`permutation` must be .* but is {number}"):
        make_task("permuted-mnist", permutation=number)


@pytest.mark.parametrize("width", [0, -1, 3, 785])
def test_pixels_that_do_not_divide_the_image_are_refused(width: int) -> None:
    with pytest.raises(ArgumentError, match="`pixels_per_step`"):
        make_task("pixel-mnist", pixels_per_step=width)


def order_of(permutation: int | str) -> torch.Tensor:
    task = make_task("permuted-mnist", validation=5, permutation=permutation)
    return task.layout.order  # type: ignore[attr-defined, no-any-return]


def test_the_order_of_the_exprnn_is_the_one_that_numpy_draws() -> None:
    order = order_of("numpy:92916")
    assert order.sort().values.tolist() == [*range(784)]
    assert order.tolist() == numpy.random.RandomState(92916).permutation(784).tolist()
    assert order[:8].tolist() == [319, 576, 323, 107, 355, 716, 197, 20]  # from release to release


def test_the_order_of_numpy_is_none_of_ours() -> None:
    assert not order_of("numpy:92916").equal(order_of(92916))
    assert not order_of("numpy:0").equal(order_of(0))


def test_images_are_read_in_the_order_of_the_exprnn() -> None:
    permuted, plain = images("permuted-mnist", permutation="numpy:92916")[0], images("pixel-mnist")[0]
    assert permuted.equal(plain[order_of("numpy:92916")])


@pytest.mark.parametrize(
    "text", ["numpy", "numpy:", "numpy:-1", "numpy:4294967296", "torch:1", "92916", "numpy:1.5", "numpy:\u0661", ""]
)
def test_a_text_that_names_no_permutation_is_refused(text: str) -> None:
    with pytest.raises(ArgumentError, match="`permutation` must be an integer, or numpy: with a seed"):
        make_task("permuted-mnist", permutation=text)


def test_all_images_are_split_anew_by_the_seed() -> None:
    one, same, other = (make_task("mnist", validation=5, test=0.2, seed=seed).splits.parts for seed in (0, 0, 1))  # type: ignore[attr-defined]
    assert {name: len(part) for name, part in one.items()} == {"train": 18, "validation": 5, "test": 6}
    whole = torch.cat([part.features for part in one.values()])
    first = sorted((int(row[0]), int(row[1])) for row in whole)  # unlike in any two images
    assert first == sorted([(i, i + 1) for i in range(20)] + [(100 + i, i + 1) for i in range(9)])
    assert all(one[name].features.equal(same[name].features) for name in one)
    assert not one["test"].features.equal(other["test"].features)
    assert all(part.targets.equal((part.features[:, 1].long() - 1) % 10) for part in one.values())


@pytest.mark.parametrize("share", [0.0, 1.0, 2, -0.1, float("nan")])
def test_a_share_that_leaves_nothing_is_refused(share: float) -> None:
    with pytest.raises(ArgumentError, match="`test` must be between 0 and 1"):
        make_task("mnist", validation=5, test=share)


@pytest.mark.parametrize("name", ["mnist", "mnist-rows", "pixel-mnist", "permuted-mnist"])
def test_training_targets_are_smoothed_and_scores_are_not(name: str) -> None:
    smooth, plain = (make_task(name, validation=5, label_smoothing=share) for share in (0.1, 0.0))
    batch = plain.train_batch(0, 4)
    torch.manual_seed(0)
    logits = torch.randn(4, 10, dtype=torch.float64)
    wanted = torch.full((4, 10), 0.01, dtype=torch.float64)
    wanted[range(4), batch.target] += 0.9
    expected = -(wanted * logits.log_softmax(-1)).sum(-1).mean()
    torch.testing.assert_close(smooth.loss(logits, batch), expected, rtol=16 * 2.0**-52, atol=0)
    assert plain.loss(logits, batch) < smooth.loss(batch_of_certain(batch.target), batch)
    assert smooth.scores(logits, batch) == plain.scores(logits, batch)


def batch_of_certain(target: torch.Tensor) -> torch.Tensor:
    """Return logits of an answer that is right and nearly certain: a smoothed target makes that dear."""
    return 100.0 * torch.nn.functional.one_hot(target, 10).double()


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_a_smoothing_that_leaves_no_target_is_refused(share: float) -> None:
    with pytest.raises(ArgumentError, match="`label_smoothing` must be at least 0 and below 1"):
        make_task("mnist", label_smoothing=share)
