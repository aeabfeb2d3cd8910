"""Where constraints sit in a model: in slots, and on weights parametrized through torch."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList

from steadyrnn.errors import WeightError

from .base import Constraint, Kind, Membership, widened
from .slot import Slot, can_leave, membership_of, whole, write

__all__ = ["Site", "refuse_replaced", "sites"]


@dataclass(frozen=True)
class Site:
    """One constrained weight of a model.

    Attributes:
        name: The name of the module that holds the raw tensors.
        holder: That module.
        constraint: Its constraint.
        raw: The raw tensors under their names in the model.
    """

    name: str
    holder: Slot | ParametrizationList
    constraint: Constraint
    raw: dict[str, Tensor]

    @property
    def moves(self) -> bool:
        """Whether the constraint has something to do after an optimizer step."""
        return self.constraint.kind in (Kind.PROJECTION, Kind.RECENTRED)

    @property
    def can_leave(self) -> bool:
        """Whether the weight has numbers and could be outside its set."""
        return can_leave(self.constraint) and not any(tensor.is_meta for tensor in self.raw.values())

    def raws(self) -> tuple[Tensor, ...]:
        """Return the raw tensors as the constraint takes them."""
        if isinstance(self.holder, Slot):
            return self.holder.raws()
        return widened(*(whole(tensor) for tensor in self.raw.values()))

    def write(self, raw: tuple[Tensor, ...]) -> None:
        """Set the raw tensors."""
        for tensor, value in zip(self.raw.values(), raw, strict=True):
            write(tensor, value)

    @torch.no_grad()
    def weight(self) -> Tensor:
        """Return the matrix that the constraint makes, in float32 where the raw tensors are in half precision."""
        return self.constraint(*self.raws()).detach()

    def penalty(self) -> Tensor | None:
        """Return what the constraint adds to the loss, or None."""
        return self.constraint.penalty(*self.raws())

    @torch.no_grad()
    def after_optimizer_step(self) -> None:
        """Put the raw tensors back where the constraint wants them after a step."""
        new = self.constraint.after_step(*self.raws())
        if new is not None:
            self.write(new)

    @torch.no_grad()
    def put_back(self) -> None:
        """Put raw tensors and buffers back to where they make a member of the set, whoever changed them."""
        new = self.constraint.put_back(*self.raws())
        if new is not None:
            self.write(new)

    def membership(self) -> Membership | None:
        """Return where the weight is, or None where it cannot leave its set or has no numbers."""
        if not self.can_leave:
            return None
        first = next(iter(self.raw.values()))
        return membership_of(self.constraint, self.weight().to(first.dtype))._replace(name=self.name)


def sites(model: nn.Module) -> Iterator[Site]:
    """Yield every constrained weight of a model once, also where a module is shared.

    Raises:
        WeightError: A tool has put other tensors in the place of those that a constraint keeps in its set.

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
        site = Site(name, module, constraint, raw)
        if site.moves and isinstance(module, ParametrizationList):
            refuse_replaced(module, name)
        yield site


def refuse_replaced(module: ParametrizationList, name: str) -> None:
    """Refuse a parametrized weight whose raw tensors a tool has replaced: the constraint would go on with the old ones."""
    kept = {key for key in module._parameters if key.removeprefix("original").isdecimal() or key == "original"}
    strange = sorted((set(module._parameters) - kept) | set(getattr(module, "parametrizations", ())))
    if strange or not kept:
        raise WeightError(
            f"A tool (pruning, a weight norm, a parametrization) has replaced raw tensors of `{name or 'weight'}`, where "
            f"there is now `{strange[0] if strange else 'nothing'}`: {module[0]} would go on with tensors that nobody uses. "
            "Undo it (`torch.nn.utils.prune.remove`, `remove_weight_norm`, `remove_parametrizations`)."
        )


def _constraint(module: nn.Module) -> Constraint | None:
    """Return the constraint whose raw tensors a module holds: a later one of a chain sees no raw tensor."""
    if isinstance(module, Slot):
        return module.constraint
    first = module[0] if isinstance(module, ParametrizationList) else None
    return first if isinstance(first, Constraint) else None
