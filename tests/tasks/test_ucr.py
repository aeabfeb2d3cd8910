"""The UCR archive: the paper's table, and how a series is read."""

from pathlib import Path

import pytest
import torch

from steadyrnn.errors import ArgumentError
from steadyrnn.tasks.registry import make_task
from steadyrnn.tasks.reshape import features_per_step
from steadyrnn.tasks.ucr_sets import UCR_SETS, ucr_set
from tests.support.stored_data import make_folder

# Zhang, Lei, Dhillon, Table 4: training and test size, length, classes, depth, parameters of the RNN of width 32
TABLE = {
    "50words": (450, 455, 270, 50, 27, 3058),
    "Adiac": (390, 391, 176, 37, 16, 2694),
    "ArrowHead": (36, 175, 251, 3, 251, 1219),
    "Beef": (30, 30, 470, 5, 47, 1606),
    "BeetleFly": (20, 20, 512, 2, 32, 1699),
    "CBF": (30, 900, 128, 3, 16, 1476),
    "Coffee": (28, 28, 286, 2, 22, 1570),
    "Cricket_X": (390, 390, 300, 12, 20, 1997),
    "DistalPhalanxOutlineCorrect": (276, 600, 80, 2, 10, 1410),
    "DistalPhalanxTW": (139, 400, 80, 6, 10, 1641),  # the table prints the sizes of another set, 154 and 399
    "ECG200": (100, 100, 96, 2, 12, 1410),
    "ECG5000": (500, 4500, 140, 5, 14, 1606),
    "ECGFiveDays": (23, 861, 136, 2, 17, 1443),
    "FaceAll": (560, 1690, 131, 14, 131, 1615),
    "FaceFour": (24, 88, 350, 4, 25, 1701),
    "FacesUCR": (200, 2050, 131, 14, 131, 1615),
    "Gun_Point": (50, 150, 150, 2, 15, 1507),
    "InsectWingbeatSound": (220, 1980, 256, 11, 16, 1996),
    "ItalyPowerDemand": (67, 1029, 24, 2, 6, 1315),
    "Lighting2": (60, 61, 637, 2, 49, 1570),
    "MiddlePhalanxOutlineCorrect": (291, 600, 80, 2, 10, 1410),
}

SPLITS = ("train", "validation", "test")


def test_all_sets_of_the_table_are_known_by_both_names() -> None:
    assert {known.paper for known in UCR_SETS.values()} == set(TABLE)
    assert all(ucr_set(known.name) is ucr_set(known.paper) is known for known in UCR_SETS.values())


@pytest.mark.parametrize("name", TABLE)
def test_sizes_depth_and_parameters_are_the_papers(name: str) -> None:
    known = ucr_set(name)
    train, test, length, classes, depth, parameters = TABLE[name]
    assert (*known.counts(), known.length, len(known.labels)) == (train, test, length, classes)
    features = known.features or features_per_step(length)
    assert features * depth == length
    n, outputs = 32, classes + known.extra
    assert n * n + n * features + n + n * outputs + outputs + n == parameters


def test_exchanged_sets_train_on_the_test_file() -> None:
    train, test = ucr_set("DistalPhalanxTW").paths()
    assert train.endswith("DistalPhalanxTW_TEST.tsv")
    assert test.endswith("DistalPhalanxTW_TRAIN.tsv")
    assert sorted(known.name for known in UCR_SETS.values() if known.exchanged) == [
        "DistalPhalanxOutlineCorrect", "DistalPhalanxTW", "MiddlePhalanxOutlineCorrect",
    ]  # fmt: skip


@pytest.mark.parametrize("length", [1, 2, 24, 97, 144, 637])
def test_a_step_takes_the_largest_divisor_up_to_the_root(length: int) -> None:
    taken = features_per_step(length)
    assert length % taken == 0
    assert taken * taken <= length
    assert not [d for d in range(taken + 1, length + 1) if length % d == 0 and d * d <= length]


def test_a_series_is_read_in_order_and_its_label_counted_from_0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_folder(tmp_path, monkeypatch)
    batch = next(iter(make_task("ucr", dataset="CBF").batches("test", 100)))
    assert batch.input.shape == (4, 14, 3)
    assert batch.input[:, 1].flatten().tolist() == [(12 + t) / 8 - 3 for t in range(12)]
    assert batch.target.tolist() == [i % 3 for i in range(14)]
    wide = make_task("ucr", features_per_step=12, paper_outputs=True)
    assert (wide.interface.inputs, wide.interface.outputs) == (12, 4)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"dataset": "Wafer"}, "`dataset` must be one of FiftyWords, Adiac"),
        ({"features_per_step": 5}, "`features_per_step` must be a divisor"),
        ({"features_per_step": 0}, "`features_per_step`"),
        ({"noise": -0.1}, "`noise` must be from 0 to 10, but is -0.1"),
        ({"noise": float("nan")}, "`noise` must be from 0 to 10, but is nan"),
        ({"shift": 1.5}, "`shift` must be from 0 to 1, but is 1.5"),
        ({"shift": float("nan")}, "`shift` must be from 0 to 1, but is nan"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        make_task("ucr", **settings)


def test_refit_trains_on_all_series_and_scores_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_folder(tmp_path, monkeypatch)
    held, whole = (make_task("ucr", dataset="CBF", refit=refit) for refit in (False, True))
    counts = [{split: sum(len(batch.target) for batch in task.batches(split, 4)) for split in SPLITS} for task in (held, whole)]
    assert counts[1]["train"] == counts[1]["validation"] == counts[0]["train"] + counts[0]["validation"]
    assert counts[1]["test"] == counts[0]["test"]
    seen = torch.cat([whole.train_batch(step, 1).input.flatten() for step in range(whole.epoch_steps(1))])
    assert sorted(seen.tolist()) == sorted(next(iter(whole.batches("validation", 100))).input.flatten().tolist())


def test_noise_is_drawn_anew_for_training_batches_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_folder(tmp_path, monkeypatch)
    clean, noisy = (make_task("ucr", dataset="CBF", noise=noise) for noise in (0.0, 0.5))
    count = clean.epoch_steps(4)
    added = [noisy.train_batch(step, 4).input - clean.train_batch(step, 4).input for step in range(200)]
    assert torch.equal(noisy.train_batch(3, 4).input, noisy.train_batch(3, 4).input)
    assert not torch.equal(added[0], added[count])
    drawn = torch.cat([one.flatten() for one in added])
    assert abs(float(drawn.mean())) < 5 * 0.5 / len(drawn) ** 0.5
    assert abs(float(drawn.std()) / 0.5 - 1) < 5 / (2 * len(drawn)) ** 0.5
    for split in ("validation", "test"):
        pairs = zip(clean.batches(split, 5), noisy.batches(split, 5), strict=True)
        assert all(torch.equal(one.input, other.input) for one, other in pairs)


def test_training_series_are_shifted_by_every_whole_number_up_to_the_largest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_folder(tmp_path, monkeypatch)
    plain, shifted = (make_task("ucr", dataset="CBF", features_per_step=1, shift=shift) for shift in (0.0, 0.25))
    length, most = 12, 3
    places = torch.arange(length)
    seen = set[int]()
    for step in range(60):
        before, after = (task.train_batch(step, 4).input.squeeze(-1) for task in (plain, shifted))  # (L, B)
        for one, other in zip(before.T, after.T, strict=True):
            fits = [k for k in range(-most, most + 1) if torch.equal(one[(places - k).clamp(0, length - 1)], other)]
            assert fits
            seen.update(fits if len(fits) == 1 else ())
    assert seen == set(range(-most, most + 1))
    assert torch.equal(shifted.train_batch(3, 4).input, shifted.train_batch(3, 4).input)
    for split in ("validation", "test"):
        pairs = zip(plain.batches(split, 5), shifted.batches(split, 5), strict=True)
        assert all(torch.equal(one.input, other.input) for one, other in pairs)
