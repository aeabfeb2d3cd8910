"""A model and its sets: where constraints sit, which weights are outside, and the way back.

A constraint sits in a slot, or on a weight that is parametrized through torch.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList
from torch.optim.swa_utils import AveragedModel

from steadyrnn.errors import ArgumentTypeError, ConstraintError, NotFiniteError, WeightError

from .base import Constraint, Kind, Membership, Projected, widened
from .slot import Slot, can_leave, membership_of, whole, write

__all__ = [
    "Site",
    "check_inside",
    "joint_modules",
    "memberships",
    "project_",
    "refuse_not_finite",
    "refuse_replaced",
    "sites",
]


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

    @torch.no_grad()
    def membership(self) -> Membership | None:
        """Return where the weight is, or None where it cannot leave its set or has no numbers."""
        if not self.can_leave:
            return None
        first = next(iter(self.raw.values()))
        weight = self.holder.weight() if isinstance(self.holder, Slot) else self.weight().to(first.dtype)
        return membership_of(self.constraint, weight)._replace(name=self.name)


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


def project_(model: nn.Module) -> dict[str, float]:
    r"""Put every constrained weight of a model back into its set, once and in place.

    .. math:: W \leftarrow P(W) = \arg\min_{X \in S} \lVert X - W \rVert_F

    For a weight that something other than an attached optimizer has changed: an average over models, an edit by hand, a
    conversion to another dtype. Projections (``ball``, ``polar``, ``sigma="clip"``) are projected, ``clip`` through its
    stored singular values; a ``StableLSTM`` layer is projected as a whole; base points of ``gradient="lie"`` go to the
    nearest orthogonal matrix, and B to 0; signs beside the raw tensors of a map go to the nearest of 1 and -1. Maps
    are in their set whatever their raw tensors are. The cost is one singular value decomposition a weight.

    Args:
        model: Any module, also one that holds no constraint.

    Returns:
        How far each weight was moved, in Frobenius norm, under the name of what holds it; for one that was inside
        0, or its rounding.

    Raises:
        NotFiniteError: A weight holds NaN or infinity; nothing has been changed.
        ConstraintError: A weight has no way back (a permutation of ``unitary`` that is none any more).

    Example:
        >>> model = sr.RNN(2, 3, transition=sr.SpectralBall(bound=0.5))
        >>> with torch.no_grad():
        ...     _ = model.weight_hh_l0.copy_(torch.eye(3))
        >>> moved = sr.project_(model)
        >>> round(moved["transition_l0.h"], 4)  # from norm 1 to 0.5 in three directions
        0.866
        >>> sr.project_(model)
        {'transition_l0.h': 0.0}

    References:
        Higham. Matrix nearness problems and applications. 1989.
    """
    if not isinstance(model, nn.Module):
        raise ArgumentTypeError(f"`model` must be a module, but is of type {type(model).__name__}.")
    found = [site for site in sites(model) if site.can_leave]
    joint = [(name, module) for name, module in joint_modules(model) if module.memberships()]
    refuse_not_finite(found, joint)
    moved: dict[str, float] = {}
    for site in found:
        before = site.weight().clone()
        site.put_back()
        moved[site.name] = _distance(site.weight(), before)
    for name, module in joint:
        prefix = f"{name}." if name else ""
        own = dict(module.named_parameters(recurse=False))
        kept = {key: whole(tensor.detach()).clone() for key, tensor in own.items() if key.startswith(("weight", "bias"))}
        module.after_optimizer_step()
        moved |= {f"{prefix}{key}": _distance(whole(own[key].detach()), tensor) for key, tensor in kept.items()}
    check_inside(model, "could not be put back")
    return moved


def check_inside(model: nn.Module, when: str) -> None:
    """Refuse a model with a weight outside its set, and name the first; ``when`` is said in the error.

    Example:
        >>> check_inside(sr.RNN(2, 3, transition="polar"), "is outside")
    """
    _refuse_averaged(model)
    for found in memberships(model):
        if not found.violation <= found.allowed:
            raise ConstraintError(
                f"`{found.name}` {when}: it is outside the set of {found.constraint}, violation {found.violation:.3g}, allowed "
                f"for rounding {found.allowed:.3g}. Put it back with `sr.project_(model)`; to stay inside, train with "
                "`sr.attach_projection` and average with `sr.averaged`."
            )


def memberships(model: nn.Module) -> Iterator[Membership]:
    """Yield where each weight that could leave its set is.

    Example:
        >>> [found.name for found in memberships(sr.RNN(2, 3, transition="polar"))]
        ['transition_l0.h']
    """
    for site in sites(model):
        if site.can_leave:
            refuse_not_finite([site], [])
        place = site.membership()
        if place is not None:
            yield place
    for name, module in joint_modules(model):
        found = module.memberships()
        refuse_not_finite([], [(name, module)] if found else [])
        for one in found:
            yield one._replace(name=f"{name}.{one.name}" if name else one.name)


def joint_modules(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield the modules that put their own parameters back after a step, as a layer with a joint constraint does.

    Example:
        >>> [name for name, _ in joint_modules(torch.nn.Sequential(sr.LSTM(2, 3, transition="stable-lstm")))]
        ['0']
    """
    for name, module in model.named_modules():
        if isinstance(module, Projected) and not isinstance(module, Slot) and module.has_set():
            yield name, module


def _refuse_averaged(model: nn.Module) -> None:
    """Refuse torch's average of re-centred weights: the tensors it averages are 0, and the rest is the last model's."""
    for name, module in model.named_modules():
        if isinstance(module, AveragedModel) and not module.use_buffers:
            for site in sites(module):
                if site.constraint.kind is Kind.RECENTRED:
                    raise ConstraintError(
                        f"`{name or type(module).__name__}` is no average: torch's AveragedModel averages parameters, but "
                        f"{site.constraint} of `{site.name}` keeps its weight in a base point beside them, which is "
                        "copied from the last model. Average with `sr.averaged`."
                    )


def refuse_not_finite(found: list[Site], joint: list[tuple[str, Any]]) -> None:
    """Refuse constrained weights made of NaN or infinity, and name the first tensor that holds it.

    Example:
        >>> refuse_not_finite(list(sites(sr.RNN(2, 3, transition="polar"))), [])
    """
    tensors: dict[str, Tensor] = {}
    for site in found:
        tensors |= site.raw | {f"{site.name}.constraint.{name}": buffer for name, buffer in site.constraint.named_buffers()}
    for prefix, module in joint:
        tensors |= {f"{prefix}.{name}" if prefix else name: p for name, p in module.named_parameters(recurse=False)}
    for name, tensor in tensors.items():
        if not bool(whole(tensor.detach()).isfinite().all()):
            raise NotFiniteError(f"`{name}` holds NaN or infinity, so it is in no set, and no member of one is nearest to it.")


@torch.no_grad()
def _distance(after: Tensor, before: Tensor) -> float:
    return float((after.double() - before.double()).norm())
