"""A whole model around a converted layer: embedding and readout stay, the layer runs in its other form."""

import copy
from collections.abc import Callable
from typing import TypeVar

from torch import nn

from .sequence import SequenceModel
from .truncated import Truncated

__all__ = ["M", "WholeModel", "convert_layer_of", "with_layer"]

WholeModel = SequenceModel | Truncated
"""What stands around a recurrent layer."""
M = TypeVar("M", bound=WholeModel)


def convert_layer_of(model: M, convert: Callable[[nn.Module], nn.Module]) -> M:
    """Return a model that runs its recurrent layer as ``convert`` returns it.

    What ``convert`` returns must be called as the layer is, ``(input, hx, lengths) -> (output, state)``.

    Example:
        >>> model = convert_layer_of(sr.SequenceModel(sr.RNN(2, 4), 3), lambda rnn: copy.deepcopy(rnn).eval())
        >>> model.training, model.rnn.training
        (True, False)
    """
    return with_layer(model, convert(model.model.rnn if isinstance(model, Truncated) else model.rnn))


def with_layer(model: M, layer: nn.Module) -> M:
    """Return a model that differs from ``model`` in its recurrent layer alone; embedding and readout are shared.

    Example:
        >>> model = sr.SequenceModel(sr.RNN(2, 4, transition=sr.SpectralBall(0.5)), 3)
        >>> fast = with_layer(model, sr.to_parallel(model.rnn, tol=1e-6))
        >>> fast.readout is model.readout, fast(torch.zeros(9, 1, 2))[0].shape
        (True, torch.Size([1, 3]))
    """
    twin = copy.copy(model)
    twin.__dict__["_modules"] = dict(model._modules)  # a shallow copy shares this table
    if isinstance(twin, Truncated):
        twin.model = with_layer(twin.model, layer)
    else:
        twin._modules["rnn"] = layer
    return twin
