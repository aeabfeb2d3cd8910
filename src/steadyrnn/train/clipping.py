"""Clipping of gradients: entry by entry on recurrent weights, by the norm of all together."""

import re
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from .settings import ClipSettings

__all__ = ["clip", "gradient_norm", "recurrent_parameters"]

# Free recurrent weights have torch's names, also where parametrized; constrained ones are raw tensors of a transition.
_RECURRENT = re.compile(r"(?:^|\.)(?:weight_hh[^.]*|transition(?:_l\d+(?:_reverse)?)?\.\w+\.raw\d+)(?:\.|$)")


def recurrent_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that recurrent weights are made of: ``weight_hh*``, and the raw tensors of transitions.

    Example:
        >>> list(recurrent_parameters(torch.nn.Sequential(sr.RNN(2, 3, transition="exp"), torch.nn.GRUCell(3, 3))))
        ['0.transition_l0.h.raw0', '1.weight_hh']
    """
    return {name: parameter for name, parameter in model.named_parameters() if _RECURRENT.search(name)}


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
        recurrent: Those of recurrent weights.
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
