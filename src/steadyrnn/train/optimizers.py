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


def _adam(groups: Groups, own: OptimizerSettings, fused: bool | None, capturable: bool) -> Optimizer:
    more: dict[str, Any] = {"weight_decay": own.weight_decay, "fused": fused, "capturable": capturable}
    return torch.optim.Adam(groups, betas=own.betas, eps=own.eps, **more)


def _adamw(groups: Groups, own: OptimizerSettings, fused: bool | None, capturable: bool) -> Optimizer:
    more: dict[str, Any] = {"weight_decay": own.weight_decay, "fused": fused, "capturable": capturable}
    return torch.optim.AdamW(groups, betas=own.betas, eps=own.eps, **more)


def _sgd(groups: Groups, own: OptimizerSettings, fused: bool | None, capturable: bool) -> Optimizer:
    return torch.optim.SGD(groups, momentum=own.momentum, weight_decay=own.weight_decay, fused=fused)


def _rmsprop(groups: Groups, own: OptimizerSettings, fused: bool | None, capturable: bool) -> Optimizer:
    more: dict[str, Any] = {"weight_decay": own.weight_decay, "momentum": own.momentum, "capturable": capturable}
    return torch.optim.RMSprop(groups, alpha=own.alpha, eps=own.eps, **more)


OPTIMIZERS: dict[str, Callable[[Groups, OptimizerSettings, bool | None, bool], Optimizer]] = {
    "adam": _adam,
    "adamw": _adamw,
    "sgd": _sgd,
    "rmsprop": _rmsprop,
}
"""Every optimizer by name: made from groups, settings, whether to take torch's fused kernel (RMSprop has none), and whether its
steps can be captured in a CUDA graph."""


def make_optimizer(
    model: nn.Module, settings: OptimizerSettings, fused: bool | None = None, *, capturable: bool = False
) -> Optimizer:
    """Return the optimizer of a model, which puts constrained weights back into their sets after each step.

    Args:
        model: Any module with parameters, on the device it will be trained on.
        settings: Name, learning rates and the rest.
        fused: Whether to take torch's fused kernel; None leaves that to torch.
        capturable: Whether steps can be captured in a CUDA graph; for parameters on a GPU. Learning rates are tensors there, to
            be changed in place.

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
    if capturable:
        device = next(parameter.device for group in groups for parameter in group["params"])
        for group in groups:  # the tensor is rounded; `initial_lr`, as torch's schedulers have it, is not
            group |= {"initial_lr": group["lr"], "lr": torch.tensor(group["lr"], dtype=torch.float32, device=device)}
    optimizer = OPTIMIZERS[settings.name](groups, settings, fused, capturable)
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
