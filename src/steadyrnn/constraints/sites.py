"""Where constraints sit in a model: in slots, and on weights parametrized through torch."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList

from .base import Constraint, Kind
from .precision import widened
from .slot import Slot

__all__ = ["Site", "sites"]


@dataclass(frozen=True)
class Site:
    """One constrained weight of a model.

    Attributes:
        holder: The module that holds the raw tensors.
        constraint: Its constraint.
        raw: The raw tensors under their names in the model.
    """

    holder: Slot | ParametrizationList
    constraint: Constraint
    raw: dict[str, Tensor]

    @property
    def moves(self) -> bool:
        """Whether the constraint has something to do after an optimizer step."""
        return self.constraint.kind in (Kind.PROJECTION, Kind.RECENTRED)

    def penalty(self) -> Tensor | None:
        """Return what the constraint adds to the loss, or None."""
        if isinstance(self.holder, Slot):
            return self.holder.penalty()
        return self.constraint.penalty(*widened(*self.raw.values()))

    @torch.no_grad()
    def after_optimizer_step(self) -> None:
        """Put the raw tensors back where the constraint wants them after a step."""
        if isinstance(self.holder, Slot):
            self.holder.after_optimizer_step()
            return
        new = self.constraint.after_step(*widened(*self.raw.values()))
        for tensor, value in zip(self.raw.values(), new or (), strict=new is not None):
            tensor.copy_(value)


def sites(model: nn.Module) -> Iterator[Site]:
    """Yield every constrained weight of a model once, also where a module is shared.

    Example:
        >>> linear = sr.constrain(torch.nn.Linear(3, 3), "weight", "ornn")
        >>> [list(site.raw) for site in sites(torch.nn.Sequential(linear))]
        [['0.parametrizations.weight.original0']]
    """
    for name, module in model.named_modules():
        constraint = _constraint(module)
        if constraint is None or not isinstance(module, Slot | ParametrizationList):
            continue
        prefix = f"{name}." if name else ""
        raw: dict[str, Tensor] = {f"{prefix}{key}": tensor for key, tensor in module.named_parameters(recurse=False)}
        yield Site(module, constraint, raw)


def _constraint(module: nn.Module) -> Constraint | None:
    """Return the constraint whose raw tensors a module holds: a later one of a chain sees no raw tensor."""
    if isinstance(module, Slot):
        return module.constraint
    first = module[0] if isinstance(module, ParametrizationList) else None
    return first if isinstance(first, Constraint) else None
