"""The next steps of series, with the parts of scikit-learn's contract that make sense for them."""

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import r2_score
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted, validate_data

from steadyrnn.errors import ArgumentError, ShapeError, not_among
from steadyrnn.tasks.series.settings import SeriesSettings

from .base import SequenceEstimator, with_shared_parameters
from .inputs import Series, is_several, read_array
from .parameters import positive_int
from .preparing import channel_names

__all__ = ["SequenceForecaster"]

Numbers = NDArray[np.float64]


@with_shared_parameters
@dataclass(kw_only=True, eq=False, repr=False)
class SequenceForecaster(SequenceEstimator):
    """Forecast the next steps of one or several series.

    ``X`` is one series, (T,) or (T, D); or several, an array (N, T, D) or a list of arrays of different lengths. The network
    reads a window of the last steps and answers ``horizon`` steps of the target channels at once.

    It has parameters, ``clone``, ``GridSearchCV`` and pickle of scikit-learn, but it is no regressor: rows of ``X`` are steps
    in order, and there is no ``y``. To validate on one series use ``TimeSeriesSplit``, whose parts are runs of steps; on
    several, any other split. The end of each series is held out for validation.

    Args:
        horizon: Steps to forecast.
        window: Steps that are read; None chooses by horizon and length.
        targets: Channels to forecast, as numbers from 0, or names of columns where ``X`` is a frame; None is all.
        <parameters of every estimator>

    Attributes:
        window_: Steps that are read.
        targets_: Channels that are forecast.
        model_: The network. Other attributes are those of :class:`~steadyrnn.SequenceClassifier`.

    Example:
        >>> import numpy as np
        >>> wave = np.sin(np.arange(300) / 5)
        >>> forecaster = sr.SequenceForecaster(horizon=3, window=20, width=16, epochs=20, learning_rate=0.01, random_state=0)
        >>> forecaster.fit(wave).predict().shape, forecaster.score(wave) > 0.9
        ((3, 1), True)
    """

    _kind = "forecasting"

    horizon: int = field(default=1, kw_only=False)
    window: int | None = None
    targets: Any = None
    model: str = "auto"

    def fit(self, X: Any, y: Any = None) -> Self:
        """Train a fresh network.

        Args:
            X: One or several series.
            y: Not used.
        """
        series = self._read(X, reset=True)
        self._find_targets()
        self._fit(series, None)
        return self._keep_ends(series)

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Train on from the present weights, for one pass through the windows of some series.

        The first call fixes window and scaling; after ``fit`` they are those of ``fit``. The next forecast is of the steps
        behind these series. Without ``learning_rate`` the rate is that of ``fit``, or 0.003.

        Args:
            X: One or several series.
            y: Not used.
        """
        first = not self._is_fitted()
        series = self._read(X, reset=first)
        if first:
            self._find_targets()
        self._fit_more(series, None)
        return self._keep_ends(series)

    def predict(self, X: Any = None) -> Numbers:
        """Return the ``horizon`` steps behind the end of each series.

        Args:
            X: Series of at least ``window_`` steps, of which the last are read; None takes those of ``fit``.

        Returns:
            Steps in the units of X, (horizon, C) of one series, (N, horizon, C) of several.
        """
        check_is_fitted(self)
        if X is None:
            return self._forecast(self._ends, self._single)
        series = self._read(X, reset=False)
        return self._forecast(self._cut_ends(series), series.table)

    def score(self, X: Any, y: Any = None) -> float:
        r"""Return :math:`R^2` of forecasts inside some series, the mean over channels.

        Windows follow each other by ``horizon`` steps, so that each step behind the first window is forecast once.

        Args:
            X: One or several series.
            y: Not used.
        """
        check_is_fitted(self)
        window, horizon = self.window_, self._learned.problem.horizon
        starts = [
            (one, start)
            for one in self._read(X, reset=False).values
            for start in range(0, len(one) - window - horizon + 1, horizon)
        ]
        if not starts:
            raise ShapeError(f"`X` must have a series of {window + horizon} steps or more, a window and what is forecast.")
        truth = [one[start + window : start + window + horizon, self.targets_] for one, start in starts]
        found = self._forecast([one[start : start + window] for one, start in starts], False)
        return float(r2_score(np.concatenate(truth), found.reshape(-1, len(self.targets_))))

    def _read(self, X: Any, *, reset: bool) -> Series:
        """Return one series, which is noted as a table, or several."""
        finite = True if self.missing == "refuse" else "allow-nan"
        if is_several(X):
            series = read_array("X", X, finite)
        elif np.ndim(X) == 1 and len(X):
            one = check_array(X, dtype=np.float64, ensure_2d=False, ensure_all_finite=finite, input_name="X")
            series = Series([one[:, None]], True)
        else:
            how = {"dtype": np.float64, "ensure_all_finite": finite, "ensure_min_samples": 2 if reset else 1}
            return self._noted(Series([validate_data(self, X, reset=reset, **how)], True), reset, own=False)
        return self._noted(series, reset, own=True)

    def _noted(self, series: Series, reset: bool, own: bool) -> Series:
        """Note what later series must be like, or compare; ``own`` says that scikit-learn has not done it."""
        channels = series.values[0].shape[1]
        if reset and own:
            self._note(channels, None)
        elif reset:
            self.n_channels_in_, self.n_steps_in_ = channels, None
        self._check_channels(series)
        return series

    def _find_targets(self) -> None:
        """Note which channels are forecast."""
        count = self.n_channels_in_
        names = [*getattr(self, "feature_names_in_", ())]
        if self.targets is None:
            self.targets_ = [*range(count)]
            return
        given = [self.targets] if isinstance(self.targets, str | int) else [*self.targets]
        found = [names.index(one) if one in names else one for one in given]
        for one in found:
            if isinstance(one, str):
                raise ArgumentError(not_among("targets", one, names))
            if isinstance(one, bool) or not isinstance(one, int | np.integer) or not 0 <= one < count:
                raise ArgumentError(f"`targets` must hold channels from 0 to {count - 1}, but holds {one!r:.60}.")
        if not found or len({*found}) < len(found):
            raise ArgumentError(f"`targets` must hold channels, each of them once, but is {self.targets!r:.80}.")
        self.targets_ = [int(one) for one in found]

    def _settings(self, seed: int) -> SeriesSettings:
        """Return how series are read and cut."""
        plain = super()._settings(seed)
        window = None if self.window is None else positive_int("window", self.window)
        names = channel_names(self.n_channels_in_)
        return SeriesSettings(
            kind=plain.kind, missing=plain.missing, scale=plain.scale, patch=plain.patch, seed=seed,
            horizon=positive_int("horizon", self.horizon), window=window, target=",".join(names[at] for at in self.targets_),
        )  # fmt: skip

    def _target(self, y: Any) -> None:
        """Return None: what is to be forecast is in the series."""

    def _keep_ends(self, series: Series) -> Self:
        """Keep the last steps of each series, from which its next ones are forecast."""
        self.window_ = int(self._learned.problem.window or 1)
        self._single = series.table
        self._ends = [one[-self.window_ :].copy() for one in series.values]
        return self

    def _cut_ends(self, series: Series) -> list[Numbers]:
        for one in series.values:
            if len(one) < self.window_:
                raise ShapeError(f"`X` must have series of at least {self.window_} steps, a window, but one has {len(one)}.")
        return [one[-self.window_ :] for one in series.values]

    def _forecast(self, windows: list[Numbers], single: bool) -> Numbers:
        """Return forecasts behind some windows, (N, horizon, C), in the units of the series."""
        outputs = torch.from_numpy(self._outputs(windows))
        steps = outputs.unflatten(1, (self._learned.problem.horizon, len(self.targets_)))
        found: Numbers = self.target_scaling_.undo(steps).numpy()
        return found[0] if single else found
