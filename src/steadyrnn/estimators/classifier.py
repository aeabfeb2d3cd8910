"""Classes of series, with the contract of scikit-learn."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from steadyrnn.errors import ArgumentError, DataError
from steadyrnn.tasks.series.records import RawTarget

from .base import SequenceEstimator, with_shared_parameters

__all__ = ["SequenceClassifier"]

Numbers = NDArray[np.float64]


@with_shared_parameters
@dataclass(kw_only=True, eq=False, repr=False)
class SequenceClassifier(ClassifierMixin, SequenceEstimator):  # type: ignore[misc]
    """Name the class of each series.

    Parameters and results are those of scikit-learn: pipelines, ``cross_val_score``, ``GridSearchCV``, ``clone`` and pickle
    work. ``X`` is a table (N, T), N series of T steps and one channel; an array (N, T, D); or a list of arrays (T_i,) or
    (T_i, D) of different lengths. A table must have as many columns later as in ``fit``. Labels are of any type.

    All series are for training, except those held out for validation, by which the best weights are chosen. If these would
    be fewer than five, none is held out. Predictions are computed in float64, so that the answer for a series does not depend
    on those beside it.

    Args:
        <parameters of every estimator>
        class_weight: None; ``"balanced"``; or a dictionary from labels to weights in the loss.

    Attributes:
        classes_: The labels, in order.
        model_: The network, a :class:`~steadyrnn.SequenceModel` on the CPU.
        n_features_in_: Columns of a table, channels otherwise.
        n_iter_: Optimizer steps.
        history_: The validation score in the course of training.
        validation_: Scores of the best validation.
        parts_: Numbers of the series for training and for validation.
        scaling_: Mean and deviation of each channel.
        input_bound_: Largest 2-norm of what the network read in one step.
        choice_: Why the network was chosen; None where it was named.
        rate_test_: The test of learning rates; None where the rate was given.
        learning_rate_: The rate.
        run_folder_: The run folder; None without ``runs``.

    Example:
        >>> import numpy as np
        >>> time = np.linspace(0, 6, 40)
        >>> X = np.stack([np.sin((1 + n % 2) * time + n) for n in range(40)])
        >>> y = np.array(["slow", "fast"] * 20)
        >>> waves = sr.SequenceClassifier("gru", width=8, epochs=60, learning_rate=0.03, random_state=0).fit(X, y)
        >>> waves.predict(X[:2]).tolist(), waves.score(X, y) > 0.9
        (['slow', 'fast'], True)
    """

    _kind = "classification"

    class_weight: Any = None

    def fit(self, X: Any, y: Any) -> Self:
        """Train a fresh network.

        Args:
            X: N series.
            y: Their labels, (N,).
        """
        series = self._read(X, reset=True)
        y = self._check_labels(series, y)
        self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise DataError(f"`y` has one class only, {self.classes_[0]!r}: there is nothing to tell apart.")
        self._weights = self._weigh(self.class_weight, y)
        return self._fit(series, y)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Train on from the present weights, for one pass through some series.

        The first call fixes classes and scaling; after ``fit`` they are those of ``fit``. Without ``learning_rate`` the rate is
        that of ``fit``, or 0.003.

        Args:
            X: Some series.
            y: Their labels.
            classes: All labels there will be; needed in the first call.
        """
        first = not self._is_fitted()
        series = self._read(X, reset=first)
        y = self._check_labels(series, y)
        self._fix_classes(classes, y, first)
        return self._fit_more(series, y)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the likeliest label of each series, (N,)."""
        places = self._logits(X).argmax(1)
        chosen: NDArray[Any] = self.classes_[places]
        return chosen

    def predict_proba(self, X: Any) -> Numbers:
        """Return the probability of each class, (N, C), in the order of ``classes_``."""
        logits = self._logits(X)
        shares = np.exp(logits - logits.max(1, keepdims=True))
        found: Numbers = shares / shares.sum(1, keepdims=True)
        return found

    def decision_function(self, X: Any) -> Numbers:
        """Return the logit of each class, (N, C); of two classes the second's minus the first's, (N,)."""
        logits = self._logits(X)
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def _logits(self, X: Any) -> Numbers:
        check_is_fitted(self)
        return self._outputs(self._read(X, reset=False).values)

    def _check_labels(self, series: Any, y: Any) -> NDArray[Any]:
        labels: NDArray[Any] = self._check_target(series, y)
        check_classification_targets(labels)
        return labels

    def _fix_classes(self, classes: Any, y: NDArray[Any], first: bool) -> None:
        """Note the classes of the first call; compare those of another one."""
        if first:
            if classes is None:
                raise ArgumentError("classes must be passed on the first call to partial_fit: all labels there will be.")
            self.classes_ = np.unique(classes)
            if isinstance(self.class_weight, str):
                raise ArgumentError(
                    "`class_weight` is 'balanced', but the first call of partial_fit knows some series only. Give a dictionary."
                )
            self._weights = self._weigh(self.class_weight, self.classes_)
        elif classes is not None and not np.array_equal(self.classes_, np.unique(classes)):
            raise ArgumentError(f"`classes` must be those of the first call, {self.classes_.tolist()[:20]}, but are others.")
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise ArgumentError(f"`y` has the label {unknown[0]!r}, which is not among the classes of the first call.")

    def _weigh(self, class_weight: Any, y: NDArray[Any]) -> tuple[float, ...] | None:
        """Return what each class weighs in the loss; None where all weigh the same."""
        if class_weight is None:
            return None
        if not isinstance(class_weight, dict) and not (isinstance(class_weight, str) and class_weight == "balanced"):
            raise ArgumentError(f"`class_weight` must be None, 'balanced' or a dictionary, but is {class_weight!r:.80}.")
        weights = compute_class_weight(class_weight, classes=self.classes_, y=y)
        if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
            raise ArgumentError("`class_weight` must hold finite numbers from 0 on, one of them above 0, but does not.")
        return tuple(map(float, weights))

    @property
    def _class_names(self) -> tuple[str, ...]:
        return tuple(map(str, self.classes_.tolist()))

    @property
    def _class_weights(self) -> tuple[float, ...] | None:
        return self._weights

    def _target(self, y: NDArray[Any]) -> RawTarget:
        names = self._class_names
        return RawTarget(("y",), texts=tuple(names[place] for place in np.searchsorted(self.classes_, y).tolist()))
