"""Optimizers by name, over a model's parameter groups, with projections after each step."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from steadyrnn.constraints.optimizer import attach_projection, parameter_groups
from steadyrnn.errors import ArgumentError

from .settings import OptimizerSettings

__all__ = ["OPTIMIZERS", "make_optimizer", "parameter_names"]

Groups = list[dict[str, Any]]


def _adam(groups: Groups, settings: OptimizerSettings, fused: bool | None) -> Optimizer:
    return torch.optim.Adam(groups, betas=settings.betas, eps=settings.eps, weight_decay=settings.weight_decay, fused=fused)


def _adamw(groups: Groups, settings: OptimizerSettings, fused: bool | None) -> Optimizer:
    return torch.optim.AdamW(groups, betas=settings.betas, eps=settings.eps, weight_decay=settings.weight_decay, fused=fused)


def _sgd(groups: Groups, settings: OptimizerSettings, fused: bool | None) -> Optimizer:
    return torch.optim.SGD(groups, momentum=settings.momentum, weight_decay=settings.weight_decay, fused=fused)


def _rmsprop(groups: Groups, settings: OptimizerSettings, fused: bool | None) -> Optimizer:
    own = settings
    return torch.optim.RMSprop(groups, alpha=own.alpha, eps=own.eps, weight_decay=own.weight_decay, momentum=own.momentum)


OPTIMIZERS: dict[str, Callable[[Groups, OptimizerSettings, bool | None], Optimizer]] = {
    "adam": _adam,
    "adamw": _adamw,
    "sgd": _sgd,
    "rmsprop": _rmsprop,
}
"""Every optimizer by name: made from groups, settings and whether to take torch's fused kernel (RMSprop has none)."""


def make_optimizer(model: nn.Module, settings: OptimizerSettings, fused: bool | None = None) -> Optimizer:
    """Return the optimizer of a model, which puts constrained weights back into their sets after each step.

    Args:
        model: Any module with parameters, on the device it will be trained on.
        settings: Name, learning rates and the rest.
        fused: Whether to take torch's fused kernel; None leaves that to torch.

    Example:
        >>> optimizer = make_optimizer(sr.RNN(2, 3, transition="ornn"), OptimizerSettings(transition_lr=1e-4))
        >>> [group["lr"] for group in optimizer.param_groups]
        [0.0001, 0.001]
    """
    rates = settings.lr, settings.transition_lr
    groups = [g for g in parameter_groups(model, *rates, transition_scale=settings.transition_scale) if g["params"]]
    if not groups:
        raise ArgumentError("`model` has no parameters, so there is nothing to train.")
    if not any(parameter.requires_grad for group in groups for parameter in group["params"]):
        raise ArgumentError(
            "`model` must have a parameter with `requires_grad`, but all are frozen: there is nothing to train."
        )
    if settings.transition_scale != "none" and not any(group["name"].startswith("reflectors") for group in groups):
        raise ArgumentError(
            f"`optimizer.transition_scale` is {settings.transition_scale!r}, but `model` has no reflectors (ornn, spectral, "
            "unitary). Leave it 'none'."
        )
    optimizer = OPTIMIZERS[settings.name](groups, settings, fused)
    attach_projection(optimizer, model)
    return optimizer


def parameter_names(model: nn.Module, optimizer: Optimizer) -> list[str]:
    """Return the names of an optimizer's parameters, in its own order; a shared one has its first name.

    Example:
        >>> model = torch.nn.Linear(2, 1)
        >>> parameter_names(model, make_optimizer(model, OptimizerSettings()))
        ['weight', 'bias']
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [names[id(parameter)] for group in optimizer.param_groups for parameter in group["params"]]
