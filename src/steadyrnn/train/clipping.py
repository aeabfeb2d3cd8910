"""Clipping of gradients: entry by entry on recurrent weights, by the norm of all together."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.nn.utils.parametrize import ParametrizationList

from steadyrnn.constraints.gradient_limit import limit_gradient
from steadyrnn.constraints.slot import Slot

from .settings import ClipSettings

__all__ = [
    *("RECURRENT_OF", "clip", "computed_weights", "free_recurrent_parameters", "gradient_norm", "limited_weights"),
    "recurrent_parameters",
]

RECURRENT_OF = ("weight", "raw")
"""What `clip.recurrent` clips the gradient of: a recurrent weight, or the raw parameters that it is made of."""

# Free recurrent weights have torch's names, also where parametrized; constrained ones are raw tensors of a transition.
_RECURRENT = re.compile(r"(?:^|\.)(?:weight_hh[^.]*|transition(?:_l\d+(?:_reverse)?)?\.\w+\.raw\d+)(?:\.|$)")
_COMPUTED = re.compile(r"(?:^|\.)(?:parametrizations\.weight_hh[^.]*|transition(?:_l\d+(?:_reverse)?)?\.\w+)$")


def recurrent_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that recurrent weights are made of: ``weight_hh*``, and the raw tensors of transitions.

    Example:
        >>> list(recurrent_parameters(torch.nn.Sequential(sr.RNN(2, 3, transition="exp"), torch.nn.GRUCell(3, 3))))
        ['0.transition_l0.h.raw0', '1.weight_hh']
    """
    return {name: parameter for name, parameter in model.named_parameters() if _RECURRENT.search(name)}


def free_recurrent_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the recurrent weights that are parameters themselves, whose gradients are those of the weights.

    Example:
        >>> list(free_recurrent_parameters(torch.nn.Sequential(sr.RNN(2, 3, transition="exp"), torch.nn.GRUCell(3, 3))))
        ['1.weight_hh']
    """
    raw = {id(parameter) for holder in computed_weights(model) for parameter in holder.parameters()}
    return {name: parameter for name, parameter in recurrent_parameters(model).items() if id(parameter) not in raw}


@contextmanager
def limited_weights(model: nn.Module, limit: Tensor | None) -> Iterator[None]:
    r"""Clip :math:`\partial L / \partial W` of every computed recurrent weight W, before it goes back through its constraint.

    Each gate, layer and direction is clipped by itself, in each backward pass. A layer that is called twice computes its weight
    twice, and each gradient is clipped, except inside ``sr.cached()`` (of weights that torch parametrizes, inside
    ``torch.nn.utils.parametrize.cached()``): there it has one weight and one gradient. Weights are dense meanwhile, also where
    they have a factored form. Free weights are left alone: see :func:`clip`.

    Args:
        model: Any module; recurrent weights of layers of this package and such as ``sr.constrain`` parametrizes are found.
        limit: The largest absolute entry, a scalar tensor on the model's device; None clips nothing.

    Example:
        >>> rnn = sr.RNN(2, 3, transition="ornn")
        >>> with limited_weights(rnn, torch.tensor(0.25)):
        ...     rnn(torch.randn(5, 1, 2))[0].sum().backward()
    """
    if limit is None:
        yield
        return
    handles: list[Any] = []
    slots: list[tuple[Slot, Tensor | None]] = []  # with the limit that was there before
    try:
        for holder in computed_weights(model):
            if isinstance(holder, Slot):
                slots.append((holder, holder.gradient_limit))
                holder.gradient_limit = limit
            else:
                handles.append(holder.register_forward_hook(lambda _, __, weight: limit_gradient(weight, limit)))
        yield
    finally:
        for slot, before in reversed(slots):
            slot.gradient_limit = before
        for handle in handles:
            handle.remove()


def computed_weights(model: nn.Module) -> Iterator[nn.Module]:
    """Yield what computes recurrent weights from raw tensors: slots of transitions, and torch's parametrizations.

    Example:
        >>> [type(holder).__name__ for holder in computed_weights(sr.RNN(2, 3, transition="exp"))]
        ['Slot']
    """
    for name, module in model.named_modules():
        if isinstance(module, Slot | ParametrizationList) and _COMPUTED.search(name):
            yield module


def gradient_norm(parameters: Sequence[Tensor]) -> Tensor:
    """Return the norm of all gradients together, a scalar on their device; 0 where there are none.

    Example:
        >>> weight = torch.zeros(2, requires_grad=True)
        >>> (3 * weight[0] + 4 * weight[1]).backward()
        >>> gradient_norm([weight])
        tensor(5.)
    """
    return get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])


@torch.no_grad()
def clip(settings: ClipSettings, parameters: Sequence[Tensor], recurrent: Sequence[Tensor], norm: Tensor) -> None:
    """Clip the gradients in place: first the entries of the recurrent ones, then the norm of all together.

    The device is not waited for: all gradients are multiplied by min(1, largest / norm), computed where they are.

    Args:
        settings: The largest entry and the largest norm.
        parameters: All parameters.
        recurrent: Those whose entries are clipped: recurrent weights that are parameters themselves, or all that recurrent
            weights are made of (``recurrent_of="raw"``).
        norm: The :func:`gradient_norm` of all parameters, finite.

    Example:
        >>> weight = torch.zeros(2, requires_grad=True)
        >>> (3 * weight[0] + 4 * weight[1]).backward()
        >>> clip(ClipSettings(norm=1.0), [weight], [], gradient_norm([weight]))
        >>> weight.grad
        tensor([0.6000, 0.8000])
    """
    if settings.recurrent is not None:
        for parameter in recurrent:
            if parameter.grad is not None:
                parameter.grad.clamp_(-settings.recurrent, settings.recurrent)
        norm = gradient_norm(parameters) if settings.norm is not None else norm
    if settings.norm is not None:
        clip_grads_with_norm_(parameters, settings.norm, norm)
