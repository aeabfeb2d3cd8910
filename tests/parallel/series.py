"""Runs of one series over threads and over one process, and how far they are apart."""

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from steadyrnn.parallel.module import Parallel
from steadyrnn.parallel.report import ParallelReport
from tests.parallel.layers import states_of
from tests.parallel.threads import ThreadRanks, run_threads

__all__ = ["LOSSES", "Found", "distances", "every_step", "parallel", "run_ranks", "sequential"]


def parallel(layer: nn.Module, tol: float, ranks: ThreadRanks, chunk: int | None = None, **options: Any) -> Parallel:
    bound, gradient_tol = options.get("input_bound"), options.get("gradient_tol")
    return Parallel(copy.deepcopy(layer), tol, chunk, bound, gradient_tol, options.get("verify", False), ranks)


class Found(NamedTuple):
    """What one rank has."""

    output: Tensor
    state: tuple[Tensor, ...]
    gradient: tuple[Tensor, ...]
    report: ParallelReport


def run_ranks(
    layer: nn.Module, x: Tensor, sizes: Sequence[int], tol: float, loss: Callable[..., Tensor], hx: Any = None, **options: Any
) -> list[Found]:
    """Run a series over as many ranks as there are sizes; ``loss(rank, output, state)`` is each rank's own."""
    parts = x.split(list(sizes))

    def work(ranks: ThreadRanks) -> Found:
        fast = parallel(layer, tol, ranks, **options)
        output, state = fast(parts[ranks.rank], hx if ranks.rank == 0 else None)
        loss(ranks.rank, output, state).backward()
        gradient = tuple(p.grad for p in fast.layer.parameters())
        return Found(output.detach(), tuple(s.detach() for s in states_of(state)), gradient, fast.report)

    return run_threads(len(sizes), work)


def sequential(layer: nn.Module, x: Tensor, sizes: Sequence[int], loss: Callable[..., Tensor], hx: Any = None) -> Found:
    """Return the same of the layer itself; the loss is the sum of all ranks'."""
    layer.zero_grad()
    output, state = layer(x, hx)
    sum(loss(rank, part, state) for rank, part in enumerate(output.split(list(sizes)))).backward()
    gradient = tuple(torch.zeros_like(p) if p.grad is None else p.grad for p in layer.parameters())
    return Found(output.detach(), tuple(s.detach() for s in states_of(state)), gradient, ParallelReport(0.0, ()))


def distances(found: list[Found], truth: Found) -> tuple[float, float]:
    """Return the largest error of an output or final state, and the gradient's, over W, U and one b together."""
    output = torch.cat([one.output for one in found])
    gaps = [(output - truth.output).norm(dim=-1).flatten(), torch.zeros(1, dtype=output.dtype)]
    gaps += [(one.state[0] - truth.state[0]).norm(dim=-1).flatten() for one in found]
    summed = [sum(one.gradient[place] for one in found) for place in range(len(truth.gradient))]
    keep = [a - b for a, b in zip(summed, truth.gradient, strict=True)]
    if len(keep) == 4:
        keep = keep[:3]  # of two bias vectors, which have the same gradient, one
    return float(torch.cat(gaps).max()), float(torch.cat([one.flatten() for one in keep]).norm())


def every_step(rank: int, output: Tensor, state: Any) -> Tensor:
    """A linear loss, so that what arrives does not depend on the error of the outputs: the bound is for what arrives."""
    return (output * torch.cos(1.0 + torch.arange(output.numel()).view(output.shape))).sum()


def of_last(rank: int, output: Tensor, state: Any) -> Tensor:
    """Only the last of four ranks has a loss."""
    return states_of(state)[0].sum() if rank == 3 else 0 * output.sum()


def of_first(rank: int, output: Tensor, state: Any) -> Tensor:
    """Only rank 0 has one, of the final state, which the last rank computed."""
    last = states_of(state)[-1]
    return (last * torch.cos(torch.arange(last.shape[-1]))).sum() if rank == 0 else 0 * output.sum()


LOSSES = {"every": every_step, "last": of_last, "first": of_first}
