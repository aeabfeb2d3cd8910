"""The checks that scikit-learn has for estimators."""

from collections.abc import Callable
from typing import Any

from sklearn.utils.estimator_checks import parametrize_with_checks

import steadyrnn as sr

SMALL: dict[str, Any] = {"width": 16, "learning_rate": 0.01, "device": "cpu"}
STEPS = "rows of X are the steps of one series, in order, and not samples"
EXPECTED: dict[str, dict[str, str]] = {
    "SequenceForecaster": {
        "check_methods_sample_order_invariance": STEPS,
        "check_methods_subset_invariance": STEPS,
        "check_fit1d": "an array (T,) is a series of one channel",
    }
}


@parametrize_with_checks(
    [
        sr.SequenceClassifier(epochs=100, **SMALL),
        sr.SequenceRegressor(epochs=100, **SMALL),
        sr.SequenceForecaster(epochs=3, window=4, **SMALL),
    ],
    expected_failed_checks=lambda estimator: EXPECTED.get(type(estimator).__name__, {}),
)
def test_a_check_of_scikit_learn_passes(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)
