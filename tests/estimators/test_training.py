"""How estimators train: what is held out, scaling, going on, the forecaster's windows."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from steadyrnn.errors import ArgumentError, DataError, ShapeError

from .waves import make_classifier, make_forecaster, make_regressor, wave_table

X, Y = wave_table()
WAVE = np.sin(np.arange(200) / 4)


def test_scaling_is_that_of_the_training_series_alone() -> None:
    numbers = np.random.default_rng(0).normal(size=(40, 6))
    regressor = make_regressor(epochs=1, validation_fraction=0.25).fit(numbers, numbers.sum(1))
    train = regressor.parts_["train"]
    held = np.setdiff1d(np.arange(40), train)
    assert len(held) == 10
    numbers[held] = numbers[held] * 100
    again = make_regressor(epochs=1, validation_fraction=0.25).fit(numbers, numbers.sum(1))
    assert again.scaling_ == regressor.scaling_
    assert again.target_scaling_ == regressor.target_scaling_
    assert regressor.scaling_.mean[0] == pytest.approx(numbers[train].mean())


def test_each_class_is_held_out_in_its_share() -> None:
    labels = np.array(["a"] * 40 + ["b"] * 20)
    classifier = make_classifier(epochs=1, validation_fraction=0.2).fit(X, labels)
    held = labels[classifier.parts_["validation"]]
    assert (held == "a").sum() == 8
    assert (held == "b").sum() == 4


def test_few_series_are_all_for_training() -> None:
    classifier = make_classifier(epochs=1).fit(X[:20], Y[:20])
    assert classifier.parts_["train"].tolist() == [*range(20)]
    assert make_classifier(epochs=1, validation_fraction=0).fit(X, Y).parts_["train"].tolist() == [*range(60)]


def test_no_series_is_kept_for_a_test() -> None:
    parts = make_classifier(epochs=1).fit(X, Y).parts_
    assert sorted([*parts["train"], *parts["validation"]]) == [*range(60)]


def test_the_end_of_a_series_is_held_out_and_does_not_reach_the_scaling() -> None:
    changed = WAVE.copy()
    changed[-30:] = 1e3
    assert make_forecaster(epochs=1).fit(changed).scaling_ == make_forecaster(epochs=1).fit(WAVE).scaling_
    assert make_forecaster(epochs=1).fit(WAVE).scaling_.mean[0] == pytest.approx(WAVE[:170].mean())


def test_passes_one_by_one_learn() -> None:
    classifier = make_classifier(learning_rate=0.02)
    for _ in range(40):
        classifier.partial_fit(X, Y, classes=["fast", "slow"])
    assert classifier.n_iter_ == 40 * 2
    assert classifier.score(X, Y) > 0.9


def test_a_pass_after_fit_goes_on_from_its_weights_with_its_scaling() -> None:
    classifier = make_classifier().fit(X, Y)
    scaling, steps, before = classifier.scaling_, classifier.n_iter_, classifier.predict_proba(X)
    classifier.partial_fit(X[:10] + 1, Y[:10])
    assert classifier.scaling_ == scaling
    assert classifier.n_iter_ == steps + 1
    moved = np.abs(classifier.predict_proba(X) - before).max()
    assert 0 < moved < 0.5  # one step of Adam, and not a fresh network
    assert classifier.fit(X, Y).n_iter_ == steps


def test_a_pass_has_the_classes_of_the_first_call() -> None:
    classifier = make_classifier()
    with pytest.raises(ValueError, match="classes must be passed"):
        classifier.partial_fit(X, Y)
    classifier.partial_fit(X[:4], ["a"] * 4, classes=["b", "a", "c"])
    assert classifier.classes_.tolist() == ["a", "b", "c"]
    assert classifier.predict_proba(X).shape == (60, 3)
    with pytest.raises(ArgumentError, match="first call"):
        classifier.partial_fit(X, Y, classes=["a", "b"])
    with pytest.raises(ArgumentError, match="'fast'"):
        classifier.partial_fit(X, Y)
    with pytest.raises(ArgumentError, match="balanced"):
        make_classifier(class_weight="balanced").partial_fit(X, Y, classes=["fast", "slow"])


def test_a_regressor_and_a_forecaster_go_on_too() -> None:
    regressor = make_regressor().partial_fit(X, X.sum(1)).partial_fit(X[:5], X[:5].sum(1))
    assert regressor.n_iter_ == 3
    with pytest.raises(ValueError, match="columns"):
        regressor.partial_fit(X, X[:, :2])
    forecaster = make_forecaster().fit(WAVE)
    before = forecaster.predict()
    forecaster.partial_fit(WAVE[:100])
    assert not np.array_equal(forecaster.predict(), before)  # it is of other steps now
    assert np.array_equal(forecaster.predict(), forecaster.predict(WAVE[:100]))


def test_a_forecast_is_near_the_truth_in_the_units_of_the_series() -> None:
    wave = 50 + 10 * WAVE
    forecaster = make_forecaster(epochs=40, width=16).fit(wave[:180])
    assert np.abs(forecaster.predict()[:, 0] - wave[180:183]).max() < 2  # of a wave of height 20
    assert forecaster.score(wave) > 0.95
    mean = make_forecaster(epochs=1, learning_rate=0.0).fit(wave)
    assert mean.score(wave) < 0.5


def test_forecasts_have_the_shape_of_what_was_asked() -> None:
    three = np.stack([WAVE, np.roll(WAVE, 5), np.cos(WAVE)], 1)
    assert make_forecaster(epochs=1).fit(three).predict().shape == (3, 3)
    assert make_forecaster(epochs=1, targets=[2, 0]).fit(three).predict(three[:50]).shape == (3, 2)
    several = make_forecaster(epochs=1, targets=[1]).fit([three, three[:100]])
    assert several.predict().shape == (2, 3, 1)
    assert np.array_equal(several.predict(), several.predict([three, three[:100]]))
    alone = several.predict(three)
    # 16 steps of 8 units: a sum of 8 products each, whose rounding a gated network hands on with a factor of about 1
    assert np.abs(several.predict()[0] - alone).max() <= 64 * 16 * 8 * np.finfo(np.float64).eps
    assert make_forecaster(epochs=1).fit(np.stack([three, three])).predict(three[None]).shape == (1, 3, 3)


def test_the_target_channels_are_forecast_in_their_order() -> None:
    both = np.stack([WAVE, 1000 + np.zeros(200)], 1)
    found = make_forecaster(epochs=1, targets=[1, 0]).fit(both).predict()
    assert np.abs(found[:, 0] - 1000).max() < 10
    assert np.abs(found[:, 1]).max() < 10


def test_a_series_without_a_window_is_refused() -> None:
    forecaster = make_forecaster(epochs=1)
    with pytest.raises(DataError, match="a window"):
        forecaster.fit(WAVE[:12])
    forecaster.fit(WAVE)
    with pytest.raises(ShapeError, match="at least 16 steps"):
        forecaster.predict(WAVE[:12])
    with pytest.raises(ShapeError, match="19 steps"):
        forecaster.score(WAVE[:18])


def test_nothing_is_forecast_before_fit() -> None:
    for call in (lambda one: one.predict(), lambda one: one.score(WAVE), lambda one: one.certify()):
        with pytest.raises(NotFittedError):
            call(make_forecaster())
