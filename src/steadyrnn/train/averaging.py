"""Averaged weights beside those that are trained: what is evaluated and kept as the best."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from steadyrnn.constraints.averaging import Averaged, averaged

from .settings import AverageSettings
from .weights import refuse_names

__all__ = ["AVERAGES", "WeightAverage"]

AVERAGES = ("none", "ema", "mean")
"""Averages by name: none, the exponential moving average, and the plain mean."""


class WeightAverage:
    """The average of a model's weights over training, each constrained weight in its set.

    Of the weights after the steps ``start + 1``, ``start + 1 + every``, ... it holds what :func:`steadyrnn.averaged` makes of
    them. Before the first of these there is none, and the model itself is evaluated.

    Args:
        model: The model that is trained, on its device; it is copied.
        settings: Which average, and from when on.
        compiled: Whether to call the average through ``torch.compile``.

    Attributes:
        count: How many models have been averaged.

    Example:
        >>> model = sr.RNN(2, 3, transition="ornn")
        >>> average = WeightAverage(model, AverageSettings("mean", start=1))
        >>> for step in (1, 2, 3):
        ...     average.update(step, model)
        >>> average.count
        2
    """

    def __init__(self, model: nn.Module, settings: AverageSettings, compiled: bool = False) -> None:
        self.settings, self.count = settings, 0
        self._average: Averaged | None = None
        self._call: Callable[..., Any] | None = None
        if settings.name != "none":
            self._average = averaged(model, settings.decay if settings.name == "ema" else None)
            self._call = torch.compile(self._average.module) if compiled else self._average.module

    def update(self, step: int, model: nn.Module) -> None:
        """Take the weights after a step into the average, where that is due; steps are counted from 1."""
        late = step - 1 - self.settings.start
        if self._average is not None and late >= 0 and late % self.settings.every == 0:
            self._average.update_parameters(model)
            self.count += 1

    def evaluated(self, model: nn.Module, call: Callable[..., Any]) -> tuple[nn.Module, Callable[..., Any]]:
        """Return the module to evaluate and what to call for it: the average once there is one, else what is given."""
        if self._average is None or self._call is None or self.count == 0:
            return model, call
        return self._average.module, self._call

    def tensors(self) -> dict[str, Tensor]:
        """Return all that is needed to go on, the tensors at work; empty where nothing is averaged."""
        return {} if self._average is None else dict(self._average.state_dict())

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Put back what :meth:`tensors` returned.

        Raises:
            CheckpointError: There are other tensors than this average has.
        """
        refuse_names("average of weights", self.tensors(), tensors)
        if self._average is not None:
            self._average.load_state_dict(dict(tensors))
            self.count = int(self._average.n_averaged)
