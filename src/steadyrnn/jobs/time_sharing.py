"""A model that the ranks of a run call together, each with its own steps of time."""

from torch import nn

from steadyrnn.errors import ArgumentError
from steadyrnn.layers.base import RecurrentLayer
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.parallel.module import to_parallel
from steadyrnn.tasks.base import Task
from steadyrnn.train.ranks import Ranks
from steadyrnn.train.settings import TrainSettings
from steadyrnn.train.sharing import check_time_sharing

__all__ = ["TOL", "check_model_over_ranks", "over_ranks"]

TOL = 1e-5
"""Bound on the truncation: on the 2-norm of the error of every state."""


def over_ranks(model: nn.Module) -> nn.Module:
    """Return what every rank calls in place of a model, for ranks that share time.

    Raises:
        ArgumentError: The network has gates, whose contraction depends on a bound on the input.
        ConversionError: No contraction is proven, or the model is not a network that can be run over ranks.
    """
    return _convert(model, True)


def check_model_over_ranks(model: nn.Module, task: Task, settings: TrainSettings, ranks: Ranks) -> None:
    """Refuse settings, and a model, with which ranks cannot work together, where a task wants them to share time."""
    check_time_sharing(task, settings, ranks, over_ranks)
    if task.ranks_share == "time":
        _convert(model, ranks.size > 1)


def _convert(model: nn.Module, group: bool) -> nn.Module:
    layer = model.rnn if isinstance(model, SequenceModel) else model
    if isinstance(layer, RecurrentLayer) and layer.cell.record.theorem is not None and layer.cell.record.activation is None:
        raise ArgumentError(
            f"Ranks cannot share the time of a network with gates ({type(layer).__name__}): its contraction depends on a bound "
            "on the input, and there is none in training. Take a network without gates, such as `stable-spectral`."
        )
    return to_parallel(model, TOL, group=group)
