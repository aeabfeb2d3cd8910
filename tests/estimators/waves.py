"""Waves that are fast or slow, and small estimators that learn them in a second."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import steadyrnn as sr

__all__ = ["QUICK", "make_classifier", "make_forecaster", "make_regressor", "ragged_waves", "wave_table"]

QUICK: dict[str, Any] = {"model": "gru", "width": 8, "epochs": 40, "learning_rate": 0.03, "random_state": 0, "device": "cpu"}


def wave_table(count: int = 60, steps: int = 24, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.str_]]:
    """Return noisy waves (N, T) of two speeds, and which."""
    rng = np.random.default_rng(seed)
    fast = np.arange(count) % 2
    time = np.arange(steps)
    waves = np.sin((0.3 + 0.9 * fast[:, None]) * time + rng.uniform(0, 6, (count, 1)))
    return waves + 0.1 * rng.normal(size=waves.shape), np.array(["slow", "fast"])[fast]


def ragged_waves(count: int = 60, channels: int = 1) -> tuple[list[NDArray[np.float64]], NDArray[np.str_]]:
    """Return the same in lengths of 10 to 24; a second channel is noise."""
    X, y = wave_table(count)
    rng = np.random.default_rng(1)
    series = [row[: rng.integers(10, 25)] for row in X]
    return [np.stack([one, *rng.normal(size=(channels - 1, len(one)))], 1) if channels > 1 else one for one in series], y


def make_classifier(**more: Any) -> sr.SequenceClassifier:
    """Return a small classifier."""
    return sr.SequenceClassifier(**{**QUICK, **more})


def make_regressor(**more: Any) -> sr.SequenceRegressor:
    """Return a small regressor."""
    return sr.SequenceRegressor(**{**QUICK, **more})


def make_forecaster(**more: Any) -> sr.SequenceForecaster:
    """Return a small forecaster of 3 steps."""
    return sr.SequenceForecaster(**{**QUICK, "horizon": 3, "window": 16, "epochs": 5, **more})
