"""What all estimators share: reading X, training, answers, certificates."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_X_y
from sklearn.utils.validation import check_is_fitted
from torch import nn

from steadyrnn.certificates.certify import AnyCertificate, certify
from steadyrnn.errors import ShapeError
from steadyrnn.layers.arguments import fill_docstring
from steadyrnn.models.truncated import recurrent_part
from steadyrnn.tasks.series.records import RawTarget
from steadyrnn.tasks.series.scaling import Scaling
from steadyrnn.tasks.series.settings import SeriesSettings
from steadyrnn.tasks.series.task import SeriesTask

from .fitting import Fitted, fit_new, make_untrained, train_on
from .inputs import Series, is_several, read_array, read_table
from .parameters import check_parameters, dotted_settings, draw_seed
from .predicting import largest_input, run_model
from .preparing import Learned, make_set, make_task, make_task_alike

__all__ = ["SequenceEstimator", "with_shared_parameters"]

_RATE = 3e-3
"""Learning rate of a network that learns from batches of series only, where none is given: there is nothing to test one on."""

Numbers = NDArray[np.float64]

_SHARED = """\
model: The network, by its name in the program, such as ``"gru"`` or ``"stable-spectral"``; ``"auto"`` chooses one.
        want: What is wanted of it, where it is chosen: ``"memory"``, ``"stability"`` or ``"speed"``; None is accuracy.
        width: Units; None is the network's own number.
        model_options: Further options of the network, such as ``{"reflectors": 8}``.
        epochs: Passes through the training examples, at most: whole series, or the windows of a forecaster.
        batch_size: Examples of an optimizer step.
        learning_rate: None finds one by a short test.
        validation_fraction: Of the series of each class, of the series, or of the steps at the end of each series that is
            forecast; 0 holds nothing out.
        patience: Validations without a better score after which training stops; None never stops early.
        missing: What becomes of NaN: ``"refuse"``, ``"interpolate"`` or ``"mask"``.
        scale: ``"standard"``: each channel, and each number to predict, has mean 0 and deviation 1 on the training part;
            ``"none"``.
        patch: Steps that the network reads at once; None chooses by the length.
        random_state: A seed, a ``RandomState`` or None, as in scikit-learn.
        device: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:1"``.
        threads: CPU threads; None leaves torch's number.
        runs: A folder: ``fit`` leaves a run folder in it, on which ``steadyrnn eval``, ``certify``, ``convert`` and ``report``
            work. None leaves none.
        verbose: 1 shows progress."""

Estimator = TypeVar("Estimator", bound=type)


def with_shared_parameters(estimator: Estimator) -> Estimator:
    """Write the parameters that every estimator has into the class's docstring, in place of their mark.

    Example:
        >>> "learning_rate: None finds" in sr.SequenceForecaster.__doc__
        True
    """
    return fill_docstring(estimator, {"<parameters of every estimator>": _SHARED})


class Attributes:
    """Types of what is there once an estimator is fitted; no parameters."""

    model_: nn.Module
    n_features_in_: int
    n_channels_in_: int
    n_steps_in_: int | None
    n_iter_: int
    input_bound_: float
    scaling_: Scaling
    target_scaling_: Scaling
    run_folder_: Path | None
    _optimizer: dict[str, Any] | None


@dataclass(kw_only=True, eq=False, repr=False)
class SequenceEstimator(Attributes, BaseEstimator, ABC):  # type: ignore[misc]
    """An estimator on series with the contract of scikit-learn.

    Its fields are its parameters: they make the constructor whose signature scikit-learn reads. They are stored as they are,
    and checked when it is fitted. Attributes with an underscore at the end are there afterwards. The random states of the
    process stay as they are.
    """

    _kind: ClassVar[str]
    _target_checks: ClassVar[dict[str, Any]] = {}

    model: str = field(default="auto", kw_only=False)
    want: str | None = None
    width: int | None = None
    model_options: dict[str, Any] | None = None
    epochs: int = 200
    batch_size: int = 32
    learning_rate: float | None = None
    validation_fraction: float = 0.15
    patience: int | None = 30
    missing: str = "refuse"
    scale: str = "standard"
    patch: int | None = None
    random_state: Any = None
    device: str = "auto"
    threads: int | None = None
    runs: str | None = None
    verbose: int = 0

    def certify(self, input_bound: float | None = None, *, effort: str = "auto") -> AnyCertificate:
        """Say with proof how the network behaves.

        Args:
            input_bound: Bound on the 2-norm of what the network reads in one step, after scaling; None is ``input_bound_``,
                the largest that was met in the series of ``fit``.
            effort: As of :func:`steadyrnn.certify`.

        Returns:
            The certificate of the recurrent layer.
        """
        check_is_fitted(self)
        return certify(recurrent_part(self.model_), self.input_bound_ if input_bound is None else input_bound, effort=effort)

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn asks about an estimator."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing != "refuse"
        tags.input_tags.three_d_array = True
        return tags

    def _settings(self, seed: int) -> SeriesSettings:
        """Return how series are read."""
        patch = None if self.patch is None else int(self.patch)
        return SeriesSettings(kind=self._kind, missing=self.missing, scale=self.scale, patch=patch, seed=seed)

    @property
    def _class_names(self) -> tuple[str, ...] | None:
        """The classes as texts, of an estimator that has some."""
        return None

    @property
    def _class_weights(self) -> tuple[float, ...] | None:
        """What the loss of each class is multiplied by, where that is given."""
        return None

    @abstractmethod
    def _target(self, y: Any) -> RawTarget | None:
        """Return a checked target as a task reads it."""

    # Reading

    def _read(self, X: Any, *, reset: bool) -> Series:
        """Return X as series; with ``reset`` note what later ones must be like, else compare."""
        finite = True if self.missing == "refuse" else "allow-nan"
        if is_several(X):
            series = read_array("X", X, finite)
            if reset:
                self._note(series.values[0].shape[1], None)
            self._check_channels(series)
            return series
        if not reset and self.n_steps_in_ is None:  # series came one by one: a table may have any number of columns
            series = Series([row[:, None] for row in check_array(X, dtype=np.float64, ensure_all_finite=finite)], True)
            self._check_channels(series)
            return series
        series = read_table(self, X, reset=reset, ensure_all_finite=finite)
        if reset:
            self.n_channels_in_, self.n_steps_in_ = 1, series.values[0].shape[0]
        return series

    def _note(self, channels: int, steps: int | None) -> None:
        self.n_features_in_, self.n_channels_in_, self.n_steps_in_ = channels, channels, steps
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _check_channels(self, series: Series) -> None:
        found = series.values[0].shape[1]
        if found != self.n_channels_in_:
            raise ShapeError(
                f"X has series of {found} channels, but {type(self).__name__} is expecting {self.n_channels_in_} channels. "
                "Reshape your data: a series of D channels is an array (T, D)."
            )

    def _check_target(self, series: Series, y: Any) -> Any:
        """Return a target with one entry per series, checked by scikit-learn."""
        rows = np.zeros((len(series.values), 1))
        return check_X_y(rows, y, estimator=type(self).__name__, **self._target_checks)[1]

    # Training

    def _fit(self, series: Series, y: Any) -> Self:
        """Train a fresh network."""
        given = self._checked()
        seed = draw_seed(self.random_state)
        learning = make_set(series.values, self._target(y))
        task = make_task(
            learning, self._settings(seed), float(self.validation_fraction), self._class_names, self._class_weights
        )
        runs = None if self.runs is None else str(self.runs)
        fitted = fit_new(task, dotted_settings(given, seed), self.want, runs, type(self).__name__, self.verbose)
        self._take(fitted, task, series)
        return self

    def _fit_more(self, series: Series, y: Any) -> Self:
        """Train on, for one pass through some series."""
        given = self._checked()
        learning = make_set(series.values, self._target(y))
        if not self._is_fitted():
            seed = draw_seed(self.random_state)
            first = make_task(learning, self._settings(seed), 0.0, self._class_names, self._class_weights)
            open_rate = {} if self.learning_rate is not None else {"train.optimizer.lr": _RATE}
            self._take(make_untrained(first, {**dotted_settings(given, seed), **open_rate}, self.want), first, series)
        task = make_task_alike(learning, self._learned, self._class_weights)
        size = min(int(self.batch_size), len(task.examples["train"]))
        settings = replace(self._train, batch_size=size, device=self.device, threads=self.threads)
        state, steps = train_on(self.model_, task, settings, self._optimizer, self.n_iter_)
        self._optimizer, self.n_iter_ = state, self.n_iter_ + steps
        self.input_bound_ = max(self.input_bound_, largest_input(self._learned, series.values))
        return self

    def _checked(self) -> dict[str, Any]:
        given: dict[str, Any] = self.get_params(deep=False)
        check_parameters(given)
        return given

    def _is_fitted(self) -> bool:
        return hasattr(self, "model_")

    def _take(self, fitted: Fitted, task: SeriesTask, series: Series) -> None:
        """Keep what came out of a training, or a network that is not trained yet."""
        prepared, result = task.prepared, fitted.result
        self.model_ = fitted.model
        self._learned = Learned(
            prepared.settings, prepared.problem, prepared.scaling, prepared.target_scaling, prepared.series.channels
        )
        self._train, self._optimizer = fitted.train, None
        self.scaling_, self.target_scaling_ = prepared.scaling, prepared.target_scaling
        self.patch_ = prepared.problem.patch
        self.parts_ = {part: prepared.parts[part].series.numpy() for part in ("train", "validation")}
        self.n_iter_ = 0 if result is None else result.steps
        self.history_ = [*fitted.history]
        self.validation_ = {} if result is None else dict(result.best)
        self.choice_ = fitted.facts.get("model_choice")
        self.rate_test_ = fitted.facts.get("rate_test")
        self.learning_rate_ = fitted.train.optimizer.lr
        self.run_folder_ = fitted.folder
        self.input_bound_ = largest_input(self._learned, series.values)

    # Answers

    def _outputs(self, values: Sequence[Numbers]) -> Numbers:
        """Return the outputs of the network, (N, C)."""
        found: Numbers = run_model(self.model_, self._learned, values, self.device, self.threads).numpy()
        return found
