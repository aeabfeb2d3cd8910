"""Modules of one form as a group: their parameters stacked, each kept in its own set, each with its own fate."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from steadyrnn.checks import without_autocast
from steadyrnn.errors import ArgumentError, ArgumentTypeError, NotFiniteError

from .base import Constraint
from .membership import joint_modules
from .sites import Site, sites

__all__ = ["Group"]


class _Branch(nn.Module):
    """A place in the tree of stacked parameters, which has the form of a member's."""


class Group(nn.Module, ABC):
    """R modules of one form. Every parameter is stacked: (R, ...) in place of R tensors, under the same name.

    An optimizer that works entry by entry (SGD, Adam, RMSprop) trains the stacked parameters as it would train each
    member's. A member's own parameters are rows of the stacked ones, without copies: what a constraint does to a member,
    it does to the group.

    Members can *rest*: they leave the stacked parameters and keep their weights, while the others go on.

    Args:
        members: Modules with the same parameters and buffers by name, shape, dtype, device and ``requires_grad``. The group
            takes copies.

    Attributes:
        members: The copies, all R of them.
        running: Places of the members whose parameters are stacked, in order.
    """

    members: list[nn.Module]
    running: tuple[int, ...]
    _sites: list[list[Site]]
    _joint: list[list[Any]]  # modules that put their own parameters back

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        given = _check_members(members)
        # not submodules: their parameters would be listed twice
        self.__dict__["members"] = [copy.deepcopy(member) for member in given]
        self.running = ()
        self.wake()

    @abstractmethod
    def forward(self, input: Tensor) -> Any:
        """Return the outputs of the running members for inputs stacked likewise."""

    def extra_repr(self) -> str:
        """Show how many members there are."""
        return f"{len(self.members)} members, {len(self.running)} running"

    # Stacked parameters

    def wake(self) -> None:
        """Let all members run, each from its own weights; an optimizer made before must be made anew."""
        self.running = tuple(range(len(self.members)))
        own = [dict(member.named_parameters()) for member in self.members]
        for name, first in own[0].items():
            rows = torch.stack([parameters[name].detach() for parameters in own])
            branch, leaf = self._branch(name)
            branch.register_parameter(leaf, nn.Parameter(rows, requires_grad=first.requires_grad))
        self._tie()

    def rest(self, places: Sequence[int]) -> Tensor:
        """Take members out, with the weights that they have; parameters, gradients and rows of the others stay.

        Args:
            places: Places in :attr:`members`.

        Returns:
            The rows that stay, of those before: what else is stacked alike is cut by ``index_select(0, rows)``.
        """
        out = set(places)
        unknown = out - set(self.running)
        if unknown:
            raise ArgumentError(f"`places` must name running members, of {list(self.running)}, but names {sorted(unknown)}.")
        kept = [row for row, place in enumerate(self.running) if place not in out]
        self.running = tuple(self.running[row] for row in kept)
        rows = torch.tensor(kept, dtype=torch.int64, device=next(self.parameters()).device)
        for parameter in self.parameters():
            grad, parameter.grad = parameter.grad, None
            parameter.data = parameter.data.index_select(0, rows)
            parameter.grad = None if grad is None else grad.index_select(0, rows)
        self._tie()
        return rows

    def _branch(self, name: str) -> tuple[nn.Module, str]:
        """Return where a parameter is in the tree, which grows as needed, and the last part of its name."""
        *path, leaf = name.split(".")
        branch: nn.Module = self
        for part in path:
            if part not in branch._modules:
                branch.add_module(part, _Branch())
            branch = branch._modules[part]  # type: ignore[assignment]
        return branch, leaf

    def _tie(self) -> None:
        """Make the parameters of running members rows of the stacked ones, and look their constraints up."""
        stacked = dict(self.named_parameters())
        for row, place in enumerate(self.running):
            for name, parameter in self.members[place].named_parameters():
                parameter.data = stacked[name].data[row]
        self.__dict__["_sites"] = [list(sites(member)) for member in self.members]
        self.__dict__["_joint"] = [[module for _, module in joint_modules(member)] for member in self.members]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Group":
        """Move or cast stacked parameters and members, and tie them anew."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for member in self.members:
            member._apply(fn)
        self._tie()
        return self

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Tie the members of a copy to its own parameters."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._tie()

    def train(self, mode: bool = True) -> "Group":
        """Set the mode of every member too."""
        super().train(mode)
        for member in self.members:
            member.train(mode)
        return self

    # Constraints

    def evaluate(self, constraints: Sequence[Constraint], raw: Sequence[str]) -> Tensor:
        """Return constrained weights of all running members, (R, M, N), from stacked raw tensors.

        Where the raw tensor is the weight (projections, free gates), it is returned as it is. Products of reflections are
        computed for all members at once, other constraints member by member.

        Args:
            constraints: One for each running member.
            raw: Names of the stacked raw tensors.
        """
        tensors = [self.get_parameter(key) for key in raw]
        with without_autocast(tensors[0].device):
            together = constraints[0].forward_stack(constraints, *tensors)
        if together is not None:
            return together
        rows = [tensor.unbind(0) for tensor in tensors]
        first = constraints[0](*(row[0] for row in rows))
        if len(rows) == 1 and first is rows[0][0]:
            return tensors[0]
        rest = [constraint(*(row[place] for row in rows)) for place, constraint in enumerate(constraints[1:], 1)]
        return torch.stack([first, *rest])

    def sites(self) -> list[list[Site]]:
        """Return the constrained weights of each running member, all in the same order."""
        return [self._sites[place] for place in self.running]

    @torch.no_grad()
    def after_optimizer_step(self) -> dict[int, NotFiniteError]:
        """Put the constrained weights of running members back into their sets: projections, and moved base points.

        Returns:
            The error of each member, by its place, whose weights are NaN or infinite, so that it was left as it is.
        """
        faults: dict[int, NotFiniteError] = {}
        for own in zip(*self.sites(), strict=True):
            if own[0].moves:
                self._put_back(own, faults)
        for place in self.running:
            try:
                for module in self._joint[place]:
                    module.after_optimizer_step()
            except NotFiniteError as error:
                faults[place] = error
        return faults

    def _put_back(self, own: Sequence[Site], faults: dict[int, NotFiniteError]) -> None:
        """Put one constrained weight of each running member back into its set: all at once where that is possible."""
        stacked = [self.get_parameter(key) for key in own[0].raw]
        finite = torch.stack([tensor.isfinite().flatten(1).all(1) for tensor in stacked]).all(0).tolist()
        if all(finite):
            moved = own[0].constraint.after_steps(*stacked)
            if moved is not None:
                for tensor, value in zip(stacked, moved, strict=True):
                    tensor.copy_(value)
                return
        for place, site, fine in zip(self.running, own, finite, strict=True):
            if fine:
                site.after_optimizer_step()
            else:
                faults[place] = NotFiniteError(f"`{site.name}` holds NaN or infinity, but must be finite.")

    def penalties(self) -> Tensor | None:
        """Return what the constraints of each running member add to its loss, (R,); None where they add nothing."""
        found: list[Tensor] = []
        for row, own in enumerate(self.sites()):
            parts = [site.constraint.penalty(*(self.get_parameter(key)[row] for key in site.raw)) for site in own]
            given = [part for part in parts if part is not None]
            if given:
                found.append(torch.stack(given).sum())
        return torch.stack(found) if found else None

    def ungroup(self) -> list[nn.Module]:
        """Return all members as modules of their own, which share nothing with the group."""
        return [copy.deepcopy(member) for member in self.members]


def _check_members(members: Sequence[nn.Module]) -> list[nn.Module]:
    """Refuse members that are not modules of one form."""
    if isinstance(members, nn.Module) or not isinstance(members, Sequence):
        raise ArgumentTypeError(f"`members` must be a list of modules, but is of type {type(members).__name__}.")
    if not members:
        raise ArgumentError("`members` must hold at least one module, but is empty.")
    for place, member in enumerate(members):
        if not isinstance(member, nn.Module):
            raise ArgumentTypeError(f"`members` must hold modules, but number {place} is of type {type(member).__name__}.")
    forms = [_form(member) for member in members]
    for place, form in enumerate(forms):
        for name in dict.fromkeys([*forms[0], *form]):
            if form.get(name) != forms[0].get(name):
                raise ArgumentError(
                    f"`members` must have one form, but {name} is {forms[0].get(name, 'missing')} in number 0 and "
                    f"{form.get(name, 'missing')} in number {place}. Make one group for each form."
                )
    if not forms[0] or not any(True for _ in members[0].parameters()):
        raise ArgumentError("`members` must have parameters, but number 0 has none.")
    return list(members)


def _form(member: nn.Module) -> dict[str, str]:
    """Return what must be the same in all members, by name, in words."""
    form = {"the class": type(member).__name__}
    for name, module in member.named_modules():
        if name:
            form[f"`{name}`"] = f"{type(module).__name__}({module.extra_repr()})"
        else:
            form["its arguments"] = module.extra_repr() or "none"
    for name, parameter in member.named_parameters():
        kind = "trained" if parameter.requires_grad else "frozen"
        form[f"`{name}`"] = f"{kind}, of shape {tuple(parameter.shape)} and dtype {parameter.dtype} on {parameter.device}"
    for name, tensor in member.named_buffers():
        form[f"`{name}`"] = f"a buffer of shape {tuple(tensor.shape)} and dtype {tensor.dtype} on {tensor.device}"
    return form
