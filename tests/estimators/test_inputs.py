"""What estimators take as X and y, and what they refuse."""

from typing import Any

import numpy as np
import polars
import pytest
import torch

from steadyrnn.errors import SteadyError

from .waves import make_classifier, make_forecaster, make_regressor, ragged_waves, wave_table

X, Y = wave_table(40)
RAGGED, LABELS = ragged_waves(40)
PAIRS = ragged_waves(40, channels=2)[0]
OBJECTS = np.empty(40, dtype=object)
OBJECTS[:] = RAGGED


@pytest.mark.parametrize(
    "series",
    [
        pytest.param(X, id="table"),
        pytest.param(X.tolist(), id="lists of numbers"),
        pytest.param(X[:, :, None], id="cube of one channel"),
        pytest.param(np.stack([X, X], 2), id="cube of two channels"),
        pytest.param(torch.tensor(X), id="tensor"),
        pytest.param(torch.tensor(X)[:, :, None], id="tensor of three dimensions"),
        pytest.param(polars.DataFrame(X), id="frame"),
        pytest.param(RAGGED, id="lengths"),
        pytest.param([one.tolist() for one in RAGGED], id="lists of different lengths"),
        pytest.param(tuple(map(torch.tensor, RAGGED)), id="tuple of tensors"),
        pytest.param(OBJECTS, id="array of arrays"),
        pytest.param(PAIRS, id="lengths and channels"),
    ],
)
def test_series_of_every_form_are_learned(series: Any) -> None:
    classifier = make_classifier(epochs=3).fit(series, LABELS)
    assert classifier.predict(series).shape == (40,)
    assert set(classifier.predict(series[:5])) <= {"fast", "slow"}


def test_the_same_series_give_the_same_network_in_every_form() -> None:
    want = make_classifier(epochs=2).fit(X, Y).predict_proba(X)
    for form in (X[:, :, None], [*X], [row[:, None] for row in X], X.tolist()):
        assert np.array_equal(make_classifier(epochs=2).fit(form, Y).predict_proba(form), want)


def test_a_network_that_learned_from_a_table_takes_longer_series_one_by_one() -> None:
    classifier = make_classifier(epochs=2).fit(X, Y)
    assert classifier.predict([np.zeros(7), np.zeros(100)]).shape == (2,)
    listed = make_classifier(epochs=2).fit([*X], Y)
    assert listed.predict(X[:, :10]).shape == (40,)


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param(np.arange(40) % 2 == 0, id="booleans"),
        pytest.param(np.arange(40) % 3 - 1, id="integers"),
        pytest.param((np.arange(40) % 2).astype(np.float64), id="whole floats"),
        pytest.param(np.array(["ja", "nein, nie"] * 20), id="texts"),
        pytest.param(np.array(["ja", "nein"] * 20, dtype=object), id="objects"),
        pytest.param(["a", "b"] * 20, id="list"),
        pytest.param(np.array([10**12, -5] * 20), id="large integers"),
    ],
)
def test_labels_of_every_type_come_back(labels: Any) -> None:
    classifier = make_classifier(epochs=2).fit(X, labels)
    assert classifier.classes_.tolist() == sorted(set(np.asarray(labels).tolist()))
    assert classifier.predict(X).dtype == np.unique(labels).dtype


def test_several_numbers_are_predicted_in_the_shape_they_had() -> None:
    two = np.stack([X.sum(1), X[:, 0]], 1)
    assert make_regressor(epochs=2).fit(X, two).predict(X).shape == (40, 2)
    assert make_regressor(epochs=2).fit(X, two[:, :1]).predict(X).shape == (40, 1)
    assert make_regressor(epochs=2).fit(X, two[:, 0]).predict(X).shape == (40,)


def test_numbers_are_in_the_units_of_the_target() -> None:
    target = 1e6 + 1e3 * X[:, 0]
    found = make_regressor(epochs=2).fit(X, target).predict(X)
    assert np.abs(found - 1e6).max() < 1e4


HOLES = X.copy()
HOLES[3, 5] = np.nan


@pytest.mark.parametrize("series", [HOLES, HOLES[:, :, None], [*HOLES]], ids=["table", "cube", "list"])
def test_missing_values_are_refused_unless_it_is_said_what_becomes_of_them(series: Any) -> None:
    with pytest.raises(ValueError, match="contains NaN"):
        make_classifier().fit(series, Y)
    for missing in ("mask", "interpolate"):
        shares = make_classifier(epochs=1, missing=missing).fit(series, Y).predict_proba(series)
        assert np.isfinite(shares).all()


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"epochs": 0}, "`epochs`"), ({"epochs": 1.5}, "`epochs`"), ({"batch_size": 0}, "`batch_size`"),
        ({"width": -1}, "`width`"), ({"width": "8"}, "`width`"), ({"patience": 0}, "`patience`"),
        ({"patch": 0}, "`patch`"), ({"patch": 99}, "`patch`"), ({"threads": 0}, "`threads`"),
        ({"learning_rate": -1.0}, "`learning_rate`"), ({"learning_rate": "fast"}, "`learning_rate`"),
        ({"validation_fraction": 1.0}, "`validation_fraction`"), ({"validation_fraction": None}, "`validation_fraction`"),
        ({"missing": "drop"}, "`missing`"), ({"scale": "max"}, "`scale`"), ({"device": "tpu"}, "`device`"),
        ({"model": "transformer"}, "transformer"), ({"model": 3}, "`model`"), ({"model": "mlp"}, "mlp"),
        ({"model": "auto", "want": "luck"}, "`want`"), ({"want": "speed"}, "`want`"),
        ({"model_options": {"colour": 3}}, "colour"), ({"model_options": "bound"}, "`model_options`"),
        ({"class_weight": "even"}, "`class_weight`"), ({"class_weight": {"fast": -1.0}}, "`class_weight`"),
    ],
)  # fmt: skip
def test_a_wrong_parameter_is_named_when_it_is_used(parameters: dict[str, Any], words: str) -> None:
    classifier = make_classifier(**parameters)
    with pytest.raises(SteadyError, match=words) as caught:
        classifier.fit(X, Y)
    assert isinstance(caught.value, ValueError | TypeError)


@pytest.mark.parametrize(
    ("series", "labels", "words"),
    [
        pytest.param(RAGGED, LABELS[:-1], "inconsistent numbers of samples", id="too few labels"),
        pytest.param(RAGGED, None, "requires y", id="no labels"),
        pytest.param([np.zeros(3), np.zeros((3, 2))], ["a", "b"], "number of channels", id="different channels"),
        pytest.param([np.zeros(3), np.zeros(0)], ["a", "b"], "minimum of 1", id="an empty series"),
        pytest.param([np.zeros(3), np.zeros((3, 2, 2))], ["a", "b"], r"X\[1\]", id="too many dimensions"),
        pytest.param([np.zeros(3), np.array([1.0, np.inf])], ["a", "b"], "infinity", id="infinity"),
        pytest.param([np.zeros(3), ["x", "y"]], ["a", "b"], "could not convert", id="text"),
        pytest.param(np.zeros((0, 3, 1)), [], "minimum of 1", id="no series"),
        pytest.param(X, np.ones(40), "one class", id="one class"),
        pytest.param(X, X[:, 0], "Unknown label type", id="numbers as labels"),
    ],
)
def test_wrong_data_are_refused_with_a_sentence(series: Any, labels: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make_classifier().fit(series, labels)


def test_other_channels_than_in_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="2 channels, but SequenceClassifier is expecting 1"):
        make_classifier(epochs=1).fit(RAGGED, LABELS).predict(PAIRS)
    with pytest.raises(ValueError, match="10 features, but SequenceClassifier is expecting 24"):
        make_classifier(epochs=1).fit(X, Y).predict(X[:, :10])


def test_class_weights_move_the_answer() -> None:
    noise = np.random.default_rng(0).normal(size=(60, 6))
    labels = np.array(["a", "b"] * 30)
    shares = [
        make_classifier(epochs=20, class_weight={"a": weight, "b": 1.0}).fit(noise, labels).predict_proba(noise)[:, 0].mean()
        for weight in (0.05, 20.0)
    ]
    assert shares[0] < 0.3 < 0.7 < shares[1]
    few = np.array(["a"] * 6 + ["b"] * 54)
    balanced = make_classifier(epochs=5, class_weight="balanced").fit(noise, few)
    assert (
        balanced.predict_proba(noise)[:, 0].mean() > make_classifier(epochs=5).fit(noise, few).predict_proba(noise)[:, 0].mean()
    )


@pytest.mark.parametrize("targets", [[5], ["x"], [], [0, 0], [0.5]], ids=str)
def test_a_forecaster_names_channels_that_are_not_there(targets: Any) -> None:
    with pytest.raises(SteadyError, match="`targets`"):
        make_forecaster(targets=targets).fit(np.zeros((60, 2)))
