"""Numbers of series, with the contract of scikit-learn."""

from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from steadyrnn.tasks.series.records import RawTarget

from .base import SequenceEstimator, with_shared_parameters

__all__ = ["SequenceRegressor"]


@with_shared_parameters
class SequenceRegressor(RegressorMixin, SequenceEstimator):  # type: ignore[misc]
    """Predict one or several numbers of each series.

    Everything but the target is as in :class:`~steadyrnn.SequenceClassifier`. Targets are scaled like channels, and
    predictions are in the units of ``y``.

    Args:
        <parameters of every estimator>

    Example:
        >>> import numpy as np
        >>> X = np.random.default_rng(0).normal(size=(60, 12))
        >>> sums = sr.SequenceRegressor("gru", width=8, epochs=60, learning_rate=0.03, random_state=0).fit(X, X.sum(1))
        >>> sums.predict(X).shape, sums.score(X, X.sum(1)) > 0.8
        ((60,), True)
    """

    _kind = "regression"
    _target_checks = {"multi_output": True, "y_numeric": True}  # noqa: RUF012

    def fit(self, X: Any, y: Any) -> Self:
        """Train a fresh network.

        Args:
            X: N series.
            y: Numbers, (N,) or (N, C).
        """
        series = self._read(X, reset=True)
        y = self._check_target(series, y)
        self._columns = None if y.ndim == 1 else y.shape[1]
        return self._fit(series, y)

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Train on from the present weights, for one pass through some series.

        The first call fixes the scaling; after ``fit`` it is that of ``fit``. Without ``learning_rate`` the rate is that of
        ``fit``, or 0.003.

        Args:
            X: Some series.
            y: Their numbers.
        """
        first = not self._is_fitted()
        series = self._read(X, reset=first)
        y = self._check_target(series, y)
        columns = None if y.ndim == 1 else y.shape[1]
        if first:
            self._columns = columns
        elif columns != self._columns:
            raise ValueError(f"`y` must have {self._columns or 1} columns, as in the first call, but has shape {y.shape}.")
        return self._fit_more(series, y)

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the numbers of each series, (N,) or (N, C) as ``y`` was."""
        check_is_fitted(self)
        outputs = torch.from_numpy(self._outputs(self._read(X, reset=False).values))
        found: NDArray[np.float64] = self.target_scaling_.undo(outputs).numpy()
        return found[:, 0] if self._columns is None else found

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn asks about an estimator."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _target(self, y: NDArray[Any]) -> RawTarget:
        numbers = torch.from_numpy(np.asarray(y, np.float64).reshape(len(y), -1).copy())
        names = ("y",) if self._columns is None else tuple(f"y{place}" for place in range(numbers.shape[1]))
        return RawTarget(names, numbers=numbers)
