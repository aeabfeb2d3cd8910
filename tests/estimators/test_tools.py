"""Estimators in the tools of scikit-learn: pipelines, searches, copies, pickles."""

import copy
import pickle
import random
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from .waves import make_classifier, make_forecaster, make_regressor, ragged_waves, wave_table

X, Y = wave_table()
WAVE = np.sin(np.arange(200) / 4)
EPS = np.finfo(np.float64).eps


def fitted(kind: str) -> tuple[BaseEstimator, Any]:
    """Return a fitted estimator, and what it predicts from."""
    if kind == "forecaster":
        return make_forecaster().fit(WAVE), WAVE
    return (make_classifier().fit(X, Y) if kind == "classifier" else make_regressor(epochs=10).fit(X, X.sum(1))), X


KINDS = ("classifier", "regressor", "forecaster")


def test_an_easy_set_is_learned() -> None:
    held, labels = wave_table(count=200, seed=5)
    assert make_classifier().fit(X, Y).score(held, labels) > 0.9  # of two classes that are alike in number


def test_a_pipeline_with_a_scaler_learns() -> None:
    assert make_pipeline(StandardScaler(), make_classifier()).fit(X, Y).score(X, Y) > 0.9


def test_a_cross_validation_runs_in_two_processes() -> None:
    scores = cross_val_score(make_classifier(epochs=10), X, Y, cv=2, n_jobs=2)
    assert scores.tolist() == cross_val_score(make_classifier(epochs=10), X, Y, cv=2).tolist()


def test_a_cross_validation_takes_series_of_different_lengths() -> None:
    series, labels = ragged_waves()
    assert cross_val_score(make_classifier(), series, labels, cv=2).mean() > 0.7


def test_a_search_tries_wishes_and_widths() -> None:
    grid = {"want": [None, "speed"], "width": np.array([4, 8])}
    search = GridSearchCV(make_classifier(model="auto", epochs=3), grid, cv=2).fit(X, Y)
    assert set(search.best_params_) == {"want", "width"}
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_a_forecaster_is_searched_over_splits_of_time() -> None:
    search = GridSearchCV(make_forecaster(epochs=2), {"width": [4, 8]}, cv=TimeSeriesSplit(2)).fit(WAVE)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.predict(WAVE).shape == (3, 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["pickle", "joblib", "deepcopy"])
def test_a_copy_predicts_the_same(kind: str, how: str, tmp_path: Path) -> None:
    estimator, data = fitted(kind)
    if how == "joblib":
        joblib.dump(estimator, tmp_path / "estimator")
        again = joblib.load(tmp_path / "estimator")
    else:
        again = pickle.loads(pickle.dumps(estimator)) if how == "pickle" else copy.deepcopy(estimator)
    assert np.array_equal(again.predict(data), estimator.predict(data))
    assert again.certify().to_dict() == estimator.certify().to_dict()


@pytest.mark.parametrize("kind", KINDS)
def test_a_clone_has_the_parameters_and_is_not_fitted(kind: str) -> None:
    estimator, data = fitted(kind)
    again = clone(estimator)
    assert again.get_params() == estimator.get_params()
    with pytest.raises(NotFittedError):
        again.predict(data)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_with_a_seed_is_repeated_bit_for_bit_and_leaves_random_states(kind: str) -> None:
    torch.manual_seed(7)
    random.seed(7)
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    first, data = fitted(kind)
    after = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    assert torch.equal(before[0], after[0])
    assert np.array_equal(before[1], after[1])
    assert before[2] == after[2]
    torch.manual_seed(8)
    second, _ = fitted(kind)
    assert np.array_equal(first.predict(data), second.predict(data))


def test_another_seed_gives_another_network() -> None:
    one, other = (make_classifier(random_state=seed, epochs=2).fit(X, Y) for seed in (0, 1))
    assert not np.array_equal(one.predict_proba(X), other.predict_proba(X))


@pytest.mark.parametrize("kind", ["classifier", "regressor"])
def test_a_series_has_the_same_answer_alone_and_among_longer_ones(kind: str) -> None:
    series, y = ragged_waves()
    estimator = make_classifier() if kind == "classifier" else make_regressor(epochs=10)
    estimator.fit(series, y if kind == "classifier" else [one.sum() for one in series])
    answer = estimator.predict_proba if kind == "classifier" else estimator.predict
    alone = np.concatenate([answer([one]) for one in series])
    # 24 steps of 8 units: a sum of 8 products each, whose rounding a gated network hands on with a factor of about 1
    assert np.abs(alone - answer(series)).max() <= 64 * 24 * 8 * EPS * max(1.0, np.abs(alone).max())


def test_predictions_are_probabilities_and_agree_with_the_decision() -> None:
    classifier = make_classifier().fit(X, Y)
    shares = classifier.predict_proba(X)
    assert np.abs(shares.sum(1) - 1).max() <= 4 * EPS
    assert np.array_equal(classifier.classes_[shares.argmax(1)], classifier.predict(X))
    assert np.array_equal(classifier.decision_function(X) > 0, shares[:, 1] > 0.5)


def test_a_certificate_holds_for_what_was_read() -> None:
    classifier = make_classifier(model="stable-spectral", epochs=3).fit(X, Y)
    certificate = classifier.certify()
    assert certificate.stable
    scaled = (X - classifier.scaling_.mean[0]) / classifier.scaling_.deviation[0]
    read = np.linalg.norm(scaled.reshape(len(X), -1, classifier.patch_), axis=-1).max()
    assert classifier.input_bound_ == pytest.approx(read, rel=float(np.finfo(np.float32).eps))  # the network reads float32
    assert certificate.state_bound < classifier.certify(10 * classifier.input_bound_).state_bound


def test_the_choice_and_the_test_of_rates_are_told() -> None:
    classifier = make_classifier(model="auto", width=None, learning_rate=None, epochs=2, want="stability").fit(X, Y)
    assert "stable-spectral" in classifier.choice_
    assert classifier.learning_rate_ == classifier.rate_test_["rate"]
    assert [line["step"] for line in classifier.history_][-1] == classifier.n_iter_
    assert make_classifier(epochs=1).fit(X, Y).choice_ is None


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_an_estimator_of_a_gpu_predicts_the_same_on_a_cpu(kind: str) -> None:
    data, y = (WAVE, None) if kind == "forecaster" else (X, Y if kind == "classifier" else X.sum(1))
    make = {"classifier": make_classifier, "regressor": make_regressor, "forecaster": make_forecaster}[kind]
    there = make(device="cuda").fit(data, y)
    here = pickle.loads(pickle.dumps(there)).set_params(device="cpu")
    a, b = (one.predict_proba(data) if kind == "classifier" else one.predict(data) for one in (there, here))
    assert np.abs(a - b).max() <= 64 * 24 * 8 * EPS * max(1.0, np.abs(a).max())
