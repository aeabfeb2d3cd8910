"""What a loss sees: its derivatives with respect to the outputs and, past the recurrence, to the inputs."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from steadyrnn.checks import check_finite
from steadyrnn.errors import ArgumentError, ArgumentTypeError

from .unrolled import Unrolled

__all__ = ["Loss", "Partials", "loss_partials"]

Loss = Callable[[Tensor], Tensor]
"""From outputs in the form the module gives them to one number, or to one per step."""


@dataclass(frozen=True)
class Partials:
    """Derivatives of a loss, (T, B, H) by the top layer's output and (T, B, D) by the input directly; float64.

    With ``per_step`` entry t is that of the loss at time t, which sees nothing of any other time.
    """

    states: Tensor
    inputs: Tensor
    per_step: bool


def loss_partials(run: Unrolled, loss: Loss) -> Partials:
    """Return the derivatives of a loss with respect to what it sees.

    Args:
        run: The network on its input.
        loss: Gets the layer's outputs in the form of the user's input; of a sequence model, its logits.

    Example:
        >>> from steadyrnn.probes.unrolled import unroll
        >>> run = unroll(sr.RNN(3, 4), torch.ones(5, 2, 3))
        >>> loss_partials(run, lambda outputs: outputs[-1].sum()).states[-1, 0]
        tensor([1., 1., 1., 1.], dtype=torch.float64)
        >>> loss_partials(run, lambda outputs: outputs.square().sum(-1)).per_step
        True
    """
    if not callable(loss):
        raise ArgumentTypeError(f"`loss` must be a function of the outputs, but is of type {type(loss).__name__}.")
    outputs, inputs = (tensor.detach().clone().requires_grad_() for tensor in (run.outputs(), run.inputs))
    with torch.enable_grad():
        value = loss(_seen(run, outputs, inputs))
    if not isinstance(value, Tensor):
        raise ArgumentTypeError(f"`loss` must return a tensor, but returned a value of type {type(value).__name__}.")
    per_step = _is_per_step(run, value)
    if not value.requires_grad:
        raise ArgumentError("`loss` returned a number that does not depend on the outputs, or not differentiably.")
    by_output, by_input = _gradients(value, torch.ones_like(value), outputs, inputs)
    if per_step:
        _refuse_other_times(run, value, outputs, inputs, by_output)
    check_finite("loss' gradient", by_output)
    return Partials(by_output, check_finite("loss' gradient", by_input), per_step)


def _seen(run: Unrolled, outputs: Tensor, inputs: Tensor) -> Tensor:
    """Return what the loss is a function of: outputs, or a model's logits, without dropout, in the user's form."""
    if run.model is None:
        return run.as_user(outputs)
    read = {"each": _all, "last": _last, "mean": _mean}[run.model.reads]
    h, x = (read(run, part) for part in (outputs, inputs))
    logits: Tensor = run.model.readout(h)
    return logits if run.model.skip is None else logits + run.model.skip(x)


def _all(run: Unrolled, sequence: Tensor) -> Tensor:
    return run.as_user(sequence)


def _mean(run: Unrolled, sequence: Tensor) -> Tensor:
    mean = sequence.sum(0) / max(len(sequence), 1)
    return mean if run.batched else mean.squeeze(0)


def _last(run: Unrolled, sequence: Tensor) -> Tensor:
    return sequence[-1] if run.batched else sequence[-1].squeeze(0)


def _is_per_step(run: Unrolled, value: Tensor) -> bool:
    """Say whether a loss has one value per step; refuse any other shape than that or a single number."""
    if value.dim() == 0:
        return False
    rows = run.inputs.shape[1]
    steps = run.as_user(value.new_empty(run.steps, rows)).shape
    timed = run.model is None or run.model.reads == "each"
    if timed and tuple(value.shape) in {(run.steps,), tuple(steps)}:
        return True
    expected = f", or one per step, shape ({run.steps},) or {tuple(steps)}" if timed else ""
    raise ArgumentError(f"`loss` must return one number{expected}, but returned shape {tuple(value.shape)}.")


def _gradients(value: Tensor, cotangent: Tensor, outputs: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
    by_output, by_input = torch.autograd.grad(
        value, [outputs, inputs], cotangent, retain_graph=True, allow_unused=True, materialize_grads=True
    )
    return by_output.double(), by_input.double()


def _refuse_other_times(run: Unrolled, value: Tensor, outputs: Tensor, inputs: Tensor, plain: Tensor) -> None:
    """Refuse a loss whose value at one step, or in one row, sees another's output.

    Weighted by powers of two, different at every step and row, its gradient must be the plain one weighted likewise.
    """
    generator = torch.Generator().manual_seed(0)
    powers = torch.randperm(value.numel(), generator=generator, device="cpu") % 17 - 8  # all different for up to 17 values
    weights = torch.exp2(powers.to(value)).view(value.shape)
    weighted, _ = _gradients(value, weights, outputs, inputs)
    rows = weights.unsqueeze(-1) if value.dim() == 1 else _as_time_first(run, weights)
    rows = rows.double().view(run.steps, -1, 1)  # (T, B or 1, 1)
    error, size = (weighted - rows * plain).norm(), weighted.norm()
    if not float(error) <= 64 * torch.finfo(value.dtype).eps * float(size):
        raise ArgumentError(
            "`loss` returned one value per step, but the value at one step (or row) depends on the output of another. "
            "Return one number instead, or values that see their own step only."
        )


def _as_time_first(run: Unrolled, value: Tensor) -> Tensor:
    """Return values (T, B) from the user's form of them."""
    return value.mT if run.rnn.batch_first else value
