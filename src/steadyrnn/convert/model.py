"""A whole model around a converted layer: embedding and readout stay, the layer runs in its other form."""

import copy
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from torch import nn

from steadyrnn.models.sequence import SequenceModel
from steadyrnn.models.truncated import Truncated

__all__ = ["for_models", "with_layer"]

P = ParamSpec("P")
R = TypeVar("R", bound=nn.Module, covariant=True)
M = TypeVar("M", SequenceModel, Truncated)


class Conversion(Protocol[P, R]):
    """A conversion of layers that accepts whole models too."""

    @overload
    def __call__(self, rnn: SequenceModel, *args: P.args, **kwargs: P.kwargs) -> SequenceModel: ...
    @overload
    def __call__(self, rnn: Truncated, *args: P.args, **kwargs: P.kwargs) -> Truncated: ...
    @overload
    def __call__(self, rnn: nn.Module, *args: P.args, **kwargs: P.kwargs) -> R: ...


def for_models(convert: Callable[Concatenate[nn.Module, P], R]) -> Conversion[P, R]:
    """Let a conversion of recurrent layers accept a ``SequenceModel`` (or a truncated one): its layer is converted.

    What the conversion returns must be called as the layer is, ``(input, hx, lengths) -> (output, state)``.

    Example:
        >>> @for_models
        ... def to_eval(rnn):
        ...     return copy.deepcopy(rnn).eval()
        >>> to_eval(sr.SequenceModel(sr.RNN(2, 4), 3)).rnn.training
        False
    """

    @wraps(convert)
    def converted(rnn: nn.Module, *args: P.args, **kwargs: P.kwargs) -> Any:
        if isinstance(rnn, Truncated):
            return with_layer(rnn, convert(rnn.model.rnn, *args, **kwargs))
        if isinstance(rnn, SequenceModel):
            return with_layer(rnn, convert(rnn.rnn, *args, **kwargs))
        return convert(rnn, *args, **kwargs)

    return converted


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
