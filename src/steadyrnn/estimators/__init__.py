"""Estimators with the contract of scikit-learn, which is an optional package."""

from importlib.util import find_spec

from steadyrnn.errors import MissingExtraError

if find_spec("sklearn") is None:
    raise MissingExtraError(
        "SequenceClassifier, SequenceRegressor and SequenceForecaster need scikit-learn, which is not installed: "
        "pip install 'steadyrnn[sklearn]'."
    )
