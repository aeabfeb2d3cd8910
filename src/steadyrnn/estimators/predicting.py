"""Answers of a network for arrays, the same for a series alone and among others."""

import copy
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from steadyrnn.constraints.slot import cached
from steadyrnn.tasks.series.examples import Examples, Flat
from steadyrnn.tasks.series.scaling import fill_missing
from steadyrnn.train.device import choose_device, device_context
from steadyrnn.train.settings import TrainSettings

from .preparing import Learned, make_set, whole

__all__ = ["largest_input", "run_model"]

_NUMBERS = 1 << 22
"""Numbers of a batch of inputs."""
_ROWS = 256


def run_model(
    model: nn.Module, learned: Learned, values: Sequence[NDArray[np.float64]], device: str, threads: int | None
) -> Tensor:
    """Return the outputs of a network, float64 (N, C).

    Rounding depends on the rows of a batch. So all of it is computed in float64, where that shows in the 15th digit or later,
    and the answer for a series does not depend on those beside it.

    Args:
        model: The network.
        learned: How series are prepared.
        values: The series, arrays (T_i, D).
        device: Where it runs.
        threads: CPU threads; None leaves torch's number.
    """
    settings = TrainSettings(device=device, threads=threads)
    with device_context(settings), torch.no_grad(), cached():
        where = choose_device(device)
        wide = copy.deepcopy(model).double().to(where).eval()
        flat, examples = _read(learned, values)
        flat = flat.to(where)
        order = examples.length.argsort(descending=True, stable=True)
        rows = max(1, min(_ROWS, _NUMBERS // max(1, int(examples.length.max()) * flat.padded.shape[1])))
        found = []
        for part in order.split(rows):
            x, lengths, _ = examples.read(flat, learned.problem.patch, part)
            output, _ = wide(x) if lengths is None else wide(x, lengths=lengths)
            found.append(output.cpu())
        outputs = torch.cat(found)
        return torch.empty_like(outputs).index_copy_(0, order, outputs)


def largest_input(learned: Learned, values: Sequence[NDArray[np.float64]]) -> float:
    """Return the largest 2-norm of what the network reads in one step of some series."""
    flat, examples = _read(learned, values)
    largest = 0.0
    for part in torch.arange(len(examples)).split(_ROWS):
        x, _, _ = examples.read(flat, learned.problem.patch, part)
        largest = max(largest, float(torch.linalg.vector_norm(x.double(), dim=-1).max()))
    return largest


def _read(learned: Learned, values: Sequence[NDArray[np.float64]]) -> tuple[Flat, Examples]:
    """Return scaled series without gaps and without targets, in float64, and each series as an example."""
    series = make_set(values, None)
    every = whole(series)
    ahead = learned.problem.kind != "forecasting"  # as in training
    scaled = fill_missing(series, {"all": every}, learned.scaling, learned.settings.missing, ahead).double()
    return Flat.of(scaled, scaled.new_empty(0)), Examples(
        every.start, every.lengths, every.series, torch.zeros_like(every.start)
    )
