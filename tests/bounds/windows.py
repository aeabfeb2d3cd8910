"""Windows of time in plain code: what the bounds are tested against."""

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

from steadyrnn.bounds.norms import Norm

__all__ = [
    "CHUNK",
    "LAMBDA",
    "LINEAR",
    "RELU",
    "STEPS",
    "TANH",
    "Activation",
    "drawn",
    "mismatches",
    "noise",
    "states",
    "swept",
    "true_error",
    "windows",
]

LAMBDA, STEPS, CHUNK = 0.9, 1024, 64
Activation = Callable[[Tensor], Tensor]
TANH: Activation = torch.tanh
RELU: Activation = torch.relu
LINEAR: Activation = torch.clone


def drawn(n: int, rate: float, seed: int = 0) -> Tensor:
    """Return a Gaussian matrix scaled to spectral norm ``rate``."""
    w = torch.randn(n, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return w * (rate / torch.linalg.matrix_norm(w, 2))


def noise(steps: int, n: int, seed: int = 1) -> Tensor:
    return torch.randn(steps, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def states(w: Tensor, inputs: Tensor, act: Activation, start: Tensor | None = None) -> Tensor:
    """Return all states of the plain recursion, the initial one first, (T + 1, n)."""
    found = [torch.zeros(w.shape[0], dtype=torch.float64) if start is None else start]
    for x in inputs:
        found.append(act(w @ found[-1] + x))
    return torch.stack(found)


def windows(w: Tensor, inputs: Tensor, act: Activation, warmup: int, chunk: int = CHUNK) -> list[Tensor]:
    """Return the states of each chunk, (C + 1, n), its start state first: run from zero ``warmup`` steps earlier."""
    found = []
    for first in range(0, len(inputs), chunk):
        begin = max(0, first - warmup)
        start = states(w, inputs[begin:first], act)[-1]
        found.append(states(w, inputs[first : first + chunk], act, start))
    return found


def swept(w: Tensor, inputs: Tensor, act: Activation, before: list[Tensor], chunk: int = CHUNK) -> list[Tensor]:
    """Return the chunks, each run again from where the one before it ended."""
    starts = [before[0][0], *(one[-1] for one in before[:-1])]
    return [states(w, inputs[j * chunk : (j + 1) * chunk], act, start) for j, start in enumerate(starts)]


def true_error(found: list[Tensor], truth: Tensor, norm: Norm, chunk: int = CHUNK) -> float:
    """Return the largest error of an output."""
    gaps = [norm(one[1:] - truth[j * chunk + 1 : j * chunk + 1 + len(one) - 1]).max() for j, one in enumerate(found)]
    return float(max(gaps))


def mismatches(found: list[Tensor], norm: Norm) -> Tensor:
    return torch.stack([torch.zeros((), dtype=torch.float64), *(norm(a[-1] - b[0]) for a, b in pairwise(found))])
