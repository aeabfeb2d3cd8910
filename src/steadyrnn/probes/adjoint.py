"""Derivatives carried backwards through an unrolled network, many at a time, and their norms by lag."""

from dataclasses import dataclass

import torch
from torch import Tensor

from steadyrnn.checks import without_autocast
from steadyrnn.engines.base import Recurrence

from .losses import Partials
from .unrolled import Unrolled, advance, as_recurrence

__all__ = ["Tally", "matrix_norms", "walk_back"]


@dataclass
class Tally:
    """The largest, the least and the mean norm at every lag, each tensor (N,) in float64; first Frobenius, then spectral."""

    largest: Tensor
    least: Tensor
    total: Tensor
    count: Tensor

    @classmethod
    def empty(cls, lags: int, device: torch.device) -> "Tally":
        """Return a tally of nothing."""
        zero = torch.zeros(2, lags, dtype=torch.float64, device=device)
        return cls(zero - torch.inf, zero + torch.inf, zero, zero[0].clone())

    def add(self, lags: Tensor, norms: Tensor) -> None:
        """Count norms (2, M, B) in: M different lags, B samples each."""
        self.largest[:, lags] = self.largest[:, lags].maximum(norms.amax(-1))
        self.least[:, lags] = self.least[:, lags].minimum(norms.amin(-1))
        self.total[:, lags] += norms.sum(-1)
        self.count[lags] += norms.shape[-1]

    @property
    def mean(self) -> Tensor:
        """Return the mean norm at every lag, shape (2, N)."""
        return self.total / self.count


def matrix_norms(matrices: Tensor) -> Tensor:
    """Return Frobenius and spectral norm of each matrix, shape (2, B), for matrices (B, K, S) in float64.

    Each matrix is scaled by its largest entry, so that no square over- or underflows. The spectral norm is the root of
    the largest eigenvalue of the Gram matrix, which loses nothing for the *largest* singular value. A matrix with an
    entry that is not finite has left the range of float64: its norms are infinite.

    Example:
        >>> matrix_norms(torch.diag(torch.tensor([3.0, 4.0], dtype=torch.float64)).unsqueeze(0)).flatten()
        tensor([5., 4.], dtype=torch.float64)
    """
    scale = matrices.abs().amax((-2, -1), keepdim=True)  # (B, 1, 1); NaN stays NaN
    usable = scale.isfinite() & (scale > 0)
    unit = torch.where(usable, matrices / scale, 0.0)
    gram = unit @ unit.mT if unit.shape[-2] <= unit.shape[-1] else unit.mT @ unit
    frobenius = torch.linalg.matrix_norm(unit)
    spectral = frobenius if len(gram[0]) == 1 else torch.linalg.eigvalsh(gram)[..., -1].clamp(min=0).sqrt()
    scale = torch.where(scale.isfinite(), scale, torch.inf).flatten()
    return torch.where(scale.isinf(), torch.inf, torch.stack([frobenius, spectral]) * scale)


def walk_back(run: Unrolled, partials: Partials | None, wrt: str) -> Tally:
    """Return the norms of the derivatives of the last state, or of a loss, by lag.

    One pass backwards. The cotangents (K, B, H) of each state go through the step as one batch: K is the size of the
    state without a loss, 1 for one loss, and grows to T for one loss per step.
    """
    layers = tuple(as_recurrence(weights, run.inputs.shape[1], run.inputs.double()) for weights in run.weights)
    cotangents = _seed(run, partials)
    tally = Tally.empty(run.steps + (wrt == "state"), run.inputs.device)
    with without_autocast(run.inputs.device):
        for t in range(run.steps, 0, -1):
            if partials is not None:
                cotangents = _inject(cotangents, partials, t, run)
            if wrt == "state":
                _count(tally, _top(cotangents, run), run, partials, t)
            cotangents, reached = _pull_back(layers, run, cotangents, t)
            if wrt == "input":
                direct = None if partials is None else partials.inputs[t - 1]
                _count(tally, _with_first(reached, direct), run, partials, t)
        if wrt == "state":
            _count(tally, _top(cotangents, run), run, partials, 0)
    return tally


def _seed(run: Unrolled, partials: Partials | None) -> list[Tensor]:
    """Return the cotangents of all states at the last step: the identity of the top layer's, or none yet for a loss."""
    rows, size = run.states[0][-1][0].shape
    parts, top = sum(len(state) for state in run.states[0]), len(run.states[0][-1])
    new = torch.zeros(0, dtype=torch.float64, device=run.inputs.device)
    if partials is not None:
        return [new.new_zeros(0 if partials.per_step else 1, rows, size) for _ in range(parts)]
    identity = torch.eye(top * size, dtype=torch.float64, device=new.device)
    below = [new.new_zeros(top * size, rows, size) for _ in range(parts - top)]
    return below + [block.unsqueeze(1).expand(-1, rows, -1) for block in identity.split(size, dim=1)]


def _inject(cotangents: list[Tensor], partials: Partials, t: int, run: Unrolled) -> list[Tensor]:
    """Add what the loss sees of the top layer's output at time t: to the one cotangent, or as a new first one."""
    place = len(cotangents) - len(run.states[0][-1])
    added = [torch.zeros_like(partials.states[t - 1]).unsqueeze(0)] * len(cotangents)
    added[place] = partials.states[t - 1].unsqueeze(0)
    if partials.per_step:
        return [torch.cat([new, old]) for new, old in zip(added, cotangents, strict=True)]
    return [new + old for new, old in zip(added, cotangents, strict=True)]


def _pull_back(layers: tuple[Recurrence, ...], run: Unrolled, cotangents: list[Tensor], t: int) -> tuple[list[Tensor], Tensor]:
    """Return the cotangents of the states before step t, and those of its input, (K, B, D)."""
    x = run.inputs[t - 1].double().requires_grad_()
    states = tuple(tuple(s.double().requires_grad_() for s in state) for state in run.states[t - 1])
    with torch.enable_grad():
        after = [tensor for state in advance(layers, x, states) for tensor in state]
    before = [tensor for state in states for tensor in state]
    *pulled, reached = torch.autograd.grad(
        after, [*before, x], cotangents, is_grads_batched=True, allow_unused=True, materialize_grads=True
    )
    return pulled, reached


def _top(cotangents: list[Tensor], run: Unrolled) -> Tensor:
    """Return the cotangents of the top layer's whole state, side by side: (K, B, S)."""
    return torch.cat(cotangents[-len(run.states[0][-1]) :], dim=-1)


def _with_first(reached: Tensor, direct: Tensor | None) -> Tensor:
    """Add what the loss sees of the input itself, which concerns the first cotangent: the only, or the youngest one."""
    if direct is None:
        return reached
    return torch.cat([reached[:1] + direct, reached[1:]])


def _count(tally: Tally, cotangents: Tensor, run: Unrolled, partials: Partials | None, t: int) -> None:
    """Count the norms of cotangents (K, B, S) in that have come to time t."""
    lags = torch.tensor([run.steps - t], device=cotangents.device)
    if partials is None:
        tally.add(lags, matrix_norms(cotangents.transpose(0, 1)).unsqueeze(1))
        return
    if partials.per_step:  # the k-th is of the loss at time max(t, 1) + k
        lags = torch.arange(len(cotangents), device=cotangents.device) + (t == 0)
    count, rows, size = cotangents.shape
    tally.add(lags, matrix_norms(cotangents.reshape(-1, 1, size)).view(2, count, rows))
