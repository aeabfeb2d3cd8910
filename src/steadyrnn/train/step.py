"""One optimizer step: batch in parts, loss with penalties, gradients checked and clipped, weights moved."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from steadyrnn.constraints.optimizer import penalty
from steadyrnn.constraints.sites import sites
from steadyrnn.constraints.slot import cached
from steadyrnn.errors import ArgumentError
from steadyrnn.tasks.base import Batch, Task

from .averaging import WeightAverage
from .clipping import clip, free_recurrent_parameters, gradient_norm, limited_weights, recurrent_parameters
from .device import SMALLEST_SCALE, autocast, make_scaler
from .exchange import Exchange
from .graph import Outcome, StepGraphs, reason_against
from .guard import Guard
from .held_weights import HeldWeights
from .model_call import Part, batch_rows, call_model, cut, detach_state, join_batches, join_states
from .moving_average import MovingAverage
from .optimizers import make_optimizer
from .parts_check import check_parts
from .ranks import ALONE, Ranks
from .settings import TrainSettings
from .sharing import shares_time, sharing_of
from .spread_state import check_state_rows

__all__ = ["Stepper"]

_CHECKED = 8
"""Steps of which it is seen that the parts make up the batch: in the first one, all of its targets may count by chance."""


class Stepper:
    """Moves a model by one optimizer step at a time.

    Of parts of a batch each loss counts by its share, as the task says (``batch_weight``): the gradients are those of the whole
    batch, up to rounding (and up to dropout, which draws for each part). Each constraint is evaluated once per step. Of several
    processes each takes some of the rows, or of the steps, and gradients and losses are added up.

    Args:
        model: Any module, on the device.
        task: The task, on the same device.
        settings: How to train.
        call: What to call for the model's output: the model, or the model compiled.
        note: Called on a GPU with whether steps are captured and, if not, why; once per kind of step.
        ranks: The processes that share each batch.

    Attributes:
        state: What the model carries from batch to batch, where the task does that; of several processes for its share.
        average: What has added up since the last line of metrics.
        weight_average: The average of the weights after each step, where the settings ask for one.
    """

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        settings: TrainSettings,
        call: Callable[..., Any],
        note: Callable[[bool, str], None] = lambda captured, why: None,
        ranks: Ranks = ALONE,
    ) -> None:
        self.model, self.task, self.settings, self.call, self.ranks = model, task, settings, call, ranks
        self.interface, device, self.sharing = task.interface, task.device, sharing_of(task)
        self.exchange = Exchange(ranks, device) if ranks.joined else None
        self.scaler = make_scaler(settings.autocast, device)
        on_gpu = device.type == "cuda" and self.scaler is None
        fused = on_gpu and settings.optimizer.name != "rmsprop"
        self.optimizer = make_optimizer(model, settings.optimizer, fused or None, capturable=on_gpu)
        self.rates = [group.get("initial_lr", group["lr"]) for group in self.optimizer.param_groups]
        moves = any(site.moves for site in sites(model))  # which waits, and would move a base point that the guard holds
        self.guard, self.average = Guard(device, waits=not on_gpu or moves), MovingAverage(device)
        self.held = on_gpu and not fused  # whether the guard must hold the optimizer
        if fused:
            self.optimizer.found_inf = self.guard.flag  # type: ignore[attr-defined]
        self.parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        self.weight_average = WeightAverage(model, settings.average, settings.compile)
        self._prepare_clipping()
        self.weights = HeldWeights(model, self.limit, settings.compile)
        self.penalized = settings.penalty > 0 and any(site.penalty() is not None for site in sites(model))
        self.state: Any = None
        self.graphs = self._prepare_graphs(note)
        self.unchecked = _CHECKED if self.graphs is None else 1  # steps to come of which parts are seen to make up the batch

    def _prepare_graphs(self, note: Callable[[bool, str], None]) -> StepGraphs | None:
        """Return what captures steps, or None where none is to be captured; on a GPU say so."""
        required, why = self.settings.graph == "on", reason_against(self.model, self.task, self.settings)
        if not why and shares_time(self.task, self.ranks):
            why = "ranks exchange states within a step"
        if not why:
            return StepGraphs(self._compute, self.model, self.task.device, required, note)
        if required:
            raise ArgumentError(f"`graph` is 'on', but {why}. Use `graph='auto'`.")
        if self.task.device.type == "cuda" and self.settings.graph == "auto":
            note(False, why)
        return None

    def _prepare_clipping(self) -> None:
        """Find the recurrent weights; where they are computed, ``limit`` is what their gradients are clipped at."""
        own = self.settings.clip
        found = recurrent_parameters(self.model)
        if own.recurrent is not None and not found:
            raise ArgumentError("`clip.recurrent` needs a recurrent weight, but `model` has none. Leave it None.")
        by_weight = own.recurrent_of == "weight"
        self.recurrent = list((free_recurrent_parameters(self.model) if by_weight else found).values())
        clipped = own.recurrent is not None and by_weight
        self.limit = torch.tensor(own.recurrent, dtype=torch.float64, device=self.task.device) if clipped else None

    def step(self, number: int, batch: Batch, factor: float, scored: bool = False) -> dict[str, Tensor]:
        """Take optimizer step ``number`` on a batch.

        Args:
            number: Counted from 1.
            batch: The batch.
            factor: What every learning rate is multiplied by.
            scored: Whether to score the batch.

        Returns:
            The task's sums over the batch, empty if not ``scored``.
        """
        self.guard.begin(number)
        self._set_rates(factor)
        take = self._compute if self.graphs is None else self.graphs.run
        self.state, sums = take(batch, None if batch.fresh else self.state, scored)
        self.weight_average.update(number, self.model)
        self.average.count(batch_rows(batch, self.interface))
        return sums

    def _set_rates(self, factor: float) -> None:
        """Set every learning rate, in place where it is a tensor: a captured step reads it there."""
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate * factor)
            else:
                group["lr"] = rate * factor

    def _compute(self, batch: Batch, state: Any, scored: bool) -> Outcome:
        """Do what a step does on the device; on a GPU nothing here may depend on the step's number."""
        self.optimizer.zero_grad(set_to_none=True)
        parts = self._parts(batch, state)
        self._scale_limit()
        if len(parts) == 1 and self.exchange is None:
            loss, last, sums = self._take_whole(parts[0], scored)
        else:
            loss, last, sums = self._take_parts(batch, parts, scored)
        norm = self._move(loss)
        self.average.add_values(loss, norm)
        return detach_state(last), sums

    def _parts(self, batch: Batch, state: Any) -> list[Part]:
        """Return what this process computes, in parts that are no larger than ``accumulate`` of one process makes them."""
        own = self.sharing.part(batch, self.ranks, self.interface)
        return cut(own, state, self.sharing.pieces(self.settings.accumulate, self.ranks), self.interface)

    def _take_whole(self, part: Part, scored: bool) -> tuple[Tensor, Any, dict[str, Tensor]]:
        """Compute loss, state, sums and gradients of a whole batch."""
        with limited_weights(self.model, self.limit):
            output, last = self._forward(part)
            loss = self.task.loss(output, part.batch)
            self._backward(loss + self.settings.penalty * penalty(self.model) if self.penalized else loss)
            sums = self.task.scores(output.detach(), part.batch) if scored else {}
        return loss.detach(), last, sums

    def _take_parts(self, batch: Batch, parts: Sequence[Part], scored: bool) -> tuple[Tensor, Any, dict[str, Tensor]]:
        """Compute the same in parts, here and on other ranks: each constraint is evaluated once, and so are penalties."""
        losses, states = [], []
        outputs: list[Tensor] = []
        sums: dict[str, Tensor] = {}
        whole = self.task.batch_weight(batch)
        limit = self.limit if self.settings.compile else None  # of weights that the compiled model makes by itself
        with self.weights as held, limited_weights(self.model, limit):
            for part in parts:
                output, last = self._forward(part)
                loss = self.task.loss(output, part.batch)
                outputs += [output.detach()] if self.unchecked else []
                losses.append(_take_share(loss, output, self.task.batch_weight(part.batch), whole))
                self._backward(losses[-1])
                losses[-1] = losses[-1].detach()
                states.append(last)
                if self.ranks.size > 1:
                    check_state_rows(last, batch_rows(part.batch, self.interface))
                if scored:
                    own = self.task.scores(output.detach(), part.batch)
                    sums = {name: value + sums[name] if name in sums else value for name, value in own.items()}
        if self.unchecked:
            self._check_parts(batch, parts, outputs)
        loss = losses[0] if len(losses) == 1 else torch.stack(losses).sum()
        if self.exchange is not None:
            trained = [parameter for parameter in self.parameters if parameter.requires_grad]
            loss = self.exchange.add([*trained, *held.copies], loss)
        held.backward()
        if self.penalized:
            self._backward(self.settings.penalty * penalty(self.model))
        return loss, join_states(states), sums

    def _check_parts(self, batch: Batch, parts: Sequence[Part], outputs: Sequence[Tensor]) -> None:
        """See that the task says how parts of a batch count: on one with two rows, or on single rows, of other ranks too."""
        own, seen, each = [parts[0].batch], [outputs[0]], self.interface.reads == "each"
        if batch_rows(own[0], self.interface) == 1 and len(parts) > 1:
            own, seen = [part.batch for part in parts[:2]], [*outputs[:2]]
        elif batch_rows(batch, self.interface) == self.ranks.size > 1 and not shares_time(self.task, self.ranks):
            given = self.ranks.gather(None, {"output": outputs[0]})
            own, seen = [batch], [tensors["output"].to(outputs[0].device) for _, tensors in given]
        check_parts(self.task, torch.cat(seen, 1 if each else 0), join_batches(own, self.interface))
        self.unchecked -= 1

    def _scale_limit(self) -> None:
        """Scale the limit as the loss: in float16 gradients come back multiplied."""
        if self.limit is not None and self.scaler is not None:
            self.limit.fill_((self.settings.clip.recurrent or 0.0) * self.scaler.get_scale())

    def _forward(self, part: Part) -> tuple[Tensor, Any]:
        # a model may call its layer twice: with one weight, its gradients are summed before they are clipped
        once = nullcontext() if self.limit is None else cached()
        parametrized = nullcontext() if self.limit is None or self.settings.compile else parametrize.cached()
        with once, parametrized, autocast(self.settings.autocast, self.task.device):
            return call_model(self.call, part.batch, part.state, self.interface)

    def _backward(self, loss: Tensor) -> None:
        """Add the gradients of a loss."""
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()

    def _move(self, loss: Tensor) -> Tensor:
        """Check and clip the gradients, move the weights; return the gradients' norm before it was clipped."""
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        norm = gradient_norm(self.parameters).to(loss.device)
        if self.scaler is None:
            self.guard.watch(loss, norm)
        else:  # a scale that was too large shows in the gradients alone; the scaler leaves such a step out and shrinks
            shrunk = self.scaler.get_scale() < SMALLEST_SCALE
            self.guard.watch(loss, norm if shrunk else torch.zeros_like(norm))
        clip(self.settings.clip, self.parameters, self.recurrent, norm)
        if self.held:
            self.guard.hold(self.optimizer)
        if self.scaler is None:
            self.optimizer.step()
            return norm
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return torch.where(norm.isfinite(), norm, torch.zeros_like(norm))


def _take_share(loss: Tensor, output: Tensor, weight: Tensor | float, whole: Tensor | float) -> Tensor:
    """Return what the loss of a part adds to that of a batch.

    A part of which nothing counts adds 0, and has gradients of 0, though its mean, and what goes back through it, may be 0/0.
    """
    if not isinstance(weight, Tensor) and not isinstance(whole, Tensor) and weight > 0:
        return loss if weight == whole else loss * (weight / whole)
    part, total = (torch.as_tensor(number, dtype=torch.float64, device=loss.device) for number in (weight, whole))
    counts = part > 0
    if output.requires_grad:
        output.register_hook(lambda gradient: torch.where(counts, gradient, 0.0))
    return torch.where(counts, loss * (part / total).to(loss.dtype), 0.0)
