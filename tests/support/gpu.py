"""Recurrences on a GPU, and an engine there beside the reference in float64."""

from collections.abc import Iterable
from types import SimpleNamespace

import torch
from torch import Tensor

from steadyrnn.cells.rnn import RNNStep
from steadyrnn.engines.base import Engine, Recurrence, flatten_weight, unflatten_weight
from steadyrnn.engines.reference import ReferenceEngine
from tests.support.errors import assert_within_budget, errors
from tests.support.recurrences import as_dtype, results
from tests.support.reordered import rounding_errors

__all__ = ["KINKED", "away_from_kinks", "compare", "nearest_kink", "on_gpu"]

KINKED = ("rnn-relu", "rnn-leaky_relu", "rnn-abs")
MARGIN = 1e-4  # far above what float32 errs by in a few steps
REFERENCE = ReferenceEngine()


def on_gpu(run: Recurrence) -> Recurrence:
    """Return the same numbers on the GPU, as fresh leaves."""

    def move(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor.detach().cuda().requires_grad_()

    return run._replace(
        input=move(run.input), state=tuple(move(s) for s in run.state), weight_ih=move(run.weight_ih),
        weight_hh=unflatten_weight([move(part) for part in flatten_weight(run.weight_hh)]),
        bias_ih=move(run.bias_ih), bias_hh=move(run.bias_hh), theta=move(run.theta),
    )  # fmt: skip


def compare(engine: Engine, run: Recurrence, *others: Recurrence, gradients: bool = True) -> None:
    """Compare an engine with the reference in float64; what the reference loses in the run's own dtype it may lose, too.

    One draw's error is a matter of luck where there are few numbers: the largest is taken, of ``run`` and ``others``. In
    float64 the reference is the truth itself, and what it loses is seen by reordering the units of ``run``.
    """
    truth = results(REFERENCE, as_dtype(run, torch.float64), gradients=gradients)
    if run.input.dtype == torch.float64:
        allowance = rounding_errors(run, truth, gradients=gradients)
    else:
        allowance = errors(results(REFERENCE, run, gradients=gradients), truth)
        for other in others:
            right = results(REFERENCE, as_dtype(other, torch.float64), gradients=gradients)
            lost = errors(results(REFERENCE, other, gradients=gradients), right)
            allowance = {key: max(lost[key], allowed) for key, allowed in allowance.items()}
    assert_within_budget(results(engine, run, gradients=gradients), truth, allowance)


def nearest_kink(run: Recurrence) -> float:
    """Return the smallest pre-activation of a run of an Elman cell in float64, in absolute value."""
    seen: list[float] = []

    def value(x: Tensor, theta: Tensor | None) -> Tensor:
        seen.append(float(x.abs().min()))
        return run.cell.activation.value(x, theta)

    with torch.no_grad():
        facts = {"key": "seen", "name": "seen", "coordinates": None, "cudnn_mode": None, "torch_name": None, "onnx_name": None}
        REFERENCE.run(as_dtype(run, torch.float64)._replace(cell=RNNStep(SimpleNamespace(value=value, **facts))))
    return min(seen)


def away_from_kinks(runs: Iterable[Recurrence]) -> Recurrence:
    """Return the first run whose pre-activations lie so far from 0 that float32 sees their signs."""
    return next(run for run in runs if nearest_kink(run) > MARGIN)
