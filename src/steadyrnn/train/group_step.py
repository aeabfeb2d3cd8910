"""One optimizer step of a group: losses, norms, clipping and failures member by member."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from steadyrnn.constraints.free import Free
from steadyrnn.constraints.group import Group
from steadyrnn.errors import ArgumentError, TrainingError
from steadyrnn.tasks.base import Batch, Task

from .clipping import recurrent_parameters
from .guard import not_finite
from .optimizers import OPTIMIZERS
from .settings import ClipSettings, OptimizerSettings, TrainSettings

__all__ = ["GroupStepper", "check_stackable", "member_norms", "stack_inputs"]


def stack_inputs(batches: Sequence[Batch]) -> Tensor:
    """Return the inputs of a batch for each member, (T, R, B, D), in memory one member after another.

    Example:
        >>> batch = Batch(torch.zeros(5, 3, 2), torch.zeros(3, 1))
        >>> stack_inputs([batch, batch]).shape
        torch.Size([5, 2, 3, 2])
    """
    check_stackable(batches)
    first = batches[0]
    if all(batch is first for batch in batches):
        return first.input.unsqueeze(1).expand(-1, len(batches), -1, -1)
    return torch.stack([batch.input for batch in batches]).transpose(0, 1)


def check_stackable(batches: Sequence[Batch]) -> None:
    """Refuse batches of several shapes, or with lengths.

    Example:
        >>> check_stackable([Batch(torch.zeros(5, 3, 2), torch.zeros(3, 1))])
    """
    first = batches[0]
    for place, batch in enumerate(batches):
        if batch.lengths is not None:
            raise ArgumentError("`tasks` must give series of equal lengths for a group, but has others. Train one by one.")
        if batch.input.shape != first.input.shape:
            raise ArgumentError(
                f"`tasks` must give batches of one shape, but task number 0 gives {tuple(first.input.shape)} and number "
                f"{place} {tuple(batch.input.shape)}."
            )


def member_norms(parameters: Sequence[Tensor]) -> Tensor:
    """Return the norm of all gradients of each member together, (R,), from parameters (R, ...).

    Example:
        >>> weight = torch.zeros(2, 2, requires_grad=True)
        >>> (weight * torch.tensor([[3.0, 4.0], [0.0, 1.0]])).sum().backward()
        >>> member_norms([weight])
        tensor([5., 1.])
    """
    grads = [parameter.grad.flatten(1) for parameter in parameters if parameter.grad is not None]
    norms = torch.stack([torch.linalg.vector_norm(grad, dim=1) for grad in grads])
    total: Tensor = torch.linalg.vector_norm(norms, dim=0)
    return total


class GroupStepper:
    """Moves all running members of a group by one optimizer step at a time, each as if it were alone.

    The loss of the group is the sum of the members' losses, so that each gradient is that of its own member's loss. A
    member whose loss or gradient is not finite rests before the step, with the weights that it has; the others move.

    Args:
        group: The models, on the device of the tasks.
        tasks: One for each member, in the order of ``group.members``; they may be one and the same.
        settings: How to train.

    Attributes:
        failures: Why a member failed, by its place.
        moved: Places of the members that took the latest step, in the order of what :meth:`step` returns.
        seen: The output and the batch of the latest step, by place.
    """

    def __init__(self, group: Group, tasks: Sequence[Task], settings: TrainSettings) -> None:
        self.group, self.tasks, self.settings = group, tasks, settings
        self.optimizer = _make_optimizer(group, settings.optimizer)
        self.rates = [own["lr"] for own in self.optimizer.param_groups]
        self.parameters = [parameter for own in self.optimizer.param_groups for parameter in own["params"]]
        self.recurrent = _recurrent(group, settings.clip)
        raw = {name for site in group.sites()[0] if not isinstance(site.constraint, Free) for name in site.raw}
        constrained = {id(group.get_parameter(name)) for name in raw}
        self.limited = [parameter for parameter in self.recurrent if id(parameter) in constrained]
        self.failures: dict[int, TrainingError] = {}
        self.moved: tuple[int, ...] = ()
        self.seen: dict[int, tuple[Tensor, Batch]] = {}

    def step(self, number: int, factor: float) -> tuple[Tensor, Tensor]:
        """Take optimizer step ``number``, counted from 1, with every learning rate multiplied by ``factor``.

        Returns:
            The loss and the gradient norm before clipping of each member that took the step, (R,).
        """
        self.optimizer.zero_grad(set_to_none=True)
        batches = self.batches(number - 1)
        output, _ = self.group(stack_inputs(batches))
        losses = torch.stack(self.each_loss(output, batches))
        self.seen = dict(zip(self.group.running, zip(output.detach().unbind(-3), batches, strict=True), strict=True))
        penalties = self.group.penalties()
        total = losses if penalties is None else losses + penalties
        total.backward(torch.ones_like(total))  # as of the sum, which NaN of one member would not show
        losses = losses.detach()
        self._clip_recurrent(self.limited)  # alone, the gradient of a constrained weight is clipped in the backward pass
        norms = member_norms(self.parameters)
        finite = losses.isfinite() & norms.isfinite()
        if not bool(finite.all()):
            losses, norms = self._fail(number, finite, losses, norms)
        self.moved = self.group.running
        if self.moved:
            self._move(number, norms, factor)
        return losses, norms

    def batches(self, step: int) -> list[Batch]:
        """Return training batch number ``step`` of each running member; a shared task is asked once."""
        found: dict[int, Batch] = {}
        for place in self.group.running:
            task = self.tasks[place]
            if id(task) not in found:
                found[id(task)] = task.train_batch(step, self.settings.batch_size)
        return [found[id(self.tasks[place])] for place in self.group.running]

    def each_loss(self, output: Tensor, batches: Sequence[Batch]) -> list[Tensor]:
        """Return the loss of each running member by its own task."""
        own = self.member_outputs(output)
        return [self.tasks[place].loss(own[row], batches[row]) for row, place in enumerate(self.group.running)]

    def member_outputs(self, output: Tensor) -> tuple[Tensor, ...]:
        """Return the output of each running member, from (R, B, N) or (T, R, B, N)."""
        return output.unbind(-3)

    def rest(self, places: Sequence[int]) -> Tensor:
        """Let members rest: the group, its gradients and the optimizer's state go on without them."""
        before = len(self.group.running)
        rows = self.group.rest(places)
        for state in self.optimizer.state.values():
            for name, value in state.items():
                if isinstance(value, Tensor) and value.dim() > 0 and value.shape[0] == before:
                    state[name] = value.index_select(0, rows)
        return rows

    def _fail(self, number: int, finite: Tensor, losses: Tensor, norms: Tensor) -> tuple[Tensor, Tensor]:
        """Let members rest whose numbers are not finite, and note why."""
        bad = [row for row, fine in enumerate(finite.tolist()) if not fine]
        places = [self.group.running[row] for row in bad]
        for row, place in zip(bad, places, strict=True):
            self.failures[place] = not_finite(number, float(losses[row]), float(norms[row]))
        rows = self.rest(places)
        return losses.index_select(0, rows), norms.index_select(0, rows)

    def _clip_recurrent(self, parameters: Sequence[Tensor]) -> None:
        """Clip gradients of recurrent weights entry by entry."""
        limit = self.settings.clip.recurrent
        for parameter in parameters:
            if parameter.grad is not None and limit is not None:
                parameter.grad.clamp_(-limit, limit)

    @torch.no_grad()
    def _move(self, number: int, norms: Tensor, factor: float) -> None:
        """Clip the gradients of each member by its own norm, and move the weights."""
        clip = self.settings.clip
        if clip.recurrent is not None:
            self._clip_recurrent(self.recurrent)
            norms = member_norms(self.parameters) if clip.norm is not None else norms
        if clip.norm is not None:
            scale = (clip.norm / (norms + 1e-6)).clamp(max=1.0)  # as torch.nn.utils.clip_grad_norm_
            for parameter in self.parameters:
                if parameter.grad is not None:
                    parameter.grad.mul_(scale.view(-1, *(1,) * (parameter.dim() - 1)))
        for own, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            own["lr"] = rate * factor
        self.optimizer.step()
        faults = self.group.after_optimizer_step()
        for place, error in faults.items():
            self.failures[place] = TrainingError(f"After step {number} a weight cannot be put back into its set: {error}")
        if faults:
            self.rest(list(faults))


def _make_optimizer(group: Group, settings: OptimizerSettings) -> torch.optim.Optimizer:
    """Return the optimizer of the stacked parameters, with the groups that each member would have."""
    named = dict(group.named_parameters())
    raw = {name for site in group.sites()[0] if not isinstance(site.constraint, Free) for name in site.raw}
    split: tuple[list[nn.Parameter], list[nn.Parameter]] = ([], [])
    for name, parameter in named.items():
        split[name not in raw].append(parameter)
    if not any(parameter.requires_grad for parameter in named.values()):
        raise ArgumentError("`group` must have a parameter with `requires_grad`, but all are frozen: nothing to train.")
    rates = settings.lr if settings.transition_lr is None else settings.transition_lr, settings.lr
    groups: list[dict[str, Any]] = [{"params": own, "lr": lr} for own, lr in zip(split, rates, strict=True) if own]
    return OPTIMIZERS[settings.name](groups, settings, None, False)


def _recurrent(group: Group, settings: ClipSettings) -> list[nn.Parameter]:
    """Return the stacked parameters whose gradients are clipped entry by entry."""
    if settings.recurrent is None:
        return []
    first = group.members[group.running[0]]
    names = recurrent_parameters(first)
    if not names:
        raise ArgumentError("`clip.recurrent` needs a recurrent weight, but the members have none. Leave it None.")
    made = [site.name for site in group.sites()[0] if not _is_weight(site.constraint, list(site.raw.values()))]
    if made:
        raise ArgumentError(
            f"`clip.recurrent` of a group needs a recurrent weight that is a parameter, but `{made[0]}` is computed from raw "
            "tensors. Leave it None, or train the members one by one."
        )
    return [group.get_parameter(name) for name in names]


def _is_weight(constraint: nn.Module, raw: Sequence[Tensor]) -> bool:
    """Say whether the raw tensor is the weight itself."""
    return len(raw) == 1 and constraint(raw[0]) is raw[0]
