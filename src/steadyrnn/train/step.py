"""One optimizer step: batch in parts, loss with penalties, gradients checked and clipped, weights moved."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from steadyrnn.constraints.optimizer import penalty
from steadyrnn.constraints.sites import sites
from steadyrnn.constraints.slot import cached
from steadyrnn.errors import ArgumentError
from steadyrnn.tasks.base import Batch, Task

from .averaging import WeightAverage
from .clipping import clip, free_recurrent_parameters, gradient_norm, limited_weights, recurrent_parameters
from .device import SMALLEST_SCALE, autocast, make_scaler
from .guard import Guard
from .model_call import Part, batch_rows, call_model, cut, detach_state, join_states
from .moving_average import MovingAverage
from .optimizers import make_optimizer
from .settings import TrainSettings

__all__ = ["Stepper"]


class Stepper:
    """Moves a model by one optimizer step at a time.

    Of n parts of a batch each loss, a mean over its rows, counts by its share of the rows: the gradients are those of the
    whole batch, up to rounding (and up to dropout, which draws for each part).

    Args:
        model: Any module, on the device.
        task: The task, on the same device.
        settings: How to train.
        call: What to call for the model's output: the model, or the model compiled.

    Attributes:
        state: What the model carries from batch to batch, where the task does that.
        average: What has added up since the last line of metrics.
        weight_average: The average of the weights after each step, where the settings ask for one.
    """

    def __init__(self, model: nn.Module, task: Task, settings: TrainSettings, call: Callable[..., Any]) -> None:
        self.model, self.task, self.settings, self.call = model, task, settings, call
        self.interface, device = task.interface, task.device
        self.scaler = make_scaler(settings.autocast, device)
        fused = device.type == "cuda" and self.scaler is None and settings.optimizer.name != "rmsprop"
        self.optimizer = make_optimizer(model, settings.optimizer, fused or None)
        self.rates = [group["lr"] for group in self.optimizer.param_groups]
        self.guard, self.average = Guard(device, waits=not fused), MovingAverage(device)
        if fused:
            self.optimizer.found_inf = self.guard.flag  # type: ignore[attr-defined]
        self.parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        self.weight_average = WeightAverage(model, settings.average, settings.compile)
        self._prepare_clipping()
        self.penalized = settings.penalty > 0 and any(site.penalty() is not None for site in sites(model))
        self.state: Any = None

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
        self.optimizer.zero_grad(set_to_none=True)
        state = None if batch.fresh else self.state
        parts = cut(batch, state, self.settings.accumulate, self.interface)
        losses, states = [], []
        sums: dict[str, Tensor] = {}
        self._scale_limit()
        with limited_weights(self.model, self.limit):
            for part in parts:
                output, last = self._forward(part)
                losses.append(self._backward(output, part))
                states.append(last)
                if scored:
                    own = self.task.scores(output.detach(), part.batch)
                    sums = {name: value + sums[name] if name in sums else value for name, value in own.items()}
        self.state = detach_state(join_states(states))
        loss = losses[0] if len(losses) == 1 else torch.stack(losses).sum()
        norm = self._move(number, loss, factor)
        self.weight_average.update(number, self.model)
        self.average.add(loss, norm, batch_rows(batch, self.interface))
        return sums

    def _scale_limit(self) -> None:
        """Scale the limit as the loss: in float16 gradients come back multiplied."""
        if self.limit is not None and self.scaler is not None:
            self.limit.fill_((self.settings.clip.recurrent or 0.0) * self.scaler.get_scale())

    def _forward(self, part: Part) -> tuple[Tensor, Any]:
        # a model may call its layer twice: with one weight, its gradients are summed before they are clipped
        once = nullcontext() if self.limit is None else cached()
        with once, autocast(self.settings.autocast, self.task.device):
            return call_model(self.call, part.batch, part.state, self.interface)

    def _backward(self, output: Tensor, part: Part) -> Tensor:
        """Add a part's gradients; return its share of the loss, without penalties."""
        loss = self.task.loss(output, part.batch)
        total = loss + self.settings.penalty * penalty(self.model) if self.penalized else loss
        if part.share != 1.0:
            loss, total = loss * part.share, total * part.share
        (total if self.scaler is None else self.scaler.scale(total)).backward()
        return loss.detach()

    def _move(self, number: int, loss: Tensor, factor: float) -> Tensor:
        """Check and clip the gradients, move the weights; return the gradients' norm before it was clipped."""
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        norm = gradient_norm(self.parameters).to(loss.device)
        if self.scaler is None:
            self.guard.watch(number, loss, norm)
        else:  # a scale that was too large shows in the gradients alone; the scaler leaves such a step out and shrinks
            shrunk = self.scaler.get_scale() < SMALLEST_SCALE
            self.guard.watch(number, loss, norm if shrunk else torch.zeros_like(norm))
        clip(self.settings.clip, self.parameters, self.recurrent, norm)
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor
        if self.scaler is None:
            self.optimizer.step()
            return norm
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return torch.where(norm.isfinite(), norm, torch.zeros_like(norm))
